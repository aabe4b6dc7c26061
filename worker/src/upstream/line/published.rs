//! What decisions read of a line.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Core, Gate};
use crate::flow::Moment;
use crate::upstream::breaker::State;
use crate::upstream::ewma::Ewma;
use crate::upstream::load::Load;

/// [`Published::open_until`] while the half-open probe is under way.
pub(super) const PROBING: u64 = u64::MAX;

/// What decisions read, in words of their own. A reader may see two of them from either side of a
/// change.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// 0 closed, [`PROBING`] half open, else when the cooling ends.
    pub(super) open_until: AtomicU64,
    pub(super) epoch: AtomicU32,
    pub(super) marked_until: AtomicU64,
    pub(super) unhealthy: AtomicBool,
    pub(super) ewma: AtomicU64,
    /// The longer of the breaker's streaks.
    pub(super) streak: AtomicU32,
    /// Whether a clean relay would change anything.
    pub(super) blemished: AtomicBool,
    pub(super) connect: PublishedLoad,
    pub(super) first_byte: PublishedLoad,
}

/// One of the loads.
#[derive(Debug, Default)]
pub(super) struct PublishedLoad {
    ewma: AtomicU64,
    last: AtomicU64,
    at: AtomicU64,
}

impl Published {
    /// Publishes the state; called with the lock held.
    pub(super) fn write(&self, gate: Gate, core: &Core) {
        if gate == Gate::Breaker {
            let open_until = match core.breaker.state() {
                State::Closed => 0,
                State::Open { until } => until.0.clamp(1, PROBING - 1),
                State::HalfOpen { .. } => PROBING,
            };
            // The epoch first: whoever sees the breaker closed must not show an old pass.
            self.epoch.store(core.breaker.epoch(), Relaxed);
            self.open_until.store(open_until, Relaxed);
        } else {
            self.marked_until.store(core.marks.until.0, Relaxed);
        }
        self.streak.store(core.streak(gate), Relaxed);
        let blemished = core.breaker.level() > 0 || core.streak(gate) > 0;
        self.blemished.store(blemished, Relaxed);
        self.unhealthy.store(core.health.unhealthy, Relaxed);
        self.ewma.store(core.ewma.nanos(), Relaxed);
        self.connect.write(&core.connect_load);
        self.first_byte.write(&core.first_byte_load);
    }
}

impl PublishedLoad {
    fn write(&self, load: &Load) {
        self.ewma.store(load.ewma.nanos(), Relaxed);
        self.at.store(load.at.0, Relaxed);
        self.last.store(load.last, Relaxed);
    }

    /// What it weighs at this moment; `None` without a sample.
    pub(super) fn read(&self, now: Moment) -> Option<u64> {
        let load = Load {
            last: self.last.load(Relaxed),
            ewma: Ewma::from_nanos(self.ewma.load(Relaxed)),
            at: Moment(self.at.load(Relaxed)),
        };
        load.weight(now)
    }
}
