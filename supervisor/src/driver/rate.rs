//! How many messages of a worker are taken.
//!
//! A worker says something once a second and a handful of things a transition. One that floods
//! is broken or hostile, and must not keep the supervisor from its other work.

use crate::event::Millis;

/// Messages taken at once.
const BURST: u64 = 256;
/// Messages a second in the long run.
const RATE: u64 = 64;

/// A token bucket, counted in thousandths of a message.
#[derive(Debug)]
pub(crate) struct Rate {
    tokens: u64,
    at: Millis,
}

impl Rate {
    pub(crate) fn new(now: Millis) -> Self {
        Self { tokens: BURST * 1000, at: now }
    }

    /// Takes one message in; false when it is one too many.
    pub(crate) fn take(&mut self, now: Millis) -> bool {
        let earned = now.0.saturating_sub(self.at.0).saturating_mul(RATE);
        self.tokens = self.tokens.saturating_add(earned).min(BURST * 1000);
        self.at = self.at.max(now);
        match self.tokens.checked_sub(1000) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_follows_is_limited_to_the_rate() {
        let mut rate = Rate::new(Millis(0));
        assert_eq!((0..300).filter(|_| rate.take(Millis(0))).count(), 256);
        assert_eq!((0..300).filter(|_| rate.take(Millis(1000))).count(), 64);
    }

    #[test]
    fn a_worker_that_pulses_once_a_second_is_never_limited() {
        let mut rate = Rate::new(Millis(0));
        assert!((0..100_000).all(|second| rate.take(Millis(second * 1000))));
    }

    #[test]
    fn a_clock_that_stands_still_or_jumps_back_gives_nothing() {
        let mut rate = Rate::new(Millis(5000));
        assert_eq!((0..300).filter(|_| rate.take(Millis(0))).count(), 256);
        assert!(!rate.take(Millis(5000)));
    }
}
