//! What a worker may do: nothing it does not need.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use nix::unistd::Uid;
use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, Upstream};

fn status_of(pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

fn start(supervisor: Value) -> (Instance, std::net::SocketAddr, Upstream) {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let instance = Instance::start(&json!({
        "supervisor": supervisor,
        "rules": [{ "name": "r", "listen": entry.to_string(), "mode": "normal",
                    "targets": [{ "address": upstream.address().to_string() }] }]
    }));
    (instance, entry, upstream)
}

#[test]
fn a_worker_can_never_gain_privileges() {
    let (instance, _entry, _upstream) = start(json!({}));
    assert_eq!(status_of(instance.serving())["NoNewPrivs"], "1");
    instance.stop();
}

#[test]
fn a_configured_user_is_all_a_worker_is() {
    if !Uid::effective().is_root() {
        eprintln!("SKIPPED: supervisor.user needs root");
        return;
    }
    let (instance, entry, _upstream) = start(json!({ "user": "65534:65533", "watch": "0s" }));
    for round in 0..2 {
        let status = status_of(instance.serving());
        let ids = |key: &str| status[key].split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(ids("Uid"), ["65534"; 4]);
        assert_eq!(ids("Gid"), ["65533"; 4]);
        assert_eq!(status["Groups"], "");
        for set in ["CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status[set], "0000000000000000", "{set}");
        }
        let mut stream = TcpStream::connect(entry).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        if round == 0 {
            instance.expect_ok(&["upgrade"]);
        }
    }
    instance.stop();
}

#[test]
fn a_user_nobody_knows_ends_the_start() {
    if !Uid::effective().is_root() {
        eprintln!("SKIPPED: supervisor.user needs root");
        return;
    }
    let loopback = Loopback::unique();
    let mut instance = Instance::launch(
        &json!({ "supervisor": { "user": "nobody-of-that-name" },
                 "rules": [{ "name": "r", "listen": loopback.next().to_string(), "mode": "normal",
                             "targets": [{ "address": "127.0.0.1:1" }] }] }),
        crate::harness::baton(),
    );
    assert_eq!(instance.wait_end().code(), Some(1));
    assert!(instance.log().contains("no user is called"), "{}", instance.log());
}
