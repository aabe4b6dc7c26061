//! The dial latency of a line: an exponentially weighted mean with α = 1/5 in whole
//! nanoseconds.
//!
//! Samples are pure TCP connect times of fresh dials that succeeded. Prewarm hits, probes,
//! failures and cancelled dials give none: a failure is not a latency, and a fast refusal must
//! never look like a fast line.

use std::time::Duration;

/// The mean; nothing until the first sample, which initialises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ewma(u64);

impl Ewma {
    /// Restores a mean; 0 is "never sampled".
    #[must_use]
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The mean in nanoseconds; 0 when there was no sample.
    #[must_use]
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// Takes a sample: `new = (4 · old + sample) / 5`. A sample of zero counts as 1 ns, since
    /// zero means "none".
    pub fn sample(&mut self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.0 = if self.0 == 0 {
            sample
        } else {
            let mean = (4 * u128::from(self.0) + u128::from(sample)) / 5;
            u64::try_from(mean).unwrap_or(u64::MAX).max(1)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b1_the_first_sample_initialises_and_later_ones_weigh_a_fifth() {
        let mut ewma = Ewma::default();
        assert_eq!(ewma.nanos(), 0);
        ewma.sample(Duration::from_nanos(1_000));
        assert_eq!(ewma.nanos(), 1_000);
        ewma.sample(Duration::from_nanos(2_003));
        assert_eq!(ewma.nanos(), (4 * 1_000 + 2_003) / 5);
    }

    #[test]
    fn b1_the_mean_neither_overflows_nor_falls_back_to_unknown() {
        let mut ewma = Ewma::default();
        ewma.sample(Duration::ZERO);
        assert_eq!(ewma.nanos(), 1);
        ewma.sample(Duration::ZERO);
        assert_eq!(ewma.nanos(), 1);
        ewma.sample(Duration::MAX);
        ewma.sample(Duration::MAX);
        assert!(ewma.nanos() > u64::MAX / 4);
    }
}
