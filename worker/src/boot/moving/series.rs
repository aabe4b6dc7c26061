//! What is counted of moves and recoveries.

use baton_metrics::{Counter, Histogram, Lane, catalog};

use crate::migrate::Loss;

/// The series of the process.
#[derive(Debug, Clone)]
pub(in crate::boot) struct MoveSeries {
    pub(super) moved: Counter,
    pub(super) kept: Counter,
    pub(super) pause: Histogram,
    pub(super) resumed: Counter,
    /// Sockets without a record.
    pub(super) reset: Counter,
    /// In the order of [`Loss::ALL`].
    lost: [Counter; Loss::ALL.len()],
}

impl MoveSeries {
    pub(in crate::boot) fn new(lane: &Lane) -> Self {
        let moved = |result| lane.counter(&catalog::MIGRATED_CONNECTIONS, &[("result", result)]);
        let recovered =
            |result| lane.counter(&catalog::RECOVERED_CONNECTIONS, &[("result", result)]);
        Self {
            moved: moved("moved"),
            kept: moved("kept"),
            pause: lane.histogram(&catalog::MIGRATION_PAUSE, &[]),
            resumed: recovered("resumed"),
            reset: recovered("reset"),
            lost: Loss::ALL.map(|loss| recovered(loss.as_str())),
        }
    }

    /// The counter of connections lost for this reason.
    pub(super) fn lost(&self, loss: Loss) -> &Counter {
        &self.lost[loss as usize]
    }
}
