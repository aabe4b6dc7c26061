//! How many dials a pool wants to begin, and when: pure.

use std::time::Duration;

use super::KEEP;
use crate::flow::Moment;

/// The pause after a failed dial; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The refilling of one pool.
#[derive(Debug, Default)]
pub(super) struct Refill {
    warming: usize,
    /// The last pause; `None` after a success.
    pause: Option<Duration>,
    not_before: Moment,
}

impl Refill {
    /// Dials under way.
    pub(super) fn warming(&self) -> usize {
        self.warming
    }

    /// How many dials to begin now, with `idle` sockets in the pool. After a failure one at a
    /// time, until one succeeds.
    pub(super) fn wants(&self, idle: usize, now: Moment) -> usize {
        if now < self.not_before {
            return 0;
        }
        let most = if self.pause.is_some() { 1 } else { KEEP };
        let missing = KEEP.saturating_sub(idle + self.warming);
        missing.min(most.saturating_sub(self.warming))
    }

    /// A dial has begun.
    pub(super) fn begun(&mut self) {
        self.warming += 1;
    }

    /// A dial has succeeded.
    pub(super) fn made(&mut self) {
        self.warming = self.warming.saturating_sub(1);
        self.pause = None;
        self.not_before = Moment::default();
    }

    /// A dial has failed. Those that fail beside it, begun before the pause, do not prolong it.
    pub(super) fn failed(&mut self, now: Moment) {
        self.warming = self.warming.saturating_sub(1);
        if now < self.not_before {
            return;
        }
        let pause = self.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        self.pause = Some(pause);
        self.not_before = now.after(pause);
    }

    /// No place was free for a dial, or no address is known: that is no failure, but no reason to
    /// ask at once either.
    pub(super) fn put_off(&mut self, now: Moment) {
        self.not_before = self.not_before.max(now.after(FIRST_PAUSE));
    }

    /// Every dial under way was given up. What is known of the address is forgotten with them.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// How long nothing will be wanted; zero when something may be.
    pub(super) fn rest(&self, now: Moment) -> Duration {
        self.not_before.since(now)
    }
}
