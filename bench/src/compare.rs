//! Measurements side by side: targets in rotated order, round after round.
//!
//! What is compared was measured in the same run, a few seconds apart, on the same machine:
//! ratios hold where absolute figures do not. CPU seconds of the target for a unit of work are
//! the honest figure; on a machine whose cores client, target and upstream share, throughput
//! follows from the sum of all three.

mod measure;
mod plot;
mod summary;
mod work;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use serde::Serialize;

pub(crate) use work::Work;

use crate::procfs;
use crate::target::{self, Target};

/// How a comparison is run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) targets: Vec<Target>,
    pub(crate) works: Vec<Work>,
    pub(crate) rounds: usize,
    pub(crate) duration: Duration,
    pub(crate) threads: usize,
    /// Connections of [`Work::Idle`].
    pub(crate) idle: usize,
    /// Whose figures the ratios are of: the best peer, or the first target.
    pub(crate) against: Against,
}

impl Plan {
    /// The larger crowd of idle connections: five times as many, as far as every target has
    /// descriptors for them (a relay that splices needs up to five for two connections).
    fn crowd(&self) -> usize {
        let most = usize::try_from(target::capacity() * 4 / 5).unwrap_or(usize::MAX);
        self.idle.saturating_mul(5).min(most).max(self.idle)
    }
}

/// What a ratio is a ratio to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    BestPeer,
    FirstTarget,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measurement {
    pub(crate) round: usize,
    pub(crate) work: Work,
    pub(crate) target: String,
    /// Figures by key; empty when it failed.
    pub(crate) values: BTreeMap<&'static str, f64>,
    /// What went wrong, in words.
    pub(crate) notes: String,
    /// The machine's load average before it.
    pub(crate) load: f64,
}

/// Everything about a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) started: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) measurements: Vec<Measurement>,
}

/// Measures everything; progress goes to `report`, a line a measurement.
pub(crate) fn run(plan: &Plan, report: &mut dyn FnMut(&str)) -> anyhow::Result<Results> {
    // Orphans of a target become our children, so that none is lost from sight.
    nix::sys::prctl::set_child_subreaper(true).context("becoming the reaper of orphans")?;
    let mut results = Results {
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        kernel: first_line("/proc/sys/kernel/osrelease"),
        cpu: cpu_model(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        rounds: plan.rounds,
        seconds: plan.duration.as_secs_f64(),
        versions: BTreeMap::new(),
        measurements: Vec::new(),
    };
    let mut targets = Vec::new();
    for target in &plan.targets {
        match target.available() {
            Ok(version) => {
                results.versions.insert(target.name(), version);
                targets.push(target);
            }
            Err(hint) => report(&format!("left out: {hint}")),
        }
    }
    if targets.is_empty() {
        bail!("there is nothing to measure");
    }
    let server = Server::start(plan.threads)?;
    for round in 0..plan.rounds {
        for &work in plan.works.iter().filter(|work| round == 0 || !work.once()) {
            // Rotated, so that no target always runs after the same one.
            for step in 0..targets.len() {
                let target = targets[(step + round) % targets.len()];
                let load = load_average();
                let (values, notes) = match measure::one(plan, target, work, &server) {
                    Ok(measured) => measured,
                    Err(error) => (BTreeMap::new(), format!("failed: {error:#}")),
                };
                let name = target.name();
                report(&format!("[{round}] {work:16} {name:15} {}", brief(&values, &notes)));
                let measurement = Measurement { round, work, target: name, values, notes, load };
                results.measurements.push(measurement);
            }
        }
    }
    Ok(results)
}

fn brief(values: &BTreeMap<&'static str, f64>, notes: &str) -> String {
    let figures = values.iter().map(|(key, value)| format!("{key} {value:.3}"));
    let mut text = figures.collect::<Vec<_>>().join("  ");
    if !notes.is_empty() {
        text = format!("{text}  ({notes})");
    }
    text
}

/// The tables of a comparison.
pub(crate) fn render(plan: &Plan, results: &Results) -> String {
    summary::render(plan, results)
}

/// Writes the charts of a comparison into a directory; returns their files.
pub(crate) fn plots(
    plan: &Plan,
    results: &Results,
    directory: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    plot::write(plan, results, directory)
}

/// The upstream as a process of its own, so that its CPU time is not the client's.
#[derive(Debug)]
struct Server {
    child: Child,
    address: SocketAddr,
    _output: BufReader<ChildStdout>,
}

impl Server {
    fn start(threads: usize) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["launch"])
            .arg(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--threads", &threads.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the upstream")?;
        let mut output = BufReader::new(child.stdout.take().context("the upstream's output")?);
        let mut line = String::new();
        output.read_line(&mut line).context("the upstream's first line")?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().parse();
        let address = address.with_context(|| format!("the upstream said {line:?}"))?;
        Ok(Self { child, address, _output: output })
    }

    fn cpu_seconds(&self) -> f64 {
        procfs::cpu_seconds(&[self.child.id()])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(": ")).map(|(_, model)| model.to_owned());
    model.unwrap_or_else(|| "unknown".to_owned())
}

fn load_average() -> f64 {
    first_line("/proc/loadavg").split(' ').next().and_then(|v| v.parse().ok()).unwrap_or(0.0)
}
