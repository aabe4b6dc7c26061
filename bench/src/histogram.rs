//! Latencies in microseconds, counted in log-linear buckets.
//!
//! 64 buckets a power of two: a quantile read from it is at most 1.6 % above the true one.
//! Adding is two shifts and an increment, because it happens inside what is measured.

use serde::{Deserialize, Serialize};

const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
/// Enough for 2^40 µs; anything longer is counted in the last bucket.
const BUCKETS: usize = SUB * 36;

/// A histogram of microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

/// What is reported of a histogram; microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

fn bucket(value: u64) -> usize {
    let Some(log) = value.checked_ilog2().filter(|log| *log >= SUB_BITS) else {
        return usize::try_from(value).unwrap_or(0);
    };
    let shift = log - SUB_BITS;
    let within = usize::try_from((value >> shift) - SUB as u64).unwrap_or(0);
    (shift as usize + 1) * SUB + within
}

/// The largest value that is counted in a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = bucket / SUB - 1;
    ((bucket % SUB + SUB + 1) as u64)
        .checked_shl(u32::try_from(shift).unwrap_or(u32::MAX))
        .map_or(u64::MAX, |v| v - 1)
}

impl Histogram {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, largest: 0 }
    }

    /// Counts one value.
    pub(crate) fn add(&mut self, micros: u64) {
        self.counts[bucket(micros).min(BUCKETS - 1)] += 1;
        self.total += 1;
        self.largest = self.largest.max(micros);
    }

    /// Adds another one's counts.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
    }

    /// Values counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The value that `thousandths` of all values do not exceed; 0 when empty.
    pub(crate) fn quantile(&self, thousandths: u64) -> u64 {
        let wanted = (self.total * thousandths).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(index).min(self.largest);
            }
        }
        self.largest
    }

    /// The usual quantiles.
    pub(crate) fn quantiles(&self) -> Quantiles {
        Quantiles {
            p50: self.quantile(500),
            p90: self.quantile(900),
            p99: self.quantile(990),
            p999: self.quantile(999),
            max: self.largest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_two_percent() {
        let mut histogram = Histogram::new();
        (1..=100_000).for_each(|v| histogram.add(v));
        for (thousandths, want) in [(500, 50_000), (990, 99_000), (999, 99_900)] {
            let got = histogram.quantile(thousandths);
            assert!(got >= want && got <= want + want / 50, "{thousandths}: {got}");
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut last = 0;
        for value in 0..1_000_000 {
            let index = bucket(value);
            assert!(index == last || index == last + 1, "{value}");
            assert!(upper(index) >= value);
            last = index;
        }
    }

    #[test]
    fn merging_is_the_same_as_adding_everything() {
        let (mut a, mut b, mut all) = (Histogram::new(), Histogram::new(), Histogram::new());
        for value in [3, 900, 12_000, 7] {
            a.add(value);
            all.add(value);
        }
        for value in [1, u64::MAX] {
            b.add(value);
            all.add(value);
        }
        a.merge(&b);
        assert_eq!(a.quantiles(), all.quantiles());
        assert_eq!(a.total(), 6);
    }

    #[test]
    fn an_empty_histogram_reports_zeros() {
        assert_eq!(Histogram::new().quantiles(), Quantiles::default());
    }
}
