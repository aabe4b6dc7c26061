//! Failure marks: what excludes a target of a selector.
//!
//! Failures are counted until a success; from `max_fails` on, each failure marks the target for
//! `fail_timeout` counted from that failure. The end of a mark does not clear the count: after
//! it one more failure marks again at once, and only a success restores the full allowance.

use std::time::Duration;

use crate::flow::Moment;

/// When a target counts as failed: the selector's values, or the target's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkPolicy {
    /// Failures in a row that mark; at least 1.
    pub max_fails: u16,
    /// How long a mark lasts from the last failure.
    pub fail_timeout: Duration,
}

/// The count and the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// Failures since the last success.
    pub fails: u32,
    /// When the mark ends; the start of time when there is none.
    pub until: Moment,
}

impl Marks {
    /// Counts a failure. True when it marks the target.
    pub fn failed(&mut self, policy: MarkPolicy, now: Moment) -> bool {
        self.fails = self.fails.saturating_add(1);
        let marks = self.fails >= u32::from(policy.max_fails.max(1));
        if marks {
            self.until = now.after(policy.fail_timeout);
        }
        marks
    }

    /// A success clears count and mark.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Whether the target is marked at `now`.
    #[must_use]
    pub fn marked(&self, now: Moment) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: MarkPolicy = MarkPolicy { max_fails: 2, fail_timeout: Duration::from_secs(10) };

    fn second(s: u64) -> Moment {
        Moment(s * 1_000_000_000)
    }

    #[test]
    fn c19_reaching_max_fails_marks_for_the_fail_timeout() {
        let mut marks = Marks::default();
        assert!(!marks.failed(POLICY, second(1)));
        assert!(!marks.marked(second(1)));
        assert!(marks.failed(POLICY, second(2)));
        assert!(marks.marked(second(11)));
        assert!(!marks.marked(second(12)));
    }

    #[test]
    fn c20_the_interval_counts_from_the_last_failure() {
        let mut marks = Marks::default();
        marks.failed(POLICY, second(0));
        marks.failed(POLICY, second(1));
        marks.failed(POLICY, second(9));
        assert!(marks.marked(second(18)));
        assert!(!marks.marked(second(19)));
    }

    #[test]
    fn c21_after_expiry_one_more_failure_marks_and_one_success_restores_the_allowance() {
        let mut marks = Marks::default();
        marks.failed(POLICY, second(0));
        marks.failed(POLICY, second(0));
        assert!(!marks.marked(second(10)));
        assert!(marks.failed(POLICY, second(20)), "the count survived the mark");
        marks.succeeded();
        assert!(!marks.marked(second(21)));
        assert!(!marks.failed(POLICY, second(21)));
    }
}
