//! What all threads of a worker share.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::mpsc;

use crate::accept::admission::ProcessCount;
use crate::generation::Generation;
use crate::shard::Load;

/// The worker process, seen from a shard.
#[derive(Debug)]
pub(crate) struct Process {
    /// The generation that new connections get; `None` before the first activation.
    pub(crate) published: ArcSwapOption<Generation>,
    /// Live client connections.
    pub(crate) count: Arc<ProcessCount>,
    /// Live connections of each shard.
    pub(crate) loads: Box<[Load]>,
    /// Where a shard reports that it cannot go on.
    broken: mpsc::UnboundedSender<String>,
}

impl Process {
    /// A process with this many shards; the receiver hears what is broken beyond repair.
    pub(crate) fn new(shards: usize) -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (broken, reports) = mpsc::unbounded_channel();
        let process = Self {
            published: ArcSwapOption::empty(),
            count: Arc::default(),
            loads: (0..shards).map(|_| Load::default()).collect(),
            broken,
        };
        (Arc::new(process), reports)
    }

    /// Reports something that only a new process can repair.
    pub(crate) fn report_broken(&self, problem: String) {
        // Without a receiver the process is ending already.
        let _ending = self.broken.send(problem);
    }
}
