//! A supervisor that dies, and workers that do not.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Echo, Instance, Loopback, Storm, Streams, Upstream, until};

fn setting() -> Echo {
    Echo::start(json!({ "watch": "0s", "drainTimeout": "5m" }))
}

fn inode(instance: &Instance) -> Value {
    instance.status()["listeners"][0]["inode"].clone()
}

fn wait_quiet(instance: &Instance) {
    instance.wait_for("it is up to date", |status| {
        let reloaded = status["last_transition"]["kind"] != "start";
        (reloaded && status["transition"].is_null()).then_some(())
    });
}

#[test]
fn a_worker_outlives_its_supervisor_and_the_next_one_adopts_it() {
    let Echo { mut instance, entry, _upstream } = setting();
    let streams = Streams::open(entry, 8);
    let storm = Storm::start(entry, 2);
    let (worker, before) = (instance.serving(), inode(&instance));
    let config = instance.config();
    for _ in 0..3 {
        instance.kill_supervisor();
        assert_eq!(instance.run(&["status"]).code, 3);
        storm.wait_served(20);
        streams.wait_frames(20);
        instance = instance.restart(&config);
        assert_eq!(instance.serving(), worker, "the same process serves");
        assert_eq!(inode(&instance), before, "at the same socket");
        wait_quiet(&instance);
        assert_eq!(instance.status()["last_transition"]["result"], "unchanged");
        assert_eq!(instance.serving(), worker);
        storm.wait_served(20);
    }
    assert!(instance.metric("baton_connections_accepted_total") >= 100.0);

    // An adopted worker is one like any other.
    instance.expect_ok(&["reload"]);
    instance.expect_ok(&["upgrade"]);
    instance.wait_replaced(worker);
    streams.wait_frames(20);
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    let heir = instance.serving();
    instance.kill_worker(heir);
    instance.wait_replaced(heir);
    storm.wait_served(20);
    assert_eq!(inode(&instance), before, "at the same socket");

    let report = storm.finish();
    assert_eq!((report.refused, report.corrupt), (0, 0), "{report:?}");
    instance.stop();
}

#[test]
fn a_configuration_that_was_changed_meanwhile_is_taken_up() {
    let Echo { mut instance, entry, _upstream } = setting();
    let loopback = Loopback::unique();
    let named = Upstream::named(loopback.next(), "changed");
    let streams = Streams::open(entry, 2);
    let (worker, before) = (instance.serving(), inode(&instance));
    instance.kill_supervisor();
    let mut config = instance.config();
    config["rules"][0]["targets"][0]["address"] = json!(named.address().to_string());
    instance = instance.restart(&config);
    instance.wait_for("the new configuration serves", |status| {
        (status["workers"][0]["generation"] == 2).then_some(())
    });
    assert_eq!((instance.serving(), inode(&instance)), (worker, before));
    let mut answer = String::new();
    let mut client = std::net::TcpStream::connect(entry).unwrap();
    std::io::Read::read_to_string(&mut client, &mut answer).unwrap();
    assert_eq!(answer, "changed");
    drop(client);
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    instance.stop();
}

#[test]
fn an_adopted_worker_that_is_killed_is_noticed_and_replaced() {
    let Echo { mut instance, entry, _upstream } = setting();
    let worker = instance.serving();
    let config = instance.config();
    instance.kill_supervisor();
    instance = instance.restart(&config);
    wait_quiet(&instance);
    let storm = Storm::start(entry, 2);
    instance.kill_worker(worker);
    instance.wait_replaced(worker);
    storm.wait_served(20);
    let report = storm.finish();
    assert_eq!((report.refused, report.corrupt), (0, 0), "{report:?}");
    instance.stop();
}

#[test]
fn retired_workers_are_adopted_with_their_connections() {
    // Connections that do not move keep the old worker.
    let Echo { mut instance, entry, _upstream } =
        Echo::start(json!({ "watch": "0s", "drainTimeout": "5m", "handover": "listeners" }));
    let streams = Streams::open(entry, 2);
    let old = instance.serving();
    let config = instance.config();
    instance.expect_ok(&["upgrade"]);
    instance.kill_supervisor();
    instance = instance.restart(&config);
    instance.wait_for("the old worker retires", |status| {
        let workers = status["workers"].as_array()?;
        workers.iter().find(|w| w["pid"] == old && w["role"] == "retiring").map(|_| ())
    });
    streams.wait_frames(10);
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    instance.wait_for("the old worker is gone", |status| {
        (status["workers"].as_array()?.len() == 1).then_some(())
    });
    instance.stop();
}

#[test]
fn a_supervisor_that_is_asked_to_leave_leaves_its_workers() {
    let Echo { mut instance, entry, _upstream } = setting();
    let streams = Streams::open(entry, 4);
    let storm = Storm::start(entry, 2);
    let (worker, before) = (instance.serving(), inode(&instance));
    let config = instance.config();
    instance.signal(Signal::SIGUSR1);
    assert!(instance.wait_end().success());
    storm.wait_served(20);
    instance = instance.restart(&config);
    assert_eq!((instance.serving(), inode(&instance)), (worker, before));
    let report = storm.finish();
    assert_eq!((report.refused, report.reset, report.corrupt), (0, 0, 0), "{report:?}");
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    instance.stop();
}

#[test]
fn the_files_of_workers_go_with_them() {
    let Echo { instance, .. } = setting();
    let sockets = || {
        let folder = std::fs::read_dir(instance.runtime_dir()).unwrap();
        let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("worker-")).collect::<Vec<_>>()
    };
    assert_eq!(sockets(), ["worker-1.sock"]);
    instance.expect_ok(&["upgrade"]);
    until("the old one's is removed", || (sockets() == ["worker-2.sock"]).then_some(()));
    instance.stop();
}
