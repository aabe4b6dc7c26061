//! What a line knows.

use std::time::Duration;

use super::Gate;
use crate::flow::Moment;
use crate::upstream::breaker::Breaker;
use crate::upstream::ewma::Ewma;
use crate::upstream::health::Verdict;
use crate::upstream::load::Load;
use crate::upstream::marks::Marks;

/// The state proper, behind the line's lock.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Core {
    pub(in crate::upstream) ewma: Ewma,
    pub(in crate::upstream) sample_at: Moment,
    pub(in crate::upstream) breaker: Breaker,
    pub(in crate::upstream) marks: Marks,
    pub(in crate::upstream) health: Verdict,
    pub(in crate::upstream) connect_load: Load,
    pub(in crate::upstream) first_byte_load: Load,
}

impl Core {
    /// The connect time of a fresh dial.
    pub(super) fn take_sample(&mut self, connect: Duration, now: Moment) {
        self.ewma.sample(connect);
        self.sample_at = now;
        self.connect_load.sample(connect, now);
    }

    /// Failures in a row, as the gate counts them.
    pub(in crate::upstream) fn streak(&self, gate: Gate) -> u32 {
        match gate {
            Gate::Breaker => self.breaker.dial_streak().max(self.breaker.attributable_streak()),
            Gate::Marks(_) => self.marks.fails,
        }
    }
}
