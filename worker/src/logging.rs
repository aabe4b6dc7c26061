//! Logs: one JSON object a line on standard output and, if configured, at the end of a file.
//!
//! Written by a thread of its own behind a bounded queue: a reader that stops reading its pipe
//! costs lines (they are counted), never a stalled shard. The level is set when the first
//! configuration has been read; until then `info` applies.
//!
//! Field names are those of old Moto where it had them: `ruleName`, `remoteAddr`, `targetAddr`,
//! `decisionTime(ms)`, `boostCacheHit`. The line of a decision is at `debug`: formatting it costs more than deciding.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use baton_config::model::{Level, Log};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;

use crate::logging::writer::LineQueue;

mod limiter;
mod writer;

pub(crate) use limiter::Limiter;

/// The process's log, to be configured once the configuration is known.
pub(crate) struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
    queue: LineQueue,
}

/// A log file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the log file {path}: {source}")]
pub(crate) struct LogFileError {
    path: String,
    source: io::Error,
}

impl Logging {
    /// Makes the process-wide log. `None` when the process already has one, as in a test.
    pub(crate) fn start() -> Option<Self> {
        let queue = LineQueue::start(Box::new(io::stdout()))?;
        let (level, handle) = reload::Layer::new(LevelFilter::INFO);
        let lines = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(queue.clone());
        let subscriber = Registry::default().with(level).with(lines);
        tracing::subscriber::set_global_default(subscriber).ok()?;
        Some(Self { level: handle, queue })
    }

    /// Applies section `log` of the configuration that this process serves.
    pub(crate) fn configure(&self, log: &Log) -> Result<(), LogFileError> {
        if let Some(path) = &log.path {
            self.queue.also_to(Box::new(open(path)?));
        }
        // Fails only when the subscriber is gone, and then there is nothing to set.
        let _gone = self.level.reload(filter(log.level));
        Ok(())
    }

    /// Writes what is queued; called before the process exits.
    pub(crate) fn flush(&self) {
        self.queue.flush();
    }
}

fn open(path: &Path) -> Result<std::fs::File, LogFileError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|source| LogFileError { path: path.display().to_string(), source })
}

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warn => LevelFilter::WARN,
        Level::Error => LevelFilter::ERROR,
    }
}
