//! As many verified bytes as go through.

use std::io;
use std::time::Instant;

use super::session::{self, Outcome};
use super::{Load, on_threads};
use crate::report::{Report, Tally};
use crate::wire::{Direction, Hello};

/// What is special about this mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bulk {
    pub(crate) direction: Direction,
    /// Payload of each write, taken in turn.
    pub(crate) writes: [u32; 2],
}

/// Read size of an end of a bulk session: large, so that the ends cost little.
pub(crate) const BUFFER: usize = 128 * 1024;

/// Runs the mode.
pub(crate) fn run(load: &Load, bulk: Bulk) -> io::Result<Report> {
    let started = Instant::now();
    let end = started + load.duration;
    let target = load.target;
    let outcomes = on_threads(load.threads, load.connections, |index| {
        let hello = Hello {
            direction: bulk.direction,
            writes: bulk.writes,
            interval_us: 0,
            seed: seed(index),
        };
        session::run(target, hello, started, end, BUFFER)
    })?;
    let mut report = summarize("bulk", &outcomes, started);
    report.longest_stall_ms = None; // of sessions without a pace a silence says nothing
    Ok(report)
}

/// A seed that differs between connections and between runs.
pub(super) fn seed(index: usize) -> u64 {
    u64::from(std::process::id()) * 1_000_003 + index as u64 * 7_919
}

/// Adds sessions up.
pub(super) fn summarize(mode: &str, outcomes: &[Outcome], started: Instant) -> Report {
    let seconds = started.elapsed().as_secs_f64();
    let mut errors = Tally::default();
    let mut report = Report {
        mode: mode.to_owned(),
        connections: outcomes.len() as u64,
        seconds,
        ..Report::default()
    };
    let mut longest_us = 0;
    for outcome in outcomes {
        report.up_bytes += outcome.up;
        report.down_bytes += outcome.down;
        report.corrupt += outcome.corrupt;
        longest_us = longest_us.max(outcome.gap_us);
        match outcome.failure {
            None => report.done += 1,
            Some((failure, at)) => {
                report.cut += u64::from(outcome.connected);
                errors.add(&failure, at);
            }
        }
    }
    report.gib_per_second = report.gib() / seconds;
    report.longest_stall_ms = Some(longest_us as f64 / 1000.0);
    report.errors = errors;
    report
}
