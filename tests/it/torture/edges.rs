//! Files that change under an upgrade, floods of signals, and crowds that wait.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;

use super::family::{strike, wait_stopped};
use super::part::Kind;
use super::setting::{Place, Setting};
use super::verdict::Allowed;
use crate::harness::{Echo, Parked, copy_program, faulty, missing, until};

#[test]
fn a_thousand_connections_that_wait_while_no_worker_runs_are_served() {
    let Echo { instance, entry, _upstream } = Echo::start(json!({}));
    // A stopped worker accepts nothing and is not replaced before it is noticed.
    let old = instance.serving();
    instance.stop_worker(old);
    let parked = Parked::at(entry, 1000);
    instance.kill_worker(old);
    let reset = parked.not_served();
    // The server behind it has places for so many dials at once, and on a busy machine not all of
    // a thousand get one in time. Nobody is lost for another reason.
    let no_place = instance.metric("baton_dial_bulkhead_rejected_total");
    assert!(reset as f64 <= no_place, "{reset} reset, {no_place} without a place");
    instance.stop();
}

#[test]
fn a_hundred_reload_signals_during_one_are_one_more() {
    let place = Place::new();
    let fault = "w1@Prepare.heard:stop:2";
    let setting = Setting::start(&place, &json!({}), None, fault, &Kind::ALL);
    let instance = &setting.instance;
    let reloads = || instance.metric("baton_reloads_total");
    let before = reloads();
    instance.signal(Signal::SIGHUP);
    let worker = setting.wait_fault(fault);
    wait_stopped(worker);
    for _ in 0..100 {
        instance.signal(Signal::SIGHUP);
    }
    // It has answered something that came after them.
    assert!(instance.try_status().is_some());
    strike(worker, Signal::SIGCONT);
    until("the reload and the one that waited are done", || {
        (reloads() >= before + 2.0).then_some(())
    });
    setting.wait_settled();
    // A last one, and nothing that still waited comes before it.
    instance.expect_ok(&["reload"]);
    let made = reloads() - before;
    assert!((3.0..=4.0).contains(&made), "{made} reloads");
    let (complaints, _) = setting.finish(Allowed::Nothing);
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// Gives a process so many descriptors and no more.
fn limit(pid: u32, descriptors: usize) {
    let set = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--nofile={descriptors}:{descriptors}")])
        .status()
        .unwrap();
    assert!(set.success());
}

#[test]
fn descriptors_that_are_just_enough_do_and_too_few_are_told_before_anything_starts() {
    if missing("descriptors_that_are_just_enough", &["prlimit"]) {
        return;
    }
    let place = Place::new();
    let supervisor = json!({ "watch": "0s", "drainTimeout": "5m" });
    let kinds = [&[Kind::Idle; 120][..], &[Kind::HalfByClient; 40]].concat();
    let setting = Setting::start(&place, &supervisor, None, "", &kinds);
    let instance = &setting.instance;
    let old = instance.wait_for("every connection is counted", |status| {
        let worker = &status["workers"][0];
        (worker["connections"].as_u64()? >= 160).then(|| worker["pid"].as_u64().unwrap() as u32)
    });
    let held = std::fs::read_dir(format!("/proc/{old}/fd")).unwrap().count();
    limit(instance.pid(), held + 50);
    instance.expect_ok(&["upgrade"]);
    let moved = instance.wait_for("every connection has moved", |status| {
        let worker = &status["workers"][0];
        let all = status["workers"].as_array()?.len() == 1;
        let all = all && worker["connections"].as_u64()? >= 160;
        all.then(|| worker["pid"].as_u64().unwrap() as u32)
    });
    assert_ne!(moved, old);
    limit(instance.pid(), 300);
    let outcome = instance.run(&["upgrade"]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.stderr.contains("a limit of 300 open descriptors"), "{outcome:?}");
    assert_eq!(instance.serving(), moved);
    let (complaints, _) = setting.finish(Allowed::Nothing);
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// What happens to the file of a new version.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Deleted,
    Truncated,
    NotExecutable,
    Swapped,
}

impl Harm {
    const ALL: [Self; 4] = [Self::Deleted, Self::Truncated, Self::NotExecutable, Self::Swapped];

    fn befall(self, file: &Path, other: &Path) {
        match self {
            Self::Deleted => std::fs::remove_file(file).unwrap(),
            // A file that runs cannot be written to; then it stays as it is.
            Self::Truncated => match std::fs::File::options().write(true).open(file) {
                Ok(file) => file.set_len(100_000).unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ExecutableFileBusy, "{error}");
                }
            },
            Self::NotExecutable => {
                std::fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
            }
            Self::Swapped => std::fs::rename(other, file).unwrap(),
        }
    }
}

/// A copy of the program, and of one that fails, to be used up.
fn copies(setting: &Setting<'_>) -> (PathBuf, PathBuf) {
    let scratch = setting.instance.scratch();
    let copy = scratch.path().join("baton-new");
    copy_program(Path::new(env!("CARGO_BIN_EXE_baton")), &copy);
    (copy, faulty(scratch, "exit-1").into())
}

#[test]
fn a_file_that_is_harmed_before_an_upgrade_is_refused() {
    let place = Place::new();
    let setting = Setting::start(&place, &json!({}), None, "", &Kind::ALL);
    let old = setting.instance.serving();
    for harm in [Harm::Deleted, Harm::Truncated, Harm::NotExecutable] {
        let (file, other) = copies(&setting);
        harm.befall(&file, &other);
        let outcome = setting.instance.run(&["upgrade", "--binary", file.to_str().unwrap()]);
        assert_eq!(outcome.code, 1, "{harm:?}: {outcome:?}");
        assert!(outcome.stderr.contains("baton-new"), "{harm:?}: {outcome:?}");
        assert_eq!(setting.instance.serving(), old, "{harm:?}");
    }
    let (complaints, _) = setting.finish(Allowed::Nothing);
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// Once it was opened it may be checked, run as a worker, and run as the supervisor.
const SPAWN: &str = "s1@spawn:stop:2";
const GREETED: &str = "w2@greeted:stop";
const QUIESCED: &str = "s1@Quiesced.heard:stop";

fn harmed_during(fault: &str, harm: Harm) {
    let place = Place::new();
    let supervisor = json!({ "watch": "0s", "drainTimeout": "5m" });
    let kinds = [Kind::Idle, Kind::Chatty, Kind::HalfByClient, Kind::Full];
    let setting = Setting::start(&place, &supervisor, None, fault, &kinds);
    let (file, other) = copies(&setting);
    let mut command = setting.instance.command(&["upgrade", "--binary"]);
    let command = command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut upgrade = command.spawn().unwrap();
    let stopped = setting.wait_fault(fault);
    wait_stopped(stopped);
    harm.befall(&file, &other);
    strike(stopped, Signal::SIGCONT);
    // What was opened is what runs, where it still can.
    let _either = upgrade.wait().unwrap();
    setting.wait_settled();
    setting.instance.expect_ok(&["upgrade", "--force"]);
    setting.wait_settled();
    let (complaints, _) = setting.finish(Allowed::Nothing);
    assert!(complaints.is_empty(), "{fault} {harm:?}: {complaints:#?}");
}

#[test]
fn a_file_that_is_harmed_during_an_upgrade_does_no_harm() {
    harmed_during(SPAWN, Harm::Truncated);
    harmed_during(GREETED, Harm::Deleted);
    harmed_during(QUIESCED, Harm::NotExecutable);
    harmed_during(QUIESCED, Harm::Swapped);
}

#[test]
#[ignore = "takes long: `just torture`"]
fn a_file_that_is_harmed_at_any_step_of_an_upgrade_does_no_harm() {
    for fault in [SPAWN, GREETED, QUIESCED] {
        for harm in Harm::ALL {
            harmed_during(fault, harm);
        }
    }
}
