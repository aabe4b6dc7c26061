//! What became of the load since the last event.

use std::cell::Cell;
use std::time::Duration;

/// Counts of one step; single-threaded, shared by all tasks of the load.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// New connections that were served.
    pub(crate) served: Cell<u64>,
    /// New connections that were not let in.
    pub(crate) refused: Cell<u64>,
    /// New connections that ended before their answer.
    pub(crate) reset: Cell<u64>,
    /// Established connections that broke.
    pub(crate) broken: Cell<u64>,
    /// Answers and streams with a wrong byte.
    pub(crate) corrupted: Cell<u64>,
    /// Frames that came back on established connections.
    pub(crate) frames: Cell<u64>,
    /// Longest time a new connection waited for its answer.
    pub(crate) longest_connect: Cell<Duration>,
    /// Longest time an established connection waited for a frame.
    pub(crate) longest_stall: Cell<Duration>,
}

impl Ledger {
    /// Starts a new step.
    pub(crate) fn reset(&self) {
        for count in
            [&self.served, &self.refused, &self.reset, &self.broken, &self.corrupted, &self.frames]
        {
            count.set(0);
        }
        self.longest_connect.set(Duration::ZERO);
        self.longest_stall.set(Duration::ZERO);
    }
}

/// Adds one.
pub(crate) fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

/// Keeps the longer one.
pub(crate) fn longest(cell: &Cell<Duration>, span: Duration) {
    cell.set(cell.get().max(span));
}
