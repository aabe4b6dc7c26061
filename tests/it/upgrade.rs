//! A new process takes the listeners over, or is sent away.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{Echo, Parked, Scratch, Storm, StormReport, Streams, faulty};

fn nothing_lost(report: &StormReport) {
    assert_eq!((report.refused, report.reset, report.corrupt), (0, 0, 0), "{report:?}");
}

#[test]
fn twenty_reloads_and_ten_upgrades_under_a_storm_lose_nothing() {
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "watch": "0s", "drainTimeout": "5m" }));
    let streams = Streams::open(entry, 16);
    let storm = Storm::start(entry, 4);
    let inode = instance.status()["listeners"][0]["inode"].clone();

    for round in 0..30 {
        if round % 3 == 2 {
            let old = instance.serving();
            instance.expect_ok(&["upgrade"]);
            assert_ne!(instance.serving(), old, "another process serves");
        } else {
            let mut config = instance.config();
            config["rules"][0]["timeout"] = json!(1000 + round);
            instance.configure(&config);
            instance.expect_ok(&["reload"]);
        }
        storm.wait_served(20);
    }

    nothing_lost(&storm.finish());
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    let status = instance.status();
    assert_eq!(status["listeners"][0]["inode"], inode, "the same socket");
    assert_eq!(
        status["workers"].as_array().unwrap().iter().filter(|w| w["role"] == "serving").count(),
        1
    );
    assert!(instance.metric("baton_upgrades_total") >= 10.0);
    assert!(instance.metric("baton_reloads_total") >= 20.0);
    instance.stop();
}

#[test]
fn a_retired_worker_ends_with_its_last_connection() {
    let supervisor = json!({ "watch": "0s", "drainTimeout": "5m", "handover": "listeners" });
    let Echo { instance, entry, _upstream } = Echo::start(supervisor);
    let streams = Streams::open(entry, 2);
    let old = instance.serving();
    instance.expect_ok(&["upgrade"]);
    instance.wait_for("the old worker retires", |status| {
        let workers = status["workers"].as_array()?;
        workers.iter().find(|w| w["pid"] == old && w["role"] == "retiring").map(|_| ())
    });
    streams.wait_frames(20);
    for result in streams.finish() {
        result.unwrap();
    }
    instance.wait_for("the old worker is gone", |status| {
        (status["workers"].as_array()?.len() == 1).then_some(())
    });
    instance.stop();
}

#[test]
fn bad_new_versions_are_sent_away_and_the_old_one_serves_on() {
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "readyTimeout": "10s", "watch": "2s", "drainTimeout": "5m" }));
    let streams = Streams::open(entry, 4);
    let storm = Storm::start(entry, 2);
    let old = instance.serving();
    let cases = [
        ("no-self-check", "self-check"),
        ("wrong-version", "protocol"),
        ("exit-0", "exit"),
        ("exit-1", "exit"),
        ("mute", "hello"),
        ("garbage", ""),
        ("hang", "ready"),
        ("refuse", "a newer version dislikes this"),
        ("never-active", "accept"),
        ("crash", ""),
    ];
    for (manner, reason) in cases {
        let binary = faulty(instance.scratch(), manner);
        let outcome = instance.run(&["upgrade", "--binary", &binary]);
        assert_eq!(outcome.code, 1, "{manner}: {outcome:?}");
        assert!(outcome.stderr.to_lowercase().contains(reason), "{manner}: {outcome:?}");
        assert_eq!(instance.serving(), old, "{manner}");
        storm.wait_served(20);
    }
    let report = storm.finish();
    assert_eq!((report.refused, report.corrupt), (0, 0), "{report:?}");
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    instance.stop();
}

#[test]
fn a_build_that_failed_three_times_needs_force() {
    let Echo { instance, .. } = Echo::start(json!({ "readyTimeout": "1s" }));
    let binary = faulty(instance.scratch(), "exit-1");
    for _ in 0..3 {
        assert_eq!(instance.run(&["upgrade", "--binary", &binary]).code, 1);
    }
    let outcome = instance.run(&["upgrade", "--binary", &binary]);
    assert!(outcome.stderr.contains("--force"), "{outcome:?}");
    let outcome = instance.run(&["upgrade", "--binary", &binary, "--force"]);
    assert!(!outcome.stderr.contains("--force"), "{outcome:?}");
    instance.stop();
}

#[test]
fn what_is_no_program_is_refused_before_anything_starts() {
    let Echo { instance, .. } = Echo::start(json!({}));
    let text = instance.scratch().file("text", "hello").display().to_string();
    for binary in ["/nonexistent/baton", "/", text.as_str(), "/bin/true"] {
        let old = instance.serving();
        let outcome = instance.run(&["upgrade", "--binary", binary]);
        assert_eq!(outcome.code, 1, "{binary}: {outcome:?}");
        assert!(outcome.stderr.contains(binary), "{binary}: {outcome:?}");
        assert_eq!(instance.serving(), old);
    }
    instance.stop();
}

/// A copy of the program under test that something happened to.
fn damaged(scratch: &Scratch, name: &str, damage: impl FnOnce(&mut Vec<u8>)) -> String {
    let path = scratch.path().join(name);
    // Copied for its mode; then written anew.
    std::fs::copy(env!("CARGO_BIN_EXE_baton"), &path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    damage(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

#[test]
fn a_damaged_program_is_refused_before_anything_starts() {
    let Echo { instance, .. } = Echo::start(json!({}));
    let scratch = instance.scratch();
    let old = instance.serving();
    let binaries = [
        damaged(scratch, "empty", Vec::clear),
        damaged(scratch, "headers-only", |bytes| bytes.truncate(4096)),
        // Far enough before the end that it is not only symbols that are missing.
        damaged(scratch, "beginning", |bytes| bytes.truncate(bytes.len() / 20)),
        // The ELF header's machine: one that is not in use any more.
        damaged(scratch, "other-machine", |bytes| bytes[18..20].copy_from_slice(&[1, 0])),
        damaged(scratch, "no-loader", |bytes| {
            let loader = b"/ld-linux";
            let at = bytes.windows(loader.len()).position(|window| window == loader).unwrap();
            bytes[at + 1..at + 3].copy_from_slice(b"no");
        }),
    ];
    for binary in binaries {
        let outcome = instance.run(&["upgrade", "--binary", &binary]);
        assert_eq!(outcome.code, 1, "{binary}: {outcome:?}");
        assert!(outcome.stderr.contains("is not a baton binary"), "{binary}: {outcome:?}");
        assert_eq!(instance.serving(), old);
    }
    instance.stop();
}

#[test]
fn connections_parked_while_an_upgrade_runs_are_served() {
    // Those that the old worker has accepted drain there.
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "watch": "0s", "drainTimeout": "5m" }));
    let mut upgrade = instance.command(&["upgrade"]).spawn().unwrap();
    let parked = Parked::at(entry, 200);
    assert!(upgrade.wait().unwrap().success());
    parked.expect_served();
    instance.stop();
}

#[test]
fn the_signal_upgrades_too() {
    let Echo { instance, .. } = Echo::start(json!({ "watch": "0s" }));
    let old = instance.serving();
    instance.signal(Signal::SIGUSR2);
    instance.wait_replaced(old);
    instance.stop();
}
