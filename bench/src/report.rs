//! The result of one run, as one JSON object and as a line for people.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, Quantiles};
use crate::procfs::Sample;

/// How often something went wrong, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) count: u64,
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
}

/// Failures by phase and kind, such as `connect refused`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Tally(BTreeMap<String, Count>);

impl Tally {
    /// Counts one failure at a time since the start of the run.
    pub(crate) fn add(&mut self, failure: &Failure, at: Duration) {
        let ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let entry = Count { count: 1, first_ms: ms, last_ms: ms };
        self.include(failure.to_string(), entry);
    }

    fn include(&mut self, name: String, new: Count) {
        self.0
            .entry(name)
            .and_modify(|old| {
                old.count += new.count;
                old.first_ms = old.first_ms.min(new.first_ms);
                old.last_ms = old.last_ms.max(new.last_ms);
            })
            .or_insert(new);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (name, count) in other.0 {
            self.include(name, count);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().map(|c| c.count).sum()
    }

    /// Failures whose name ends so.
    pub(crate) fn ending(&self, suffix: &str) -> u64 {
        self.0.iter().filter(|(name, _)| name.ends_with(suffix)).map(|(_, c)| c.count).sum()
    }

    /// `connect refused ×3 (1.2–1.4 s)`, or `none`.
    pub(crate) fn describe(&self) -> String {
        if self.0.is_empty() {
            return "none".to_owned();
        }
        let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
        let parts = self.0.iter().map(|(name, c)| {
            let (first, last) = (seconds(c.first_ms), seconds(c.last_ms));
            format!("{name} ×{} ({first:.1}–{last:.1} s)", c.count)
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Where in its life a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Connect,
    Send,
    Receive,
    Close,
}

/// One failure: phase and what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) phase: Phase,
    pub(crate) what: &'static str,
}

impl Failure {
    pub(crate) fn new(phase: Phase, what: &'static str) -> Self {
        Self { phase, what }
    }

    /// The failure behind an I/O error.
    pub(crate) fn of(phase: Phase, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        const NAMES: &[(Kind, &str)] = &[
            (Kind::ConnectionRefused, "refused"),
            (Kind::ConnectionReset, "reset"),
            (Kind::BrokenPipe, "reset"),
            (Kind::ConnectionAborted, "aborted"),
            (Kind::UnexpectedEof, "end of stream"),
            (Kind::TimedOut, "timeout"),
            (Kind::WouldBlock, "timeout"),
            (Kind::AddrNotAvailable, "no local port"),
            (Kind::InvalidData, "corrupt"),
        ];
        let known = NAMES.iter().find(|(kind, _)| *kind == error.kind()).map(|(_, name)| *name);
        let full = error.raw_os_error() == Some(nix::errno::Errno::EMFILE as i32);
        let what = known.unwrap_or(if full { "no descriptor" } else { "other" });
        Self::new(phase, what)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = match self.phase {
            Phase::Connect => "connect",
            Phase::Send => "send",
            Phase::Receive => "receive",
            Phase::Close => "close",
        };
        write!(f, "{phase} {}", self.what)
    }
}

/// Memory and descriptors of the target's processes around idle connections.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) before: Sample,
    pub(crate) during: Sample,
    pub(crate) after: Sample,
    /// CPU seconds the target spent while nothing was sent.
    pub(crate) idle_cpu_s: f64,
    /// How long nothing was sent.
    pub(crate) idle_s: f64,
}

impl Held {
    /// PSS a connection.
    pub(crate) fn kib_each(&self, connections: u64) -> f64 {
        (self.during.pss_kib - self.before.pss_kib) / connections.max(1) as f64
    }

    /// Descriptors a connection.
    pub(crate) fn fds_each(&self, connections: u64) -> f64 {
        (self.during.fds as f64 - self.before.fds as f64) / connections.max(1) as f64
    }
}

/// What the trigger of an upgrade did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Triggered {
    pub(crate) seconds: f64,
    pub(crate) success: bool,
    /// The end of what it printed.
    pub(crate) output: String,
}

/// One run. Fields that a mode does not have are left out of its JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    pub(crate) mode: String,
    pub(crate) connections: u64,
    pub(crate) seconds: f64,
    /// Requests answered right, or sessions ended right.
    pub(crate) done: u64,
    pub(crate) per_second: f64,
    /// Payload bytes that the far end has verified.
    pub(crate) up_bytes: u64,
    pub(crate) down_bytes: u64,
    pub(crate) gib_per_second: f64,
    pub(crate) corrupt: u64,
    /// Established streams that ended before their time.
    pub(crate) cut: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency_us: Option<Quantiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) longest_stall_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<Held>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trigger: Option<Triggered>,
    pub(crate) errors: Tally,
    /// CPU seconds of the load generator itself.
    pub(crate) load_cpu_s: f64,
}

impl Report {
    /// A report of answered requests.
    pub(crate) fn of_requests(
        mode: &str,
        connections: u64,
        took: Duration,
        histogram: &Histogram,
        errors: Tally,
    ) -> Self {
        let (seconds, done) = (took.as_secs_f64(), histogram.total());
        Self {
            mode: mode.to_owned(),
            connections,
            seconds,
            done,
            per_second: done as f64 / seconds,
            corrupt: errors.ending("corrupt"),
            latency_us: Some(histogram.quantiles()),
            errors,
            ..Self::default()
        }
    }

    /// GiB that arrived right.
    pub(crate) fn gib(&self) -> f64 {
        (self.up_bytes + self.down_bytes) as f64 / f64::from(1 << 30)
    }

    /// One line, or a few, for people.
    pub(crate) fn describe(&self) -> String {
        let mut parts = vec![format!(
            "{}: {} connections, {:.2} s, {} done",
            self.mode, self.connections, self.seconds, self.done
        )];
        if self.up_bytes + self.down_bytes > 0 {
            parts.push(format!("{:.3} GiB/s", self.gib_per_second));
        }
        if self.per_second > 0.0 {
            parts.push(format!("{:.0}/s", self.per_second));
        }
        if let Some(q) = self.latency_us {
            parts.push(format!("p50 {} µs, p99 {} µs, max {} µs", q.p50, q.p99, q.max));
        }
        if let Some(stall) = self.longest_stall_ms {
            parts.push(format!("longest stall {stall:.1} ms, cut {}", self.cut));
            let (refused, reset) = (self.errors.ending("refused"), self.errors.ending("reset"));
            parts.push(format!("refused {refused}, reset {reset}"));
        }
        if let Some(held) = self.held {
            parts.push(format!(
                "{:.2} KiB and {:.2} descriptors a connection, {} KiB and {} left after, \
                 {:.3} CPU-s while idle",
                held.kib_each(self.done),
                held.fds_each(self.done),
                held.after.pss_kib - held.before.pss_kib,
                held.after.fds as i64 - held.before.fds as i64,
                held.idle_cpu_s
            ));
        }
        if let Some(trigger) = &self.trigger {
            let verdict = if trigger.success { "succeeded" } else { "failed" };
            parts.push(format!("trigger {verdict} in {:.2} s", trigger.seconds));
        }
        parts.push(format!("corrupt {}, errors {}", self.corrupt, self.errors.describe()));
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_add_up_by_name_and_keep_their_first_and_last_time() {
        let refused = Failure::of(Phase::Connect, &io::ErrorKind::ConnectionRefused.into());
        let (mut a, mut b) = (Tally::default(), Tally::default());
        a.add(&refused, Duration::from_millis(1200));
        b.add(&refused, Duration::from_millis(300));
        b.add(&Failure::new(Phase::Receive, "reset"), Duration::from_secs(2));
        a.merge(b);
        assert_eq!(a.total(), 3);
        assert_eq!(a.ending("refused"), 2);
        let text = a.describe();
        assert!(text.contains("connect refused ×2 (0.3–1.2 s)"), "{text}");
    }

    #[test]
    fn a_report_comes_back_from_its_json() {
        let mut histogram = Histogram::new();
        histogram.add(40);
        let report =
            Report::of_requests("churn", 4, Duration::from_secs(2), &histogram, Tally::default());
        let text = serde_json::to_string(&report).unwrap();
        assert!(!text.contains("held"), "{text}");
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!((back.done, back.per_second), (1, 0.5));
        assert_eq!(back.latency_us.map(|q| q.p50), Some(40));
    }

    #[test]
    fn memory_is_counted_per_connection() {
        let sample = |pss_kib: f64, fds| Sample { processes: 2, pss_kib, fds, cpu_s: 0.0 };
        let held =
            Held { before: sample(1000.0, 10), during: sample(3000.0, 2010), ..Held::default() };
        assert_eq!((held.kib_each(1000), held.fds_each(1000)), (2.0, 2.0));
    }
}
