//! Moving connections and carrying others on: tasks beside the conversation with the supervisor.
//!
//! At most one move is under way, and it may last a minute; the conversation goes on meanwhile.
//! What has to be said about it comes back as an event. An order that contradicts a move (the
//! other way round, or the news that the other worker is dead) first lets it come to its end: at
//! no moment is a connection in the hands of a task that is simply dropped.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use baton_handoff::message::{Migrate, Migrated, Recover, Recovered, Side, ToSupervisor, WorkerId};
use baton_handoff::{Transaction, WorkerEnd};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_local};

use super::{SEND_LIMIT, Worker, carries_on};
use crate::flow::Moment;
use crate::migrate::{Offers, Source};
use crate::net;

mod give;
mod rescue;
mod series;
mod take;

pub(super) use series::MoveSeries;

/// Something to be said about a move or a recovery.
#[derive(Debug)]
pub(super) struct Said {
    /// What asked for it.
    pub(super) asked: Transaction,
    pub(super) message: ToSupervisor,
}

/// The moves of this process.
#[derive(Debug)]
pub(super) struct Moves {
    current: Option<Move>,
    /// A recovery that was begun; one after the other, for each has to know what is served here.
    recovery: Option<JoinHandle<()>>,
    /// How many there were.
    count: u32,
    say: mpsc::UnboundedSender<Said>,
    said: mpsc::UnboundedReceiver<Said>,
}

/// One that was begun.
#[derive(Debug)]
struct Move {
    other: WorkerId,
    task: JoinHandle<()>,
    died: watch::Sender<bool>,
    stop: watch::Sender<bool>,
}

/// Where a task tells the supervisor about its request.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    asked: Transaction,
    say: mpsc::UnboundedSender<Said>,
}

impl Teller {
    fn tell(&self, message: ToSupervisor) {
        // Without a receiver the process is ending.
        let _ending = self.say.send(Said { asked: self.asked, message });
    }
}

/// What a move has to heed.
#[derive(Debug)]
struct Signs {
    /// The other worker is dead.
    died: watch::Receiver<bool>,
    /// To end as soon as nothing is half done.
    stop: watch::Receiver<bool>,
}

impl Moves {
    pub(super) fn new() -> Self {
        let (say, said) = mpsc::unbounded_channel();
        Self { current: None, recovery: None, count: 0, say, said }
    }

    /// Waits for something to be said.
    pub(super) async fn said(&mut self) -> Said {
        match self.said.recv().await {
            Some(said) => said,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }

    fn teller(&self, asked: Transaction) -> Teller {
        Teller { asked, say: self.say.clone() }
    }

    /// The move under way is to end; what is left of it.
    fn stop(&mut self) -> Option<JoinHandle<()>> {
        let Move { task, stop, .. } = self.current.take()?;
        stop.send_replace(true);
        Some(task)
    }

    /// Tells the move under way that its other worker is among the dead; what is left of it.
    fn bereave(&mut self, dead: &Recover) -> Option<JoinHandle<()>> {
        let with_dead =
            |current: &mut Move| dead.dead.iter().any(|dead| dead.worker == current.other);
        let Move { task, died, .. } = self.current.take_if(with_dead)?;
        died.send_replace(true);
        Some(task)
    }
}

/// Waits until an earlier task has come to its end.
async fn ended(task: Option<JoinHandle<()>>) {
    if let Some(task) = task
        && let Err(error) = task.await
    {
        tracing::error!(%error, "a move or a recovery has broken off");
    }
}

impl Worker<'_> {
    /// Gives the supervisor what it needs to have our connections carried on, unless it has it.
    pub(super) async fn send_lifeline(&mut self) {
        let speaks = self.end.as_ref().and_then(WorkerEnd::version);
        if !speaks.is_some_and(carries_on) {
            return;
        }
        let Some([table, keeper]) = self.lifeline.take_descriptors() else { return };
        let Some(end) = &self.end else { return };
        let descriptors = [table.as_fd(), keeper.as_fd()];
        let sending = end.hand(Transaction::NONE, &ToSupervisor::Lifeline, &descriptors);
        match tokio::time::timeout(SEND_LIMIT, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lifeline is not handed over"),
            Err(_) => tracing::warn!("the lifeline is not handed over: nobody reads"),
        }
    }

    /// Begins to move connections over `socket`.
    pub(super) fn begin_move(&mut self, migrate: Migrate, socket: Option<OwnedFd>) {
        let Migrate { side, other, timeout_ms } = migrate;
        let (Some(service), Some(socket)) = (&self.service, socket) else {
            return tracing::warn!("asked to move connections before there can be any");
        };
        let (hands, series) = (service.hands(), service.move_series());
        let teller = self.moves.teller(self.asked);
        let before = self.moves.stop();
        self.moves.count += 1;
        let number = self.moves.count;
        let (died, death) = watch::channel(false);
        let (stop, stopping) = watch::channel(false);
        let signs = Signs { died: death, stop: stopping };
        let deadline = net::now().after(Duration::from_millis(timeout_ms));
        let task = spawn_local(async move {
            ended(before).await;
            match side {
                Side::Give => {
                    let giver = give::Giver { hands, series, teller, signs, number, deadline };
                    giver.run(socket).await;
                }
                Side::Take => take::run(socket, &hands, signs).await,
            }
        });
        self.moves.current = Some(Move { other, task, died, stop });
    }

    /// Says that connections are not moved; only who gives is waited for.
    pub(super) async fn decline_move(&mut self, side: Side) {
        tracing::warn!(?side, "connections are not moved: the worker has no part in serving");
        self.handed.clear();
        if side == Side::Take {
            return;
        }
        let over = Migrated { over: true, ..Migrated::default() };
        self.send(&ToSupervisor::Migrated(over)).await;
    }

    /// Begins to carry on what dead workers left.
    pub(super) fn begin_recovery(&mut self, recover: &Recover, descriptors: Vec<OwnedFd>) {
        let Some(service) = &self.service else {
            return tracing::warn!("asked to recover connections before anything was served");
        };
        let (hands, series) = (service.hands(), service.move_series());
        let teller = self.moves.teller(self.asked);
        let before = self.moves.bereave(recover);
        let earlier = self.moves.recovery.take();
        let sources = sources(recover, descriptors, net::now());
        self.moves.recovery = Some(spawn_local(async move {
            ended(earlier).await;
            ended(before).await;
            rescue::run(sources, &hands, &series, &teller).await;
        }));
    }

    /// Says that nothing is recovered.
    pub(super) async fn decline_recovery(&mut self, recover: &Recover) {
        tracing::warn!("nothing is recovered: the worker does not serve");
        self.handed.clear();
        let failures = u32::try_from(recover.dead.len()).unwrap_or(u32::MAX);
        let recovered = Recovered { failures, ..Recovered::default() };
        self.send(&ToSupervisor::Recovered(recovered)).await;
    }
}

/// Each dead worker with its table and its keeper's socket. The channel has checked that there are
/// as many as there have to be.
fn sources(recover: &Recover, descriptors: Vec<OwnedFd>, now: Moment) -> Vec<Source> {
    let mut descriptors = descriptors.into_iter();
    let source = |dead: &baton_handoff::message::Dead| {
        let (table, keeper) = (descriptors.next()?, descriptors.next()?);
        let died_at = now.before(Duration::from_millis(dead.since_ms));
        // Whoever had offered it anything was us, and has let go, or is dead too.
        Some(Source { table, keeper, died_at, offers: Offers::Taken })
    };
    recover.dead.iter().filter_map(source).collect()
}
