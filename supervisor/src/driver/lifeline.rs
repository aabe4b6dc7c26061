//! What a dead worker's connections are carried on with, and who is told of it.
//!
//! Of a living worker it is with the rest of that worker ([`Live`](super::worker::Live)); after its
//! death it stays here, until the machine lets it go. With the last copy the worker's keeper ends
//! and resets what it still has.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use baton_handoff::message::{Dead, Migrate, Recover, Side, ToWorker, WorkerId};

use super::Driver;
use super::launch::Launch;
use super::worker::Cargo;
use crate::event::Event;

/// A worker's connection table and the far end of its keeper's socket.
#[derive(Debug)]
pub(crate) struct Lifeline {
    table: OwnedFd,
    keeper: OwnedFd,
}

impl Lifeline {
    /// From the descriptors of a message; their number and kind were checked with it.
    pub(crate) fn of(fds: Vec<OwnedFd>) -> Option<Self> {
        let [table, keeper] = <[OwnedFd; 2]>::try_from(fds).ok()?;
        Some(Self { table, keeper })
    }

    /// Both, in the order in which they travel.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.table.as_fd(), self.keeper.as_fd()]
    }
}

impl<L: Launch> Driver<L> {
    /// Every lifeline, for the next image of this process.
    pub(super) fn lifelines(&self) -> impl Iterator<Item = (WorkerId, Rc<Lifeline>)> {
        let living = self.workers.iter().filter_map(|(id, live)| Some((*id, live.lifeline()?)));
        living.chain(self.remains.iter().map(|(id, lifeline)| (*id, Rc::clone(lifeline))))
    }

    /// The worker is gone; what it left is kept, or not.
    pub(super) fn bury(&mut self, id: WorkerId, remains: bool) {
        // Of one whose end the former image of this process has seen, it is here already.
        let mut lifeline = self.remains.remove(&id);
        if let Some(worker) = self.workers.remove(&id) {
            self.region.fold_dead(worker.pid);
            lifeline = worker.take_lifeline();
        }
        if remains && let Some(lifeline) = lifeline {
            self.remains.insert(id, lifeline);
        }
    }

    /// Tells both workers of the channel between them.
    pub(super) fn migrate(&mut self, from: WorkerId, to: WorkerId, timeout_ms: u64) {
        let (gives, takes) = match baton_handoff::pair() {
            Ok(pair) => pair,
            Err(error) => {
                let problem = format!("no channel between the workers: {error}");
                return self.answers.push_back(Event::NotMigrating { problem });
            }
        };
        let takes_part = |side, other| ToWorker::Migrate(Migrate { side, other, timeout_ms });
        self.send(to, takes_part(Side::Take, from), Cargo::Channel(takes));
        self.send(from, takes_part(Side::Give, to), Cargo::Channel(gives));
    }

    /// Tells a worker what dead ones left.
    pub(super) fn recover(&mut self, id: WorkerId, dead: &[Dead]) {
        let left = dead.iter().filter_map(|dead| {
            let lifeline = self.remains.get(&dead.worker).map(Rc::clone);
            if lifeline.is_none() {
                // The machine only names what was kept: a fault of ours.
                tracing::error!(worker = dead.worker.0, "its lifeline was not kept");
            }
            Some((*dead, lifeline?))
        });
        let (dead, lifelines): (Vec<_>, Vec<_>) = left.unzip();
        if !dead.is_empty() {
            self.send(id, ToWorker::Recover(Recover { dead }), Cargo::Lifelines(lifelines));
        }
    }
}
