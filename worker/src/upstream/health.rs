//! Active health: the verdict over probe results, and when to probe.
//!
//! Pure; the probing itself lives at the edge. Probes change nothing but this verdict: they
//! feed neither the latency mean nor the breaker, because a probe is not a client.

use std::time::Duration;

/// When a verdict changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Failures in a row that exclude; at least 1.
    pub failure: u8,
    /// Successes in a row that readmit; at least 1.
    pub success: u8,
}

/// The verdict so far. A line nobody has probed is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Whether the line is excluded.
    pub unhealthy: bool,
    /// Results in a row that speak against the present verdict.
    pub against: u8,
}

impl Verdict {
    /// Takes the result of a probe. True when the verdict changed.
    pub fn probed(&mut self, passed: bool, thresholds: Thresholds) -> bool {
        if passed != self.unhealthy {
            self.against = 0;
            return false;
        }
        self.against = self.against.saturating_add(1);
        let needed = if self.unhealthy { thresholds.success } else { thresholds.failure };
        let changes = self.against >= needed.max(1);
        if changes {
            *self = Self { unhealthy: !self.unhealthy, against: 0 };
        }
        changes
    }
}

/// How long to wait before the first probe: 0 – 10 % of the interval, so that the probes of a
/// freshly loaded configuration do not all leave at once.
#[must_use]
pub fn first_delay(interval: Duration, rng: &mut fastrand::Rng) -> Duration {
    interval.mul_f64(rng.f64() * 0.1)
}

/// How long to wait between two probes: the interval ± 10 %.
#[must_use]
pub fn next_delay(interval: Duration, rng: &mut fastrand::Rng) -> Duration {
    interval.mul_f64(0.9 + rng.f64() * 0.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: Thresholds = Thresholds { failure: 3, success: 2 };

    #[test]
    fn a109_the_failure_threshold_excludes_and_the_success_threshold_readmits() {
        let mut verdict = Verdict::default();
        let mut feed = |results: &[bool]| {
            for &passed in results {
                verdict.probed(passed, THRESHOLDS);
            }
            verdict.unhealthy
        };
        assert!(!feed(&[false, false]), "usable until the threshold is reached");
        assert!(!feed(&[true, false, false]), "only failures in a row count");
        assert!(feed(&[false]));
        assert!(feed(&[true, false, true]), "only successes in a row count");
        assert!(!feed(&[true]));
    }

    #[test]
    fn a111_probes_start_within_a_tenth_and_repeat_within_a_tenth_of_the_interval() {
        let interval = Duration::from_secs(10);
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut low, mut high) = (Duration::MAX, Duration::ZERO);
        for _ in 0..2000 {
            assert!(first_delay(interval, &mut rng) <= Duration::from_secs(1));
            let next = next_delay(interval, &mut rng);
            low = low.min(next);
            high = high.max(next);
        }
        assert!(low >= Duration::from_secs(9) && low < Duration::from_millis(9_100));
        assert!(high <= Duration::from_secs(11) && high > Duration::from_millis(10_900));
    }
}
