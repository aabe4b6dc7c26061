//! One measurement: a fresh target, a load in a process of its own, and what both cost.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use super::{Plan, Server, Work};
use crate::load::idle::{self, Crowd};
use crate::load::upgrade::{self, Upgrade};
use crate::load::{Load, halfclose};
use crate::procfs;
use crate::report::Report;
use crate::target::{Running, Target};

type Values = BTreeMap<&'static str, f64>;

/// Streams of [`Work::Upgrade`].
const STREAMS: usize = 200;
/// New connections a second beside them.
const STORM: f64 = 500.0;

pub(super) fn one(
    plan: &Plan,
    target: &Target,
    work: Work,
    server: &Server,
) -> anyhow::Result<(Values, String)> {
    let running = target.start(server.address, &[server.child.id()])?;
    match work {
        Work::Idle => held(plan, &running, plan.idle),
        Work::IdleMany => held(plan, &running, plan.crowd()),
        Work::HalfClose => {
            let report = halfclose::run(&load(plan, &running, 4), 1 << 20)?;
            let mut values = counts(&report);
            values.insert("done", report.done as f64);
            values.insert("cut", report.cut as f64);
            Ok((values, notes(&report)))
        }
        Work::Upgrade => upgraded(plan, target, &running),
        Work::BusyBesideIdle => {
            let crowd = Crowd::open(running.address, plan.crowd(), plan.threads);
            let (values, mut notes) = loaded(plan, &running, work, server)?;
            if crowd.len() < plan.crowd() {
                notes = format!("only {} idle beside it; {notes}", crowd.len());
            }
            Ok((values, notes))
        }
        Work::BulkDown
        | Work::BulkUp
        | Work::BulkBoth
        | Work::BulkOne
        | Work::BulkMix
        | Work::Churn
        | Work::ChurnPaced
        | Work::PingSmall
        | Work::PingLarge
        | Work::Busy => loaded(plan, &running, work, server),
    }
}

fn load(plan: &Plan, running: &Running, connections: usize) -> Load {
    Load { target: running.address, connections, threads: plan.threads, duration: plan.duration }
}

/// The arguments of the load; works that are not run as a process have none.
fn arguments(work: Work) -> &'static [&'static str] {
    match work {
        Work::BulkDown => &["bulk", "--direction", "down", "--connections", "8"],
        Work::BulkUp => &["bulk", "--direction", "up", "--connections", "8"],
        Work::BulkBoth => &["bulk", "--direction", "both", "--connections", "8"],
        Work::BulkOne => &["bulk", "--direction", "down", "--connections", "1"],
        Work::BulkMix => &["bulk", "--connections", "64", "--writes", "4096,1048576"],
        Work::Churn => &["churn", "--connections", "32"],
        Work::ChurnPaced => &["churn", "--connections", "32", "--rate", "2000"],
        Work::PingSmall => &["pingpong", "--connections", "32", "--size", "64"],
        Work::PingLarge => &["pingpong", "--connections", "32", "--size", "4096"],
        Work::Busy | Work::BusyBesideIdle => &["pingpong", "--connections", "100", "--size", "64"],
        Work::Idle | Work::IdleMany | Work::HalfClose | Work::Upgrade => &[],
    }
}

/// Runs a load process and takes the CPU time of target and ends before and after.
fn loaded(
    plan: &Plan,
    running: &Running,
    work: Work,
    server: &Server,
) -> anyhow::Result<(Values, String)> {
    let (relay, upstream) = (procfs::cpu_seconds(&running.pids()), server.cpu_seconds());
    let output = Command::new(std::env::current_exe()?)
        .args(arguments(work))
        .args(["--json", "--addr", &running.address.to_string()])
        .args(["--seconds", &plan.duration.as_secs_f64().to_string()])
        .args(["--threads", &plan.threads.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("starting the load")?;
    let relay = procfs::cpu_seconds(&running.pids()) - relay;
    let upstream = server.cpu_seconds() - upstream;
    if !output.status.success() {
        bail!("the load: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let report: Report = serde_json::from_slice(&output.stdout).context("the load's report")?;
    let mut values = counts(&report);
    values.insert("cpu_s", relay);
    let of_relay = running.root() != 0;
    if report.gib() > 0.0 {
        values.insert("gib_per_s", report.gib_per_second);
        values.insert("ends_cpu_s_per_gib", (upstream + report.load_cpu_s) / report.gib());
        if of_relay {
            values.insert("cpu_s_per_gib", relay / report.gib());
        }
    } else if report.done > 0 {
        values.insert("per_s", report.per_second);
        if of_relay {
            values.insert("cpu_s_per_10k", relay / report.done as f64 * 1e4);
        }
    }
    if let Some(latency) = report.latency_us {
        values.insert("p50_us", latency.p50 as f64);
        values.insert("p99_us", latency.p99 as f64);
        values.insert("p999_us", latency.p999 as f64);
    }
    Ok((values, notes(&report)))
}

fn held(plan: &Plan, running: &Running, connections: usize) -> anyhow::Result<(Values, String)> {
    let load = load(plan, running, connections);
    let report = idle::run(&load, &|| running.sample())?;
    let mut values = counts(&report);
    values.insert("alive", report.done as f64);
    if let Some(held) = report.held.filter(|_| running.root() != 0) {
        values.insert("kib_per_conn", held.kib_each(report.done));
        values.insert("fds_per_conn", held.fds_each(report.done));
        values.insert("idle_cpu_s", held.idle_cpu_s);
        values.insert("kib_left", held.after.pss_kib - held.before.pss_kib);
        values.insert("fds_left", held.after.fds as f64 - held.before.fds as f64);
        values.insert("base_mib", held.before.pss_kib / 1024.0);
    }
    Ok((values, notes(&report)))
}

fn upgraded(plan: &Plan, target: &Target, running: &Running) -> anyhow::Result<(Values, String)> {
    let mut load = load(plan, running, STREAMS);
    load.duration = plan.duration.max(Duration::from_secs(2)) * 3;
    let upgrade =
        Upgrade { trigger: target.upgrade_trigger(running), at: load.duration / 3, rate: STORM };
    // A second before the streams end: is the old generation still there?
    let look = load.duration.saturating_sub(Duration::from_secs(1));
    let (report, late) = thread::scope(|scope| {
        let late = scope.spawn(|| {
            thread::sleep(look);
            running.sample()
        });
        (upgrade::run(&load, &upgrade), late.join())
    });
    let report = report?;
    let mut values = counts(&report);
    values.insert("cut", report.cut as f64);
    values.insert("refused", report.errors.ending("refused") as f64);
    values.insert("reset", report.errors.ending("reset") as f64);
    if let Some(stall) = report.longest_stall_ms {
        values.insert("stall_ms", stall);
    }
    if let Some(latency) = report.latency_us {
        values.insert("p99_us", latency.p99 as f64);
    }
    if let Some(late) = late.ok().filter(|_| running.root() != 0) {
        values.insert("processes", late.processes as f64);
        values.insert("mib", late.pss_kib / 1024.0);
    }
    let mut notes = notes(&report);
    if let Some(trigger) = &report.trigger {
        values.insert("trigger_s", trigger.seconds);
        if !trigger.success {
            notes = format!("the trigger failed: {}; {notes}", trigger.output);
        }
    }
    Ok((values, notes))
}

fn counts(report: &Report) -> Values {
    BTreeMap::from([("corrupt", report.corrupt as f64), ("errors", report.errors.total() as f64)])
}

fn notes(report: &Report) -> String {
    match report.errors.total() {
        0 => String::new(),
        _ => report.errors.describe(),
    }
}
