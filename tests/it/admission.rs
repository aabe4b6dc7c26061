//! Who is let in, how many at once, and what it costs when descriptors run out.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, Upstream, baton, until};

fn start(entry: SocketAddr, upstream: SocketAddr, extra: Value) -> Instance {
    let mut rule = json!({ "name": "r", "listen": entry.to_string(), "mode": "normal",
                           "targets": [{ "address": upstream.to_string() }] });
    for (key, value) in extra.as_object().unwrap() {
        rule[key] = value.clone();
    }
    Instance::start(&json!({ "rules": [rule] }))
}

/// Connects and exchanges a byte: whether the gateway let it in.
fn admitted(entry: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(entry).unwrap();
    let answered = stream.write_all(b"x").and_then(|()| stream.read_exact(&mut [0; 1]));
    match answered {
        Ok(()) => Some(stream),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ) =>
        {
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a57_the_rule_cap_closes_what_is_above_it_without_a_dial() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let instance = start(entry, upstream.address(), json!({ "maxConnections": 3 }));
    let held: Vec<_> = (0..3).map(|_| admitted(entry).expect("below the cap")).collect();
    assert!(admitted(entry).is_none());
    assert_eq!(upstream.accepted(), 3, "nothing was dialled for it");
    drop(held);
    until("a place is free again", || admitted(entry));
    assert!(instance.metric("baton_connections_rejected_total") >= 1.0);
    instance.stop();
}

#[test]
fn a56_a60_the_process_cap_is_shared_by_all_rules_and_closes_without_a_byte() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let [one, two] = std::array::from_fn(|_| loopback.next());
    let rule = |name: &str, entry: SocketAddr| {
        json!({ "name": name, "listen": entry.to_string(), "mode": "normal",
                "targets": [{ "address": upstream.address().to_string() }] })
    };
    let instance = Instance::start(&json!({
        "supervisor": { "maxConnections": 2 }, "rules": [rule("one", one), rule("two", two)] }));
    let _held = [admitted(one).unwrap(), admitted(two).unwrap()];
    for entry in [one, two] {
        let mut refused = TcpStream::connect(entry).unwrap();
        assert_eq!(refused.read(&mut [0; 1]).unwrap(), 0, "a plain close");
    }
    assert_eq!(upstream.accepted(), 2, "nothing was dialled for them");
    let reason = "reason=\"global_connection_limit\"";
    until("both are counted", || {
        (instance.series("baton_connections_rejected_total", reason) == 2.0).then_some(())
    });
    instance.stop();
}

#[test]
fn a57_the_cap_of_one_address_leaves_the_others_alone() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let instance = start(entry, upstream.address(), json!({ "maxConnectionsPerIP": 2 }));
    let _held = [admitted(entry).unwrap(), admitted(entry).unwrap()];
    assert!(admitted(entry).is_none());

    let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    other.bind(&SocketAddr::new(loopback.ip(), 0).into()).unwrap();
    other.connect(&entry.into()).unwrap();
    let mut other = TcpStream::from(other);
    other.write_all(b"x").unwrap();
    other.read_exact(&mut [0; 1]).unwrap();
    drop(other);
    instance.stop();
}

#[test]
fn lists_decide_by_the_client_address() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let [allowed, denied, black] = std::array::from_fn(|_| loopback.next());
    let rule = |name: &str, entry: SocketAddr, extra: Value| {
        let mut rule = json!({ "name": name, "listen": entry.to_string(), "mode": "normal",
                               "targets": [{ "address": upstream.address().to_string() }] });
        for (key, value) in extra.as_object().unwrap() {
            rule[key] = value.clone();
        }
        rule
    };
    let instance = Instance::start(&json!({ "rules": [
        rule("allowed", allowed, json!({ "allowlist": ["127.0.0.0/8"] })),
        rule("denied", denied, json!({ "allowlist": ["10.0.0.0/8"] })),
        rule("black", black, json!({ "blacklist": { "127.0.0.1": true, "127.0.0.2": false } })),
    ]}));
    assert!(admitted(allowed).is_some());
    assert!(admitted(denied).is_none());
    assert!(admitted(black).is_none());
    instance.stop();
}

#[test]
fn a_mapped_client_on_a_dual_stack_listener_counts_as_ipv4() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let port = Loopback::everywhere();
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": format!(":{port}"), "mode": "normal", "allowlist": ["127.0.0.0/8"],
          "targets": [{ "address": upstream.address().to_string() }] }]}));
    assert!(admitted(SocketAddr::new(loopback.ip(), port)).is_some());
    let v6: SocketAddr = format!("[::1]:{port}").parse().unwrap();
    if TcpStream::connect(v6).is_ok() {
        assert!(admitted(v6).is_none(), "::1 is not in the list");
    }
    instance.stop();
}

#[test]
fn running_out_of_descriptors_hurts_no_live_session_and_is_over_quickly() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let config = json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "normal", "maxConnectionsPerIP": 4096,
          "targets": [{ "address": upstream.address().to_string() }] }]});
    let mut limited = std::process::Command::new("prlimit");
    limited.args(["--nofile=128:128", "--"]).arg(baton().get_program());
    let instance = Instance::launch(&config, limited);
    instance.wait_for("a serving worker", |status| {
        (status["workers"][0]["role"] == "serving").then_some(())
    });
    assert!(instance.log().contains("descriptor"), "warns at start: {}", instance.log());

    let mut live = admitted(entry).unwrap();
    let crowd: Vec<_> = (0..300).map(|_| TcpStream::connect(entry).unwrap()).collect();
    for _ in 0..20 {
        live.write_all(b"y").unwrap();
        live.read_exact(&mut [0; 1]).unwrap();
    }
    drop(crowd);
    until("newcomers are served again", || admitted(entry));
    live.write_all(b"z").unwrap();
    live.read_exact(&mut [0; 1]).unwrap();
    instance.stop();
}
