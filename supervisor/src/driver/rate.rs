//! How many messages of a worker are taken.
//!
//! A worker says something once a second, and answers what it is told. One that says much more is
//! broken or hostile, and must not keep the supervisor from its other work.

use std::cell::Cell;

use crate::event::Millis;

/// Messages taken at once.
const BURST: u64 = 256;
/// Unasked messages a second in the long run.
const RATE: u64 = 64;
/// A message to a worker is answered by at most this many (a refusal of the message and one of
/// what it asked for).
const ANSWERS: u64 = 2;

/// A token bucket, counted in thousandths of a message; shared by who reads and who writes.
#[derive(Debug)]
pub(crate) struct Rate {
    tokens: Cell<u64>,
    at: Cell<Millis>,
}

impl Rate {
    pub(crate) fn new(now: Millis) -> Self {
        Self { tokens: Cell::new(BURST * 1000), at: Cell::new(now) }
    }

    /// A message was sent: its answers are no flood, however many ask.
    pub(crate) fn expect_answers(&self) {
        self.earn(ANSWERS * 1000);
    }

    /// Takes one message in; false when it is one too many.
    pub(crate) fn take(&self, now: Millis) -> bool {
        self.earn(now.0.saturating_sub(self.at.get().0).saturating_mul(RATE));
        self.at.set(self.at.get().max(now));
        match self.tokens.get().checked_sub(1000) {
            Some(left) => {
                self.tokens.set(left);
                true
            }
            None => false,
        }
    }

    fn earn(&self, tokens: u64) {
        self.tokens.set(self.tokens.get().saturating_add(tokens).min(BURST * 1000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_follows_is_limited_to_the_rate() {
        let rate = Rate::new(Millis(0));
        assert_eq!((0..300).filter(|_| rate.take(Millis(0))).count(), 256);
        assert_eq!((0..300).filter(|_| rate.take(Millis(1000))).count(), 64);
    }

    #[test]
    fn a_worker_that_pulses_once_a_second_is_never_limited() {
        let rate = Rate::new(Millis(0));
        assert!((0..100_000).all(|second| rate.take(Millis(second * 1000))));
    }

    #[test]
    fn answers_are_never_limited() {
        let rate = Rate::new(Millis(0));
        assert!((0..10_000).all(|_| {
            rate.expect_answers();
            rate.take(Millis(0)) && rate.take(Millis(0))
        }));
    }

    #[test]
    fn a_clock_that_stands_still_or_jumps_back_gives_nothing() {
        let rate = Rate::new(Millis(5000));
        assert_eq!((0..300).filter(|_| rate.take(Millis(0))).count(), 256);
        assert!(!rate.take(Millis(5000)));
    }
}
