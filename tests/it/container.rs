//! As PID 1 of a container.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::json;

use crate::harness::{Instance, Loopback, Upstream, baton, hear, missing, until};

const TEST: &str = "as_pid_1_it_reaps_orphans";

/// A process as this machine counts it: its parent, its state, and its number inside.
struct Process {
    pid: u32,
    parent: u32,
    state: char,
    inside: Option<u32>,
}

fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                Some(line.trim().to_owned())
            };
            Some(Process {
                pid,
                parent: field("PPid:")?.parse().ok()?,
                state: field("State:")?.chars().next()?,
                inside: field("NSpid:")?.split_whitespace().nth(1).and_then(|n| n.parse().ok()),
            })
        })
        .collect()
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

#[test]
fn as_pid_1_it_reaps_orphans_replaces_a_killed_worker_and_stops_when_told() {
    if missing(TEST, &["unshare", "nsenter"]) {
        return;
    }
    let possible = Command::new("unshare").args(["--pid", "--fork", "true"]).output().unwrap();
    if !Uid::effective().is_root() || !possible.status.success() {
        eprintln!("SKIPPED {TEST}: needs root and process namespaces");
        return;
    }
    let loopback = Loopback::unique();
    let upstream = Upstream::named(loopback.next(), "here");
    let entry = loopback.next();
    let mut contained = Command::new("unshare");
    contained
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(Path::new(baton().get_program()));
    let mut instance = Instance::launch(
        &json!({ "rules": [
            { "name": "r", "listen": entry.to_string(), "mode": "normal",
              "targets": [{ "address": upstream.address().to_string() }] }]}),
        contained,
    );
    until("it serves", || hear(entry).ok());
    let child = |parent: u32, inside: u32| {
        let found = |process: &Process| (process.parent, process.inside) == (parent, Some(inside));
        processes().into_iter().find(found).map(|process| process.pid)
    };
    let first = until("it is PID 1 inside", || child(instance.pid(), 1));
    let worker_inside = instance.serving();
    let worker = child(first, worker_inside).expect("the worker is its child");

    // The shell ends before what it started, which becomes a child of PID 1 and ends too.
    let orphaned = Command::new("nsenter")
        .args(["--target", &first.to_string(), "--pid", "sh", "-c", "(sleep 0.05 &) ; exit 0"])
        .status()
        .unwrap();
    assert!(orphaned.success());
    signal(worker, Signal::SIGKILL);
    instance.wait_for("another worker serves", |status| {
        let workers = status["workers"].as_array()?;
        let serving = workers.iter().find(|worker| worker["role"] == "serving")?;
        (serving["pid"].as_u64()? != u64::from(worker_inside)).then_some(())
    });
    assert_eq!(hear(entry).unwrap(), "here");
    until("nobody is left unreaped", || {
        let of_it = |process: &Process| process.parent == first && process.state == 'Z';
        (!processes().iter().any(of_it)).then_some(())
    });
    signal(first, Signal::SIGTERM);
    let status = instance.wait_end();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
}
