//! What a running load notices of an upgrade or a reload.
//!
//! Two loads at once: streams that send a small verified frame each way every 20 ms, and new
//! connections at a steady rate. In the middle a command is run. Reported are streams cut,
//! new connections refused or reset, wrong bytes, and the longest silence any stream saw; the
//! pace of the frames is the floor of that figure.

use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::bulk::{seed, summarize};
use super::churn;
use super::session;
use super::{Load, Pace, on_threads};
use crate::report::{Report, Triggered};
use crate::wire::{Direction, Hello};

/// Pause between two frames of a stream.
const INTERVAL_US: u32 = 20_000;
/// Payload of those frames.
const FRAME: u32 = 240;
/// Slots that share the rate of new connections.
const SLOTS: usize = 16;

/// What is special about this mode.
#[derive(Debug, Clone)]
pub(crate) struct Upgrade {
    /// Run by `sh -c`; empty for none.
    pub(crate) trigger: String,
    /// When, since the start.
    pub(crate) at: Duration,
    /// New connections a second.
    pub(crate) rate: f64,
}

enum Half {
    Stream(session::Outcome),
    Storm(churn::Seen),
}

/// Runs the mode; `load.connections` is the number of streams.
pub(crate) fn run(load: &Load, upgrade: &Upgrade) -> io::Result<Report> {
    let started = Instant::now();
    let (target, end, streams) = (load.target, started + load.duration, load.connections);
    let jobs = streams + SLOTS;
    let (halves, trigger) = thread::scope(|scope| {
        let trigger = scope.spawn(|| pull(upgrade, started));
        let rate = upgrade.rate;
        let halves = on_threads(load.threads, jobs, |job| async move {
            if job < streams {
                let hello = Hello {
                    direction: Direction::Both,
                    writes: [FRAME; 2],
                    interval_us: INTERVAL_US,
                    seed: seed(job),
                };
                Half::Stream(session::run(target, hello, started, end, 4096).await)
            } else {
                let slot = job - streams;
                let pace = Pace::new(started, rate, SLOTS, slot);
                Half::Storm(churn::slot(target, 64, slot, pace, started, end).await)
            }
        });
        let pulled = trigger.join();
        (halves, pulled.map_err(|_| io::Error::other("the trigger's thread panicked")))
    });
    let (mut outcomes, mut seen) = (Vec::new(), Vec::new());
    for half in halves? {
        match half {
            Half::Stream(outcome) => outcomes.push(outcome),
            Half::Storm(one) => seen.push(one),
        }
    }
    let storm = churn::summarize("storm", SLOTS, seen, started);
    let mut report = summarize("upgrade", &outcomes, started);
    report.per_second = storm.per_second;
    report.latency_us = storm.latency_us;
    report.corrupt += storm.corrupt;
    report.errors.merge(storm.errors);
    report.trigger = trigger??;
    Ok(report)
}

/// Waits for its time and runs the trigger.
fn pull(upgrade: &Upgrade, started: Instant) -> io::Result<Option<Triggered>> {
    if upgrade.trigger.is_empty() {
        return Ok(None);
    }
    thread::sleep(upgrade.at.saturating_sub(started.elapsed()));
    let began = Instant::now();
    let done = Command::new("sh").args(["-c", &upgrade.trigger]).stdin(Stdio::null()).output()?;
    let mut output = String::from_utf8_lossy(&done.stdout).into_owned();
    output += &String::from_utf8_lossy(&done.stderr);
    let tail = output.trim().chars().rev().take(400).collect::<Vec<_>>();
    Ok(Some(Triggered {
        seconds: began.elapsed().as_secs_f64(),
        success: done.status.success(),
        output: tail.into_iter().rev().collect(),
    }))
}
