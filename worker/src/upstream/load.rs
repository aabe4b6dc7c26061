//! What the `latency` strategy weighs: `max(EWMA decayed since the last sample, last sample)`.
//!
//! Two trackers of this kind make a line's score: the connect time, and the time from the
//! client's first forwarded byte to the upstream's first (a kernel completes handshakes for a
//! server that has stalled). Their sum is weighed, so the first is known before the second
//! arrives.
//!
//! The peak makes one slow answer count at once, where a mean would need many. A failed dial is
//! a sample too, of 1 s × the failures in a row: a target that fails fast must not look fast.
//!
//! Limit: a peak alone would exclude a line for ever after one bad sample, since only being
//! chosen gives it a better one. So the last sample counts in full for [`HOLD`] and from then
//! on decays like the mean; with 1000 ms against 50 ms a line is tried again after about 35 s.

use std::time::Duration;

use super::ewma::Ewma;
use crate::flow::Moment;

/// How long the last sample counts in full.
pub const HOLD: Duration = Duration::from_secs(10);
/// The time in which an aged value falls to 1/e.
pub const DECAY: Duration = Duration::from_secs(10);
/// What one failure weighs; the second in a row weighs twice that, and so on.
pub const PENALTY: Duration = Duration::from_secs(1);
/// Failures in a row beyond this weigh no more.
const PENALTY_CAP: u32 = 60;

/// One tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Mean of all samples.
    pub ewma: Ewma,
    /// The last sample in nanoseconds; 0 when there was none.
    pub last: u64,
    /// When the last sample was taken.
    pub at: Moment,
}

impl Load {
    /// Takes a sample.
    pub fn sample(&mut self, sample: Duration, now: Moment) {
        self.ewma.sample(sample);
        self.last = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.at = now;
    }

    /// Takes the sample of a failure, the `streak`-th in a row.
    pub fn penalise(&mut self, streak: u32, now: Moment) {
        self.sample(PENALTY * streak.clamp(1, PENALTY_CAP), now);
    }

    /// The weight at `now` in nanoseconds; `None` when nothing was ever sampled.
    #[must_use]
    pub fn weight(&self, now: Moment) -> Option<u64> {
        if self.last == 0 {
            return None;
        }
        let age = now.since(self.at);
        let mean = decay(self.ewma.nanos(), age);
        let last = decay(self.last, age.saturating_sub(HOLD));
        Some(mean.max(last).max(1))
    }
}

/// `nanos · e^(−age / DECAY)`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a weight needs no more than 52 bits, and the result is never negative"
)]
fn decay(nanos: u64, age: Duration) -> u64 {
    if age < Duration::from_millis(1) {
        return nanos;
    }
    (nanos as f64 * (-age.as_secs_f64() / DECAY.as_secs_f64()).exp()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn one_slow_sample_counts_in_full_at_once_and_for_the_hold_time() {
        let mut load = Load::default();
        for _ in 0..50 {
            load.sample(Duration::from_millis(50), Moment(0));
        }
        load.sample(Duration::from_millis(1000), Moment(0));
        assert_eq!(load.weight(Moment(0)), Some(1000 * MS));
        assert_eq!(load.weight(Moment(0).after(HOLD)), Some(1000 * MS));
        assert!(load.weight(Moment(0).after(HOLD * 4)).unwrap() < 60 * MS);
    }

    #[test]
    fn the_mean_speaks_when_the_last_sample_was_lucky() {
        let mut load = Load::default();
        load.sample(Duration::from_millis(100), Moment(0));
        load.sample(Duration::from_millis(1), Moment(0));
        assert_eq!(load.weight(Moment(0)), Some((4 * 100 + 1) * MS / 5));
    }

    #[test]
    fn a_failure_weighs_a_second_for_each_in_a_row() {
        let mut load = Load::default();
        load.penalise(3, Moment(7));
        assert_eq!(load.weight(Moment(7)), Some(3000 * MS));
        load.penalise(u32::MAX, Moment(8));
        assert_eq!(load.weight(Moment(8)), Some(60_000 * MS));
    }

    #[test]
    fn nothing_sampled_weighs_nothing() {
        assert_eq!(Load::default().weight(Moment(5)), None);
    }
}
