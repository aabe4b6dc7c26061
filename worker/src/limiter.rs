//! At most one line a second of a kind, with a count of those left out: pure.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::flow::Moment;

const SPACING_NANOS: u64 = 1_000_000_000;

/// One kind of line. Shared by shards; a race between two of them costs at most one more line.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    /// The moment from which the next line may be written; 0 before the first.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl Limiter {
    /// Whether the line may be written now, and how many were left out since the last one.
    pub(crate) fn pass(&self, now: Moment) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let may = now.0 >= next
            && self
                .next
                .compare_exchange(
                    next,
                    now.0.saturating_add(SPACING_NANOS),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if may {
            Some(self.left_out.swap(0, Ordering::Relaxed))
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_line_a_second_tells_how_many_were_left_out() {
        let limiter = Limiter::default();
        let start = Moment(5);
        assert_eq!(limiter.pass(start), Some(0));
        for ms in [0, 1, 999] {
            assert_eq!(limiter.pass(start.after(Duration::from_millis(ms))), None);
        }
        assert_eq!(limiter.pass(start.after(Duration::from_secs(1))), Some(3));
        assert_eq!(limiter.pass(start.after(Duration::from_secs(9))), Some(0));
    }
}
