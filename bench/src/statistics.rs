//! Medians and ratios: what is said about several rounds.

use serde::{Deserialize, Serialize};

/// The middle of several rounds, with their range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

/// Which of two values is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    /// A rate.
    Higher,
    /// A cost or a latency.
    Lower,
    /// A fact, never compared.
    Neither,
}

/// Median and range; `None` of nothing. Values that are not numbers are left out.
pub(crate) fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Some(Spread { median, low, high, rounds: sorted.len() })
}

/// The best of the peers' medians, with its index. A value of zero or below is a failed or
/// empty measurement and cannot be the best.
pub(crate) fn best(better: Better, medians: &[f64]) -> Option<(usize, f64)> {
    let usable = medians.iter().copied().enumerate().filter(|(_, v)| *v > 0.0);
    match better {
        Better::Higher => usable.max_by(|a, b| a.1.total_cmp(&b.1)),
        Better::Lower => usable.min_by(|a, b| a.1.total_cmp(&b.1)),
        Better::Neither => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_even_and_odd_counts() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]).map(|s| s.median), Some(2.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]).map(|s| s.median), Some(2.5));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn one_wild_round_moves_the_range_and_not_the_median() {
        let s = spread(&[1.0, 1.1, 0.9, 50.0, f64::NAN]).unwrap();
        assert_eq!((s.low, s.high, s.rounds), (0.9, 50.0, 4));
        assert!(s.median < 1.2);
    }

    #[test]
    fn the_best_depends_on_what_is_better_and_skips_failures() {
        let medians = [0.0, 2.0, 1.0];
        assert_eq!(best(Better::Higher, &medians), Some((1, 2.0)));
        assert_eq!(best(Better::Lower, &medians), Some((2, 1.0)));
        assert_eq!(best(Better::Neither, &medians), None);
        assert_eq!(best(Better::Lower, &[0.0]), None);
    }
}
