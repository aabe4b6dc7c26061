//! The log of a process, supervisor or worker: one JSON object a line on standard output and, if
//! configured, at the end of a file.
//!
//! Whoever logs only puts a line into a bounded queue; a thread for each sink writes. So a reader
//! that stops reading its pipe, or closes it, costs lines, which are counted and reported once
//! it takes lines again, and never a stalled supervisor or shard. The two sinks do not wait for
//! each other either.
//!
//! Field names are those of old Moto where it had them: `ruleName`, `remoteAddr`, `targetAddr`,
//! `decisionTime(ms)`, `boostCacheHit`. The line of a decision is at `debug`: formatting it costs
//! more than deciding.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::OnceLock;

use baton_config::model;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Registry, reload};

use crate::lines::Lines;

mod lines;
mod queue;

/// Where the lines of this process go.
static LINES: OnceLock<Lines> = OnceLock::new();

/// The log of this process; dropped, it is flushed.
#[derive(Debug)]
pub struct Log {
    level: reload::Handle<LevelFilter, Registry>,
}

/// Why a process has no log.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Standard output cannot be used, or there can be no thread that writes.
    #[error("cannot write a log to standard output: {0}")]
    Output(#[from] io::Error),
    /// It has one already.
    #[error("this process has a log already")]
    Started,
}

/// A log file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the log file {path}: {source}")]
pub struct LogFileError {
    path: String,
    source: io::Error,
}

impl Log {
    /// Starts the log of the process, at level `info`.
    ///
    /// # Errors
    /// When it cannot be, or is there already.
    pub fn start() -> Result<Self, StartError> {
        // Not `io::stdout()`: that one keeps what it could not write, and writes it later, torn.
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let lines = Lines::start(output)?;
        let (filter, level) = reload::Layer::new(LevelFilter::INFO);
        let format = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            // They would be told on standard error, at the cost of whoever logs.
            .log_internal_errors(false)
            .with_writer(lines.clone());
        let subscriber = Registry::default().with(filter).with(format);
        LINES.set(lines).map_err(|_| StartError::Started)?;
        tracing::subscriber::set_global_default(subscriber).map_err(|_| StartError::Started)?;
        Ok(Self { level })
    }

    /// From now on only lines of this level and above are written.
    pub fn set_level(&self, level: model::Level) {
        // Fails only when the subscriber is gone, and then there is nothing to set.
        let _gone = self.level.reload(filter(level));
    }

    /// Applies section `log`: the level, and a file that gets every later line as well. The file
    /// is for the life of the process; a later call with another one changes nothing.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn configure(&self, log: &model::Log) -> Result<(), LogFileError> {
        if let (Some(path), Some(lines)) = (&log.path, LINES.get()) {
            open(path)
                .and_then(|file| lines.also_to(file))
                .map_err(|source| LogFileError { path: path.display().to_string(), source })?;
        }
        self.set_level(log.level);
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        flush();
    }
}

/// Has panics written to the log. The standard hook writes to standard error, which may be the
/// very pipe nobody reads.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a fault of Baton")));
}

/// Waits until the lines of this process have been written, but at most half a second for each
/// sink. For the moments before the process ends or becomes another program.
pub fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush();
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    // Opened for writing alone, a FIFO that nobody reads would have us wait for a reader. One that
    // reads comes and goes as it likes; the sink's thread waits for it, and nobody else.
    if std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()) {
        options.read(true);
    }
    options.open(path)
}

fn filter(level: model::Level) -> LevelFilter {
    match level {
        model::Level::Debug => LevelFilter::DEBUG,
        model::Level::Info => LevelFilter::INFO,
        model::Level::Warn => LevelFilter::WARN,
        model::Level::Error => LevelFilter::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_fifo_that_nobody_reads_is_opened_and_keeps_its_lines_for_who_comes() {
        let path = std::env::temp_dir().join(format!("baton-fifo-{}", std::process::id()));
        let _former = std::fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let mut written = open(&path).unwrap();
        written.write_all(b"a line").unwrap();
        let mut line = [0; 6];
        let mut reader = File::open(&path).unwrap();
        reader.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"a line");
        // A reader that has gone leaves no broken pipe behind.
        drop(reader);
        written.write_all(b"another").unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
