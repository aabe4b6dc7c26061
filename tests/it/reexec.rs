//! The supervisor becomes another program and stays the same process.

use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Echo, Instance, Outcome, Storm, Streams, baton, faulty, until};

/// What must be the same before and after.
#[derive(Debug, PartialEq, Eq)]
struct Lasting {
    pid: Value,
    listeners: Value,
    control: u64,
    lock: u64,
    region: u64,
}

fn lasting(instance: &Instance) -> Lasting {
    let status = instance.status();
    let inode = |name| std::fs::metadata(instance.runtime_dir().join(name)).unwrap().ino();
    Lasting {
        pid: status["supervisor"]["pid"].clone(),
        listeners: status["listeners"].clone(),
        control: inode("control.sock"),
        lock: inode("lock"),
        region: inode("metrics.region"),
    }
}

fn images(instance: &Instance) -> u64 {
    instance.status()["supervisor"]["images"].as_u64().unwrap()
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn twenty_replacements_under_a_storm_and_signals_lose_nothing() {
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "watch": "0s", "drainTimeout": "5m" }));
    let streams = Streams::open(entry, 8);
    let storm = Storm::start(entry, 2);
    let before = lasting(&instance);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                instance.signal(Signal::SIGHUP);
                instance.signal(Signal::SIGCHLD);
                std::thread::park_timeout(std::time::Duration::from_millis(3));
            }
        });
        for round in 1..=20 {
            let old = instance.serving();
            let said = instance.expect_ok(&["upgrade"]);
            assert!(said.contains("the supervisor is version"), "{said}");
            assert_ne!(instance.serving(), old);
            assert_eq!(images(&instance), round + 1);
            storm.wait_served(20);
        }
        done.store(true, Ordering::SeqCst);
    });
    let report = storm.finish();
    assert_eq!((report.refused, report.reset, report.corrupt), (0, 0, 0), "{report:?}");
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    assert_eq!(lasting(&instance), before);
    assert_eq!(instance.metric("baton_upgrades_total{result=\"success\"}"), 20.0);
    instance.stop();
}

#[test]
fn no_descriptor_is_left_over() {
    let Echo { instance, .. } = Echo::start(json!({ "watch": "0s" }));
    let alone = || {
        instance.wait_for("one worker is left", |status| {
            (status["workers"].as_array()?.len() == 1).then_some(())
        });
        descriptors(instance.pid())
    };
    instance.expect_ok(&["upgrade"]);
    // May count the client that asked for the status, two descriptors; a leak counts five times.
    let before = alone();
    for _ in 0..5 {
        instance.expect_ok(&["upgrade"]);
    }
    until("there are no more than before", || (alone() <= before).then_some(()));
    instance.stop();
}

#[test]
fn a_worker_of_the_former_image_is_still_waited_for() {
    let Echo { instance, entry, _upstream } = Echo::start(json!({ "watch": "0s" }));
    instance.expect_ok(&["upgrade"]);
    let storm = Storm::start(entry, 2);
    let old = instance.serving();
    instance.kill_worker(old);
    instance.wait_replaced(old);
    storm.wait_served(10);
    let report = storm.finish();
    assert_eq!((report.refused, report.corrupt), (0, 0), "{report:?}");
    assert_eq!(instance.metric("baton_worker_restarts_total"), 1.0);
    assert!(instance.log().contains("signal: 9 (SIGKILL)"), "the way it ended is known");
    instance.stop();
}

#[test]
fn a_new_version_that_cannot_take_over_gives_the_process_back() {
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "watch": "0s", "drainTimeout": "5m" }));
    let streams = Streams::open(entry, 4);
    let storm = Storm::start(entry, 2);
    let before = lasting(&instance);
    for (manner, reason) in [
        ("resume-panics", "a fault of the new version"),
        ("resume-hangs", "did not take over within"),
        ("resume-unaware", "does not take over from this version of the supervisor"),
        ("resume-rehearsal-aborts", "its rehearsal as supervisor failed (signal: 6 (SIGABRT)"),
        ("resume-rehearsal-hangs", "its rehearsal as supervisor took over 10s"),
        ("resume-rehearsal-refuses", "it cannot take over: a newer version dislikes this"),
    ] {
        let binary = faulty(instance.scratch(), manner);
        let old = instance.serving();
        let outcome = instance.run(&["upgrade", "--binary", &binary]);
        assert_eq!(outcome.code, 1, "{manner}: {outcome:?}");
        assert!(outcome.stderr.contains(reason), "{manner}: {outcome:?}");
        assert!(outcome.stderr.contains("the supervisor stays at version"), "{outcome:?}");
        assert_ne!(instance.serving(), old, "the worker's part was done");
        assert_eq!(images(&instance), 1, "{manner}");
        assert_eq!(lasting(&instance), before, "{manner}");
        storm.wait_served(20);
    }
    instance.expect_ok(&["upgrade"]);
    assert_eq!(images(&instance), 2);
    let report = storm.finish();
    assert_eq!((report.refused, report.reset, report.corrupt), (0, 0, 0), "{report:?}");
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    instance.stop();
}

#[test]
fn a_second_instance_is_still_locked_out() {
    let Echo { instance, .. } = Echo::start(json!({ "watch": "0s" }));
    instance.expect_ok(&["upgrade"]);
    let file = instance.scratch().path().join("setting.json");
    let outcome = instance.run(&["run", "--config", file.to_str().unwrap()]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.stderr.contains("another instance is running"), "{outcome:?}");
    instance.stop();
}

#[test]
fn a_program_says_why_it_could_not_take_over_and_touches_nothing() {
    let rehearse = |stdin: Stdio| -> Outcome {
        baton().args(["resume", "--rehearse"]).stdin(stdin).output().unwrap().into()
    };
    let nothing = rehearse(Stdio::null());
    assert_eq!(nothing.code, 1, "{nothing:?}");
    assert!(nothing.stdout.starts_with("the former image's state: "), "{nothing:?}");
    let other = baton_handoff::seal(b"baton-supervisor-state 999\n{}").unwrap();
    let other = rehearse(other.into());
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.stdout.contains("has format 999, this release reads"), "{other:?}");
}
