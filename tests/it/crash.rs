//! A worker that is killed, and what stays.

use serde_json::json;

use crate::harness::{Echo, Storm};

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
