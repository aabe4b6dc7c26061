//! An upgrade takes the established connections along.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::harness::{Echo, Streams};

/// Connections that have heard one echo and then say nothing.
pub(crate) fn quiet(entry: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count)
        .map(|_| {
            let mut stream = TcpStream::connect(entry).unwrap();
            echoed(&mut stream);
            stream
        })
        .collect()
}

pub(crate) fn echoed(stream: &mut TcpStream) {
    stream.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
}

#[test]
fn an_upgrade_leaves_no_connection_behind() {
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "watch": "0s", "drainTimeout": "5m" }));
    let mut idle = quiet(entry, 500);
    let streams = Streams::open(entry, 50);
    for _ in 0..3 {
        let old = instance.serving();
        instance.expect_ok(&["upgrade"]);
        instance.wait_replaced(old);
        // It ends although its clients are all still there.
        instance.wait_for("the old worker is gone", |status| {
            (status["workers"].as_array()?.len() == 1).then_some(())
        });
        streams.wait_frames(20);
    }
    idle.iter_mut().for_each(echoed);
    assert_eq!(instance.series("baton_migrated_connections_total", r#"result="moved""#), 1650.0);
    assert_eq!(instance.series("baton_migrated_connections_total", r#"result="kept""#), 0.0);
    assert_eq!(instance.metric("baton_connections_accepted_total"), 550.0);
    assert_eq!(instance.metric("baton_connections_active"), 550.0);
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    drop(idle);
    instance.stop();
}

#[test]
fn a_new_version_that_dies_at_once_gives_its_connections_back() {
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "watch": "2m", "drainTimeout": "5m" }));
    let mut idle = quiet(entry, 200);
    let old = instance.serving();
    let mut upgrade = instance.command(&["upgrade"]).spawn().unwrap();
    let new = instance.wait_for("the new worker serves", |status| {
        let workers = status["workers"].as_array()?;
        let serving = workers.iter().find(|worker| worker["role"] == "serving")?;
        let pid = u32::try_from(serving["pid"].as_u64()?).ok()?;
        (pid != old).then_some(pid)
    });
    instance.wait_for("connections have moved", |_| {
        let moved = instance.series("baton_migrated_connections_total", r#"result="moved""#);
        (moved > 0.0).then_some(())
    });
    instance.kill_worker(new);
    assert!(!upgrade.wait().unwrap().success());
    assert_eq!(instance.serving(), old);
    idle.iter_mut().for_each(echoed);
    drop(idle);
    instance.stop();
}

#[test]
fn with_listeners_alone_connections_stay_where_they_are() {
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "watch": "0s", "drainTimeout": "5m", "handover": "listeners" }));
    let mut idle = quiet(entry, 5);
    let old = instance.serving();
    instance.expect_ok(&["upgrade"]);
    instance.wait_for("the old worker retires", |status| {
        let workers = status["workers"].as_array()?;
        workers.iter().find(|w| w["pid"] == old && w["role"] == "retiring").map(|_| ())
    });
    idle.iter_mut().for_each(echoed);
    assert_eq!(instance.series("baton_migrated_connections_total", r#"result="moved""#), 0.0);
    drop(idle);
    instance.stop();
}
