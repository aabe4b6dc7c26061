//! One thread and everything that happens on it.
//!
//! A shard is a single-threaded runtime with its own registration of every listener. A
//! connection lives and dies on one shard: its state is not `Send`, it takes no lock, and its
//! buffers and counters belong to the thread. Several runtimes beat one that steals work:
//! relaying has nothing to steal, and moving between cores is what costs.
//!
//! The main thread talks to a shard by [`Command`]s, answered when they are carried out. Other
//! shards hand over accepted sockets the same way, see [`balance`].
//!
//! Invariants:
//! * a listener is deregistered before its descriptor is closed: epoll follows the open
//!   description, which the supervisor keeps alive, so a closed but registered copy would keep
//!   firing and could never be removed;
//! * a loop that stops before the queue is empty wakes itself, since readiness is
//!   edge-triggered;
//! * a loop accepts only for a listener that the published generation has.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baton_handoff::table::Lane as Records;
use slab::Slab;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::MissedTickBehavior;

use crate::accept::listeners::ListenerId;
use crate::flow::Moment;
use crate::net;
use crate::process::Process;
use crate::relay::{CutReason, RelayContext};
use crate::session::Session;

mod balance;
mod incoming;
mod listed;
mod moving;
mod pool;
mod series;
mod trim;

pub(crate) use incoming::Accepted;
use listed::Connection;
pub(crate) use listed::{Cookies, Listed, Relaying};
pub(crate) use moving::Lifting;
use moving::{Lift, Reception};
pub(crate) use pool::{Gone, Hands, RegisterError, Shards};
pub(crate) use series::ShardSeries;
use trim::Peak;

/// How often a shard looks at all its connections. Idle limits are kept this exactly.
const SWEEP: Duration = Duration::from_millis(500);

/// What a shard is told.
pub(crate) enum Command {
    /// An accepted connection from another shard.
    Adopt(Accepted),
    /// Hold these sockets and register every one that is held and not registered. Accepting
    /// begins with `Follow`.
    Register(Vec<(ListenerId, OwnedFd)>, oneshot::Sender<io::Result<()>>),
    /// Accept on exactly the registered listeners of the published generation; let go of those
    /// it does not have.
    Follow(oneshot::Sender<()>),
    /// Deregister every listener and hold on to the sockets.
    Pause(oneshot::Sender<()>),
    /// Deregister every listener and let the sockets go.
    CloseListeners(oneshot::Sender<()>),
    /// Reset every connection; the answer is how many there were.
    Cut(oneshot::Sender<u64>),
    /// Freeze some connections and hand them over.
    Lift(Lift),
    /// Connections that another process served before.
    Receive(Reception),
    /// Tell the cookies of all sockets of relayed connections.
    Owned(oneshot::Sender<Vec<u64>>),
    /// End the thread; what still lives is reset.
    Stop,
}

/// A shard's number of connections, read by the others; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Load(AtomicU64);

impl Load {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One connection in a shard's load; moves with the connection.
#[derive(Debug)]
pub(crate) struct Carried {
    process: Arc<Process>,
    shard: usize,
}

impl Carried {
    fn by(process: &Arc<Process>, shard: usize) -> Self {
        process.loads[shard].0.fetch_add(1, Ordering::Relaxed);
        Self { process: Arc::clone(process), shard }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.process.loads[self.shard].0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The state of a shard, shared by the tasks of its thread.
pub(crate) struct Shard {
    index: usize,
    process: Arc<Process>,
    /// Every shard's command queue, this one's included.
    peers: Arc<[mpsc::UnboundedSender<Command>]>,
    listeners: RefCell<HashMap<ListenerId, Polled>>,
    connections: RefCell<Slab<Connection>>,
    relay: Rc<RelayContext>,
    /// This shard's part of the connection table; without one a connection dies with the process.
    records: Option<Rc<Records>>,
    series: ShardSeries,
    /// What `series.tasks` holds of this shard; lanes may be shared.
    tasks: Cell<i64>,
    turn: Cell<usize>,
    /// Of the whole process; used by the first shard alone.
    peak: RefCell<Peak>,
}

/// A listener as a shard holds it.
struct Polled {
    socket: OwnedFd,
    state: PollState,
}

enum PollState {
    /// Not known to epoll.
    Held,
    /// Known to epoll, nobody accepts yet.
    Registered(AsyncFd<OwnedFd>),
    /// A loop accepts.
    Accepting(JoinHandle<()>),
}

impl Shard {
    /// Its position among the shards.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// What the whole process shares.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// What it counts that belongs to no rule.
    pub(crate) fn series(&self) -> &ShardSeries {
        &self.series
    }

    /// What the thread's connections share for relaying.
    pub(crate) fn relay(&self) -> &Rc<RelayContext> {
        &self.relay
    }

    /// Takes a connection that was admitted here: keeps it, or hands it to a shard with less.
    fn place(self: &Rc<Self>, accepted: incoming::Admitted) {
        let loads = &self.process.loads;
        let turn = self.turn.get().wrapping_add(1);
        self.turn.set(turn);
        let to = balance::choose(self.index, loads.len(), turn, |shard| loads[shard].get());
        let accepted = accepted.carried(Carried::by(&self.process, to));
        if to == self.index {
            self.begin(accepted);
        } else if let Err(mpsc::error::SendError(Command::Adopt(accepted))) =
            self.peers[to].send(Command::Adopt(accepted))
        {
            // That shard is gone: the process is ending, and so will this connection.
            self.begin(accepted);
        }
    }

    fn begin(self: &Rc<Self>, accepted: Accepted) {
        let mut connections = self.connections.borrow_mut();
        let entry = connections.vacant_entry();
        let listed = Listed::new(self, entry.key());
        let task = spawn_local(Session::new(listed, accepted));
        entry.insert(Connection { task, relaying: None });
    }

    async fn serve(self: Rc<Self>, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut sweep = tokio::time::interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let command = tokio::select! {
                command = commands.recv() => command,
                _ = sweep.tick() => {
                    self.sweep(net::now());
                    continue;
                }
            };
            let Some(command) = command else { break };
            match command {
                Command::Adopt(accepted) => self.begin(accepted),
                Command::Register(sockets, done) => answer(done, self.register(sockets)),
                Command::Follow(done) => {
                    self.follow().await;
                    answer(done, ());
                }
                Command::Pause(done) => {
                    self.pause().await;
                    answer(done, ());
                }
                Command::CloseListeners(done) => {
                    self.pause().await;
                    self.listeners.take();
                    answer(done, ());
                }
                Command::Cut(done) => answer(done, self.cut()),
                Command::Lift(lift) => self.lift(lift),
                Command::Receive(reception) => self.receive(reception),
                Command::Owned(done) => answer(done, self.owned()),
                Command::Stop => break,
            }
        }
        self.pause().await;
    }

    fn register(&self, sockets: Vec<(ListenerId, OwnedFd)>) -> io::Result<()> {
        let mut listeners = self.listeners.borrow_mut();
        for (id, socket) in sockets {
            listeners.insert(id, Polled { socket, state: PollState::Held });
        }
        for polled in listeners.values_mut() {
            match polled.state {
                PollState::Held => {
                    let copy = polled.socket.try_clone()?;
                    polled.state = PollState::Registered(net::register_listener(copy)?);
                }
                PollState::Registered(_) | PollState::Accepting(_) => {}
            }
        }
        Ok(())
    }

    async fn follow(self: &Rc<Self>) {
        let generation = self.process.published.load_full();
        let listeners = self.listeners.take();
        let mut followed = HashMap::with_capacity(listeners.len());
        for (id, polled) in listeners {
            let has = generation.as_ref().is_some_and(|now| now.rule_of(id).is_some());
            if !has {
                polled.state.stop().await;
                continue;
            }
            let state = match polled.state {
                PollState::Registered(socket) => {
                    PollState::Accepting(spawn_local(incoming::accept(Rc::clone(self), id, socket)))
                }
                state @ (PollState::Held | PollState::Accepting(_)) => state,
            };
            followed.insert(id, Polled { socket: polled.socket, state });
        }
        self.listeners.replace(followed);
    }

    async fn pause(&self) {
        let listeners = self.listeners.take();
        let mut paused = HashMap::with_capacity(listeners.len());
        for (id, polled) in listeners {
            polled.state.stop().await;
            paused.insert(id, Polled { socket: polled.socket, state: PollState::Held });
        }
        self.listeners.replace(paused);
    }

    fn cut(&self) -> u64 {
        let connections = self.connections.borrow();
        for (_, connection) in connections.iter() {
            match &connection.relaying {
                Some(relaying) => relaying.control.cut(CutReason::Stopping),
                // Its client is reset when the future is dropped.
                None => connection.task.abort(),
            }
        }
        u64::try_from(connections.len()).unwrap_or(u64::MAX)
    }

    /// All that is done by time for established connections, in place of a timer each.
    fn sweep(&self, now: Moment) {
        for (_, connection) in self.connections.borrow().iter() {
            if let Some(Relaying { control, account, idle, .. }) = &connection.relaying {
                account.enter();
                control.last();
                if let Some(idle) = idle {
                    control.cut_idle(now, *idle);
                }
            }
        }
        self.relay.trim();
        // The heap is the process's, so one shard looks after it.
        if self.index == 0 && self.peak.borrow_mut().fell(self.process.count.live()) {
            net::trim_memory();
        }
        let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let alive = i64::try_from(alive).unwrap_or(i64::MAX);
        self.series.tasks.add(alive - self.tasks.replace(alive));
    }
}

impl PollState {
    /// Returns once epoll has forgotten the listener.
    async fn stop(self) {
        match self {
            Self::Held => {}
            Self::Registered(socket) => drop(socket),
            Self::Accepting(task) => {
                task.abort();
                // Cancelled, or ended by itself: either way its registration is dropped.
                let _ended = task.await;
            }
        }
    }
}

/// The asker may have given up; then there is nobody to answer.
fn answer<T>(done: oneshot::Sender<T>, value: T) {
    let _given_up = done.send(value);
}

/// A thread that panics would leave its connections and its share of the listeners' queues behind
/// without a word: the process is to be replaced.
struct PanicWatch(Arc<Process>);

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.report_broken("a relay thread has panicked".to_owned());
        }
    }
}

/// Runs a shard on the calling thread until it is stopped.
fn run(
    index: usize,
    process: Arc<Process>,
    records: Option<Records>,
    peers: Arc<[mpsc::UnboundedSender<Command>]>,
    commands: mpsc::UnboundedReceiver<Command>,
    started: &std::sync::mpsc::Sender<io::Result<()>>,
) {
    let _watch = PanicWatch(Arc::clone(&process));
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // Nobody listens only when the starter has already given up.
            let _gone = started.send(Err(error));
            return;
        }
    };
    let _gone = started.send(Ok(()));
    let series = ShardSeries::new(&process.lanes[index]);
    let shard = Rc::new(Shard {
        index,
        process,
        peers,
        listeners: RefCell::default(),
        connections: RefCell::default(),
        relay: Rc::default(),
        records: records.map(Rc::new),
        series,
        tasks: Cell::new(0),
        turn: Cell::new(index),
        peak: RefCell::default(),
    });
    runtime.block_on(shard.serve(commands));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_panics_reports_that_the_process_is_broken() {
        let dir = std::env::temp_dir().join(format!("baton-shard-{}", std::process::id()));
        let _former = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let region = baton_metrics::Region::create(&dir, 4 << 20).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let (process, mut broken) = Process::new(1, &region.claim_lane(1));
        let (started, _outcome) = std::sync::mpsc::channel();
        let (_commands, queue) = mpsc::unbounded_channel();
        // There is no lane for an eighth shard.
        let shard = std::thread::spawn(move || run(7, process, None, [].into(), queue, &started));
        shard.join().unwrap_err();
        assert_eq!(broken.try_recv().unwrap(), "a relay thread has panicked");
    }
}
