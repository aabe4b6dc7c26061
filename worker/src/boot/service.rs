//! What serves clients, as the main thread sees it: the shards, the listeners they poll, the
//! generation they follow, and what has to be kept up beside them.
//!
//! Exists from the first good configuration on, because that one says how many shards there are.
//! A switch is: register what is new, publish by one atomic store, let the shards follow. Until
//! the store nothing has changed for any client, and after it nothing can fail any more but a
//! shard that has died.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use baton_config::model::Config;
use baton_handoff::message::{Generation as Number, ListenerKey, Pulse};
use baton_handoff::table::Lane as Records;
use baton_metrics::{CONTENT_TYPE, Region};
use tokio::sync::mpsc;

use super::gauges::Gauges;
use super::moving::MoveSeries;
use super::upkeep::Upkeep;
use crate::accept::admission::ProcessCount;
use crate::accept::listeners::Listeners;
use crate::admin::{AdminServer, View};
use crate::generation::Generation;
use crate::generation::blueprint::{self, Blueprint};
use crate::inspect;
use crate::net;
use crate::process::Process;
use crate::shard::{Gone, Hands, RegisterError, Shards};

/// Why a generation is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    /// Nothing is prepared, or a socket is missing: the lifecycle should have prevented it.
    #[error("{0}")]
    Unprepared(String),
    /// The shards cannot poll the listeners.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The admin listener cannot be polled.
    #[error("cannot serve the admin listener: {0}")]
    Admin(#[source] io::Error),
    /// A shard has died.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// The serving part of a worker.
pub(super) struct Service {
    process: Arc<Process>,
    shards: Shards,
    broken: mpsc::UnboundedReceiver<String>,
    listeners: Listeners,
    /// Ready to be published.
    built: Option<Generation>,
    /// Earlier generations; alive as long as a connection holds them.
    retired: Rc<RefCell<Vec<Weak<Generation>>>>,
    /// What is done for the published generation.
    upkeep: Option<Upkeep>,
    admin: Option<AdminServer>,
    view: Rc<Exposed>,
    moves: MoveSeries,
}

/// What the admin server shows.
struct Exposed {
    ready: Cell<bool>,
    process: Arc<Process>,
    region: Region,
    gauges: RefCell<Gauges>,
    retired: Rc<RefCell<Vec<Weak<Generation>>>>,
}

impl Service {
    /// Starts the shards that `config` wants, counting in `region`.
    /// Each shard keeps its records in one of `records`, if there are such.
    pub(super) fn start(
        config: &Config,
        region: Region,
        records: Vec<Records>,
    ) -> io::Result<Self> {
        let shards = shard_count(config);
        let lane = region.claim_lane(std::process::id());
        if lane.is_detached() {
            tracing::warn!("the metrics region has no room for this process: its counts are lost");
        }
        let (process, broken) = Process::new(shards, &lane);
        let shards = Shards::start(&process, records)?;
        let moves = MoveSeries::new(&lane);
        let retired = Rc::default();
        let view = Rc::new(Exposed {
            ready: Cell::new(false),
            process: Arc::clone(&process),
            region,
            gauges: RefCell::new(Gauges::new(&lane)),
            retired: Rc::clone(&retired),
        });
        Ok(Self {
            process,
            shards,
            broken,
            listeners: Listeners::default(),
            built: None,
            retired,
            upkeep: None,
            admin: None,
            view,
            moves,
        })
    }

    /// The sockets that are held, by their keys.
    pub(super) fn listeners(&mut self) -> &mut Listeners {
        &mut self.listeners
    }

    /// The generation that new connections get.
    pub(super) fn published(&self) -> Option<Arc<Generation>> {
        self.process.published.load_full()
    }

    /// What moves connections to and from the shards.
    pub(super) fn hands(&self) -> Hands {
        self.shards.hands(&self.process)
    }

    /// What is counted of moves and recoveries.
    pub(super) fn move_series(&self) -> MoveSeries {
        self.moves.clone()
    }

    /// Live connections of the process.
    pub(super) fn count(&self) -> &Arc<ProcessCount> {
        &self.process.count
    }

    /// Earlier generations that still have connections.
    pub(super) fn retired(&self) -> u32 {
        alive(&self.retired.borrow())
    }

    /// A sign of life.
    pub(super) fn pulse(&self) -> Pulse {
        Pulse {
            generation: self.published().map_or(Number(0), |generation| generation.number()),
            connections: self.process.count.live().into(),
            retired_generations: self.retired(),
        }
    }

    /// Waits for something that only a new process can repair.
    pub(super) async fn broken(&mut self) -> String {
        match self.broken.recv().await {
            Some(problem) => problem,
            None => std::future::pending().await,
        }
    }

    /// What is to be done once a second.
    pub(super) fn tick(&self) {
        self.view.look();
        // One writer a record: a worker that has given way must not overwrite its successor's.
        if self.view.ready.get() {
            self.view.gauges.borrow().store_learned();
        }
    }

    /// Makes a generation whose sockets are all held, so that switching to it is quick: the lines
    /// and series of thousands of targets take a while.
    pub(super) fn build(&mut self, draft: Blueprint) -> Result<(), ServeError> {
        let before = self.published();
        let built = draft.build(&self.process, &mut self.listeners, before.as_deref());
        self.built = Some(built.map_err(ServeError::Unprepared)?);
        Ok(())
    }

    /// Forgets what was prepared.
    pub(super) fn drop_pending(&mut self) {
        self.built = None;
        self.listeners.drop_pending();
    }

    /// The drain limit of what serves.
    pub(super) fn drain_timeout(&self) -> Option<Duration> {
        Some(self.published()?.config().supervisor.drain_timeout)
    }

    /// Switches to the generation that was built.
    pub(super) async fn publish(&mut self, number: Number) -> Result<(), ServeError> {
        let built = self.built.take().filter(|built| built.number() == number);
        let Some(generation) = built else {
            return Err(ServeError::Unprepared(format!("generation {} is gone", number.0)));
        };
        let before = self.published();
        let admin = blueprint::admin_key(generation.config());
        let pending: Vec<_> = self.listeners.pending(&admin).collect();
        if let Err(error) = self.shards.register(&pending).await {
            // Whatever was registered is not published, so following lets go of it.
            self.shards.follow().await?;
            self.listeners.drop_pending();
            return Err(error.into());
        }
        let generation = Arc::new(generation);
        self.listeners.promote(&generation.keys());
        self.process.published.store(Some(Arc::clone(&generation)));
        {
            let mut retired = self.retired.borrow_mut();
            retired.retain(|generation| generation.strong_count() > 0);
            retired.extend(before.as_ref().map(Arc::downgrade));
        }
        drop(before);
        self.upkeep = None;
        self.shards.follow().await?;
        tracing::info!(generation = generation.number().0, "serving");
        self.open(&generation)
    }

    /// Polls the listeners of the published generation again.
    pub(super) async fn resume(&mut self) -> Result<(), ServeError> {
        let Some(generation) = self.published() else {
            return Err(ServeError::Unprepared("nothing was ever served".to_owned()));
        };
        if let Err(error) = self.shards.register(&[]).await {
            self.shards.pause().await?;
            return Err(error.into());
        }
        self.shards.follow().await?;
        tracing::info!(generation = generation.number().0, "accepting again");
        self.open(&generation)
    }

    /// Serves the admin listener, if there is one, begins the upkeep, and is ready.
    fn open(&mut self, generation: &Arc<Generation>) -> Result<(), ServeError> {
        let config = generation.config();
        if config.metrics.enabled && self.admin.is_none() {
            let Some(listener) = self.listeners.get(&blueprint::admin_key(config)) else {
                let text = "no socket is held for the admin server".to_owned();
                return Err(ServeError::Unprepared(text));
            };
            let copy = listener.socket.try_clone().map_err(ServeError::Admin)?;
            let view = Rc::clone(&self.view);
            self.admin = Some(AdminServer::start(copy, view).map_err(ServeError::Admin)?);
        }
        if self.upkeep.is_none() {
            self.upkeep = Some(Upkeep::start(generation, &self.process));
        }
        self.view.ready.set(true);
        Ok(())
    }

    /// Deregisters every listener.
    pub(super) async fn stop_accepting(&mut self) -> Result<(), Gone> {
        self.view.ready.set(false);
        self.upkeep = None;
        if let Some(admin) = self.admin.take() {
            admin.stop().await;
        }
        self.shards.pause().await?;
        tracing::info!("stopped accepting");
        Ok(())
    }

    /// Closes every copy of the listeners; called once nothing polls them.
    pub(super) async fn close_listeners(&mut self) -> Result<(), Gone> {
        self.listeners.clear();
        self.shards.close_listeners().await
    }

    /// Resets every connection; returns how many there were.
    pub(super) async fn cut(&self) -> Result<u64, Gone> {
        let connections = self.shards.cut().await?;
        if connections > 0 {
            tracing::warn!(connections, "connections were cut");
        }
        Ok(connections)
    }

    /// Takes sockets for the pending generation; one that it did not ask for is closed.
    pub(super) fn take(&mut self, draft: &Blueprint, arrived: Vec<(ListenerKey, OwnedFd)>) {
        let wanted = blueprint::keys(draft.config());
        for (key, socket) in arrived {
            if wanted.contains(&key) {
                // What clients' sockets inherit. The supervisor, which may be of another version, has
                // its own idea of it and sets that once, when it binds or adopts the socket; what
                // this worker promises of every relayed socket must not depend on it.
                if let Err(error) = net::tune(socket.as_fd()) {
                    tracing::warn!(%error, listener = key.0, "cannot set socket options");
                }
                self.listeners.take(key, socket);
            }
        }
    }
}

impl Exposed {
    fn look(&self) {
        self.gauges.borrow_mut().refresh(&self.process, alive(&self.retired.borrow()));
    }
}

impl View for Exposed {
    fn status(&self) -> String {
        inspect::status(self.process.published.load_full().as_deref(), net::now())
    }

    fn ready(&self) -> bool {
        self.ready.get()
    }

    fn metrics(&self) -> Result<(Vec<u8>, &'static str), String> {
        self.look();
        let text = self.region.encode_text().map_err(|error| error.to_string())?;
        Ok((text.into_bytes(), CONTENT_TYPE))
    }
}

fn alive(generations: &[Weak<Generation>]) -> u32 {
    let alive = generations.iter().filter(|generation| generation.strong_count() > 0);
    u32::try_from(alive.count()).unwrap_or(u32::MAX)
}

/// The shards that a configuration wants.
pub(super) fn shard_count(config: &Config) -> usize {
    match usize::from(config.supervisor.worker_threads) {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}
