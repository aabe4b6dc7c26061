//! A worker that is killed, and what stays.

use std::path::Path;

use serde_json::json;

use crate::harness::{Echo, Storm, copy_program};

#[test]
fn twenty_kills_under_a_storm_refuse_nobody_and_lose_no_count() {
    let Echo { instance, entry, _upstream } = Echo::start(json!({}));
    let storm = Storm::start(entry, 4);
    let inode = instance.status()["listeners"][0]["inode"].clone();
    let mut accepted = 0.0;
    for _ in 0..20 {
        storm.wait_served(20);
        let now = instance.metric("baton_connections_accepted_total");
        assert!(now >= accepted, "accepted went from {accepted} to {now}");
        accepted = now;
        let old = instance.serving();
        instance.kill_worker(old);
        instance.wait_replaced(old);
    }
    storm.wait_served(20);
    let report = storm.finish();
    assert_eq!((report.refused, report.corrupt), (0, 0), "{report:?}");
    assert!(instance.metric("baton_connections_accepted_total") >= report.served as f64);
    assert_eq!(instance.metric("baton_worker_restarts_total"), 20.0);
    assert_eq!(instance.status()["listeners"][0]["inode"], inode, "the same socket");
    instance.stop();
}

#[test]
fn a_worker_killed_during_a_reload_fails_the_reload_and_is_replaced() {
    let Echo { instance, entry, _upstream } = Echo::start(json!({}));
    let storm = Storm::start(entry, 2);
    for _ in 0..5 {
        let old = instance.serving();
        let mut reload = instance.command(&["reload"]).spawn().unwrap();
        instance.kill_worker(old);
        let _either = reload.wait().unwrap();
        instance.wait_replaced(old);
        storm.wait_served(10);
    }
    let report = storm.finish();
    assert_eq!((report.refused, report.corrupt), (0, 0), "{report:?}");
    instance.stop();
}

#[test]
fn a_new_build_whose_workers_die_again_and_again_gives_way_to_the_one_before() {
    let Echo { instance, entry, _upstream } = Echo::start(json!({ "watch": "0s" }));
    let storm = Storm::start(entry, 2);
    let copy = instance.scratch().path().join("baton-2");
    copy_program(Path::new(env!("CARGO_BIN_EXE_baton")), &copy);
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let before = program(instance.serving());
    // The supervisor becomes the new program too, and takes the one before along.
    instance.expect_ok(&["upgrade", "--binary", &copy.display().to_string()]);
    let mut worker = instance.serving();
    for _ in 0..4 {
        assert_eq!(program(worker), copy);
        instance.kill_worker(worker);
        worker = instance.wait_replaced(worker);
    }
    assert_eq!(program(worker), before);
    let last = instance.wait_for("the fallback has ended", |status| {
        let last = &status["last_transition"];
        (last["kind"] == "fallback").then(|| last.clone())
    });
    assert_eq!(last["result"], "ok", "{last}");
    let problem = last["problems"][0].as_str().unwrap();
    assert!(problem.contains("failed 4 times in a row"), "{problem}");
    storm.wait_served(20);
    let report = storm.finish();
    assert_eq!((report.refused, report.corrupt), (0, 0), "{report:?}");
    instance.stop();
}
