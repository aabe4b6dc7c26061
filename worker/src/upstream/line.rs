//! One address of one rule: where the mechanisms of `upstream/` meet the threads.
//!
//! Decisions read a line far more often than outcomes change it, and a decision reads every
//! line of its rule. So the state proper sits behind a short mutex, and what decisions read is
//! published after each change in a few atomics: `usable`, scores and counts take no lock. A
//! reader may see two published words from either side of a change; the decision that follows
//! is then one that was right a moment ago, and the mutex has the last word on admission.
//!
//! Which mechanism excludes a line is its [`Gate`]. The adaptive modes use the breaker. A
//! selector uses failure marks and nothing else beside active health: with the breaker on top,
//! a target whose mark has ended, or a sole target, could still be closed, which the selector's
//! rules forbid.
//!
//! An attempt holds an [`Admission`], the connection it becomes a [`Held`]. Dropping either
//! gives back everything it holds, so a client that leaves in the middle costs a line nothing.

mod admission;
mod core;
mod held;
mod published;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::held::Hold;
use self::published::{PROBING, Published};
use super::breaker::{Pass, State};
use super::health::Thresholds;
use super::marks::MarkPolicy;
use crate::flow::Moment;

pub use self::admission::Admission;
pub(super) use self::core::Core;
pub use self::held::Held;

/// What excludes a line after failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The circuit breaker (adaptive modes).
    Breaker,
    /// Failure marks (selectors).
    Marks(MarkPolicy),
}

/// Why a line is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The breaker is open and cooling.
    Open,
    /// The breaker is half open and its one probe is under way.
    Probing,
    /// Active probes say so.
    Unhealthy,
    /// Marked failed. Only excludes while choosing: the sole target and the last resort are
    /// admitted in spite of a mark.
    Marked,
}

/// A line.
#[derive(Debug)]
pub struct Line {
    gate: Gate,
    published: Published,
    /// When the last dial began, 0 for never.
    last_attempt: AtomicU64,
    /// Attempts in flight plus connections held.
    active: AtomicU32,
    core: Mutex<Core>,
}

impl Line {
    /// A line about which nothing is known.
    #[must_use]
    pub fn new(gate: Gate) -> Self {
        Self::from_parts(gate, Core::default(), Moment::default())
    }

    pub(super) fn from_parts(gate: Gate, core: Core, last_attempt: Moment) -> Self {
        let line = Self {
            gate,
            published: Published::default(),
            last_attempt: AtomicU64::new(last_attempt.0),
            active: AtomicU32::new(0),
            core: Mutex::new(core),
        };
        line.publish(&line.lock());
        line
    }

    /// What excludes this line after failures.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// Whether a new attempt may choose this line, and if not, why. Takes no lock.
    ///
    /// # Errors
    /// The first reason that applies: unhealthy, then the gate's.
    pub fn check(&self, now: Moment) -> Result<(), Refused> {
        if self.published.unhealthy.load(Relaxed) {
            return Err(Refused::Unhealthy);
        }
        match self.published.open_until.load(Relaxed) {
            0 => {}
            PROBING => return Err(Refused::Probing),
            until if now.0 < until => return Err(Refused::Open),
            _ => {}
        }
        if now.0 < self.published.marked_until.load(Relaxed) {
            return Err(Refused::Marked);
        }
        Ok(())
    }

    /// Whether a new attempt may choose this line.
    #[must_use]
    pub fn usable(&self, now: Moment) -> bool {
        self.check(now).is_ok()
    }

    /// Whether a connection to it that was made ahead of need is not to be trusted: its breaker
    /// is not closed, active probes exclude it, or it is marked. Unlike [`check`](Self::check),
    /// also after the cooling, until the half-open probe has succeeded.
    #[must_use]
    pub fn is_suspect(&self, now: Moment) -> bool {
        let published = &self.published;
        published.unhealthy.load(Relaxed)
            || published.open_until.load(Relaxed) != 0
            || now < self.marked_until()
    }

    /// Whether active probes exclude the line.
    #[must_use]
    pub fn unhealthy(&self) -> bool {
        self.published.unhealthy.load(Relaxed)
    }

    /// When the present mark ends; a moment that has passed when there is none.
    #[must_use]
    pub fn marked_until(&self) -> Moment {
        Moment(self.published.marked_until.load(Relaxed))
    }

    /// The mean connect time in nanoseconds, 0 when never sampled.
    #[must_use]
    pub fn ewma_nanos(&self) -> u64 {
        self.published.ewma.load(Relaxed)
    }

    /// The longer of the two failure streaks.
    #[must_use]
    pub fn streak(&self) -> u32 {
        self.published.streak.load(Relaxed)
    }

    /// When the last dial began; the start of time for never.
    #[must_use]
    pub fn last_attempt(&self) -> Moment {
        Moment(self.last_attempt.load(Relaxed))
    }

    /// Attempts in flight plus connections held.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.active.load(Relaxed)
    }

    /// What the `latency` strategy weighs a line with, in nanoseconds; `None` when it has no
    /// sample. The number of active connections is not part of it.
    #[must_use]
    pub fn load_nanos(&self, now: Moment) -> Option<u64> {
        let connect = self.published.connect.read(now)?;
        Some(connect.saturating_add(self.published.first_byte.read(now).unwrap_or(0)))
    }

    /// Lets an attempt through. Marks do not refuse here: whether a marked line may be tried
    /// all the same is the selector's decision.
    ///
    /// # Errors
    /// Unhealthy, open, or half open with its probe under way; nothing has changed then.
    pub fn admit(self: &Arc<Self>, now: Moment) -> Result<Admission, Refused> {
        if self.published.unhealthy.load(Relaxed) {
            return Err(Refused::Unhealthy);
        }
        let pass = match self.published.open_until.load(Relaxed) {
            0 => Pass { epoch: self.published.epoch.load(Relaxed), probe: false },
            _ => self.admit_slowly(now)?,
        };
        Ok(Admission::new(self, pass))
    }

    fn admit_slowly(&self, now: Moment) -> Result<Pass, Refused> {
        let mut core = self.lock();
        let pass = core.breaker.admit(now).ok_or_else(|| match core.breaker.state() {
            State::HalfOpen { .. } => Refused::Probing,
            State::Open { .. } | State::Closed => Refused::Open,
        })?;
        self.publish(&core);
        Ok(pass)
    }

    /// Counts an established connection that did not come from an attempt of this worker (it
    /// was handed over by another process).
    pub fn adopt(self: &Arc<Self>) -> Held {
        let epoch = self.published.epoch.load(Relaxed);
        Held::new(Hold::new(self), Pass { epoch, probe: false })
    }

    /// The result of an active probe. True when the verdict changed.
    pub fn probed(&self, passed: bool, thresholds: Thresholds) -> bool {
        let mut core = self.lock();
        let changed = core.health.probed(passed, thresholds);
        self.publish(&core);
        changed
    }

    /// The connect time of a fresh dial that no client waits for (a prewarm refill): a sample
    /// like any other.
    pub fn sampled(&self, connect: Duration, now: Moment) {
        let mut core = self.lock();
        core.take_sample(connect, now);
        self.publish(&core);
    }

    /// Reads the state proper.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Core) -> T) -> T {
        read(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // Every change of the core is complete in itself, so a poisoned one is still sound.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what decisions read; called with the lock held.
    fn publish(&self, core: &Core) {
        self.published.write(self.gate, core);
    }
}

#[cfg(test)]
mod tests;
