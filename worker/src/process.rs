//! What all threads of a worker share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use baton_metrics::Lane;
use tokio::sync::mpsc;

use crate::accept::admission::ProcessCount;
use crate::dial::{Bulkhead, Limits};
use crate::generation::Generation;
use crate::shard::Load;

/// The worker process, seen from a shard.
pub(crate) struct Process {
    /// The generation that new connections get; `None` before the first activation.
    pub(crate) published: ArcSwapOption<Generation>,
    /// Live client connections.
    pub(crate) count: Arc<ProcessCount>,
    /// Live connections of each shard.
    pub(crate) loads: Box<[Load]>,
    /// Where each shard counts.
    pub(crate) lanes: Box<[Lane]>,
    /// Dial places, those of health checks among them.
    pub(crate) bulkhead: Arc<Bulkhead>,
    lane: Lane,
    /// It has been said that the connection table is full.
    table_full: AtomicBool,
    /// Where a shard reports that it cannot go on.
    broken: mpsc::UnboundedSender<String>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("loads", &self.loads).finish_non_exhaustive()
    }
}

impl Process {
    /// A process with this many shards that counts in `lane`; the receiver hears what is broken beyond repair.
    pub(crate) fn new(shards: usize, lane: &Lane) -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (broken, reports) = mpsc::unbounded_channel();
        let process = Self {
            published: ArcSwapOption::empty(),
            count: Arc::default(),
            lane: lane.clone(),
            lanes: lane.shards(shards).into(),
            bulkhead: Bulkhead::new(Limits::default()),
            loads: (0..shards).map(|_| Load::default()).collect(),
            table_full: AtomicBool::new(false),
            broken,
        };
        (Arc::new(process), reports)
    }

    /// Where the process itself counts: the first shard's lane.
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Says once that a connection has no record.
    pub(crate) fn tell_table_full(&self) {
        if !self.table_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the connection table is full: further connections are served, and end with this \
                 process should it be killed"
            );
        }
    }

    /// Reports something that only a new process can repair.
    pub(crate) fn report_broken(&self, problem: String) {
        // Without a receiver the process is ending already.
        let _ending = self.broken.send(problem);
    }
}
