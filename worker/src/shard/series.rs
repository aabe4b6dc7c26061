//! What a shard counts that belongs to no rule.

use baton_metrics::{Counter, Gauge, Histogram, Lane, catalog};

/// A shard's own series.
#[derive(Debug)]
pub(crate) struct ShardSeries {
    /// Tasks alive on its runtime.
    pub(super) tasks: Gauge,
    /// Dials refused because the target's places were taken.
    pub(crate) target_full: Counter,
    /// Dials refused because the process's places were taken.
    pub(crate) process_full: Counter,
    /// From asking for a dial place to having it.
    pub(crate) waited: Histogram,
}

impl ShardSeries {
    /// The series in a shard's lane.
    pub(super) fn new(lane: &Lane) -> Self {
        let refused = |reason| {
            let labels = [("class", "foreground"), ("reason", reason)];
            lane.counter(&catalog::DIAL_BULKHEAD_REJECTED, &labels)
        };
        Self {
            tasks: lane.gauge(&catalog::TASKS, &[]),
            target_full: refused("target_full"),
            process_full: refused("process_full"),
            waited: lane.histogram(&catalog::DIAL_BULKHEAD_WAIT, &[]),
        }
    }
}
