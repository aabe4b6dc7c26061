//! How long to wait before a dead worker is replaced.
//!
//! The first replacement starts at once: a single crash should cost nothing but the crash.
//! Then 100 ms, doubling to 5 s, so that a worker that cannot live neither burns a core nor
//! fills the log, while the listeners stay open and clients wait in their queues.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::Millis;

/// The wait after the second failure.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait: short enough that a repaired cause is noticed while an operator watches.
const LONGEST: Duration = Duration::from_secs(5);
/// A worker that served this long has proved itself; earlier failures are forgotten.
const HEALTHY: Duration = Duration::from_secs(60);
/// This many failures without [`HEALTHY`] in between are a crash loop.
const LOOP: u32 = 3;

/// Consecutive failures and what follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Backoff {
    failures: u32,
    serving_since: Option<Millis>,
}

impl Backoff {
    /// A worker serves from `now` on.
    pub(crate) fn serving(&mut self, now: Millis) {
        self.serving_since = Some(now);
    }

    /// Nobody serves any more (or still): the moment of the next attempt.
    pub(crate) fn failed(&mut self, now: Millis) -> Millis {
        if self.serving_since.take().is_some_and(|since| now.since(since) >= HEALTHY) {
            self.failures = 0;
        }
        let wait = match self.failures {
            0 => Duration::ZERO,
            n => FIRST.saturating_mul(1 << (n - 1).min(16)).min(LONGEST),
        };
        self.failures = self.failures.saturating_add(1);
        now.after(wait)
    }

    /// Failures since a worker last proved itself.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether this is more than bad luck.
    pub(crate) fn is_loop(&self) -> bool {
        self.failures >= LOOP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(backoff: &mut Backoff, n: usize) -> Vec<u64> {
        (0..n).map(|_| backoff.failed(Millis(1000)).0 - 1000).collect()
    }

    #[test]
    fn the_first_replacement_is_immediate_then_waits_double_to_five_seconds() {
        let mut backoff = Backoff::default();
        assert_eq!(waits(&mut backoff, 9), [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn a_minute_of_service_forgets_the_failures() {
        let mut backoff = Backoff::default();
        waits(&mut backoff, 4);
        assert!(backoff.is_loop());
        backoff.serving(Millis(10_000));
        assert_eq!(backoff.failed(Millis(70_000)), Millis(70_000));
        assert!(!backoff.is_loop());
    }

    #[test]
    fn less_than_a_minute_of_service_forgets_nothing() {
        let mut backoff = Backoff::default();
        waits(&mut backoff, 4);
        backoff.serving(Millis(10_000));
        assert_eq!(backoff.failed(Millis(69_999)), Millis(70_799));
    }

    #[test]
    fn the_wait_stays_bounded_however_many_failures_there_are() {
        let mut backoff = Backoff { failures: u32::MAX, serving_since: None };
        assert_eq!(backoff.failed(Millis(0)), Millis(5000));
        assert_eq!(backoff.failures(), u32::MAX);
    }
}
