//! Connections made ahead of need.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::harness::{Instance, Loopback, Upstream, until};

#[test]
fn clients_get_idle_connections_and_an_upgrade_makes_its_own() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let instance = Instance::start(&json!({
        "supervisor": { "watch": "0s" },
        "rules": [{ "name": "r", "listen": entry.to_string(), "mode": "boost", "prewarm": true,
                    "targets": [{ "address": upstream.address().to_string() }] }]
    }));
    let filled = || (instance.metric("baton_prewarm_idle") == 4.0).then_some(());
    until("a full pool", filled);
    let exchange = || {
        let mut stream = TcpStream::connect(entry).unwrap();
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
    };
    // The first has no winner to go by and races, which is always a dial; the others hit.
    exchange();
    for _ in 0..6 {
        exchange();
        until("a full pool", filled);
    }
    assert_eq!(instance.metric("baton_dial_attempts_total"), 1.0);
    assert_eq!(instance.metric("baton_prewarm_failures_total"), 0.0);
    let before = upstream.accepted();
    instance.expect_ok(&["upgrade"]);
    until("the new worker's pool", || (upstream.accepted() >= before + 4).then_some(()));
    until("a full pool", filled);
    exchange();
    instance.stop();
}

#[test]
fn a107_a108_an_open_breaker_empties_the_pool_and_its_probe_is_a_fresh_dial() {
    let loopback = Loopback::unique();
    let address = loopback.next();
    let upstream = Upstream::echo(address);
    let entry = loopback.next();
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "boost", "prewarm": true,
          "targets": [{ "address": address.to_string() }] }]}));
    let idle = |wanted: f64| {
        until("the pool is as it should be", || {
            (instance.metric("baton_prewarm_idle") == wanted).then_some(())
        });
    };
    idle(4.0);
    // Nothing listens any more, but what is idle lives on; a cold race does not take of it.
    drop(upstream);
    for _ in 0..3 {
        assert!(TcpStream::connect(entry).unwrap().read(&mut [0; 1]).is_err());
    }
    until("the breaker is open", || {
        (instance.metric("baton_route_circuit_open") == 1.0).then_some(())
    });
    idle(0.0);
    assert_eq!(instance.metric("baton_prewarm_desired"), 0.0);

    let upstream = Upstream::echo(address);
    let served = until("the probe is let through", || {
        let mut stream = TcpStream::connect(entry).unwrap();
        let answered = stream.write_all(b"x").and_then(|()| stream.read_exact(&mut [0; 1]));
        answered.ok().map(|()| stream)
    });
    assert_eq!(instance.metric("baton_dial_success_total"), 1.0);
    idle(4.0);
    drop((served, upstream));
    instance.stop();
}

#[test]
fn a93_a_client_that_gets_an_idle_connection_starts_no_hedge() {
    let loopback = Loopback::unique();
    let upstreams = [(); 2].map(|()| Upstream::echo(loopback.next()));
    let entry = loopback.next();
    let targets: Vec<_> = upstreams
        .iter()
        .map(|upstream| json!({ "address": upstream.address().to_string() }))
        .collect();
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "boost", "prewarm": true,
          "hedge": { "minDelay": 10, "maxDelay": 20 }, "targets": targets }]}));
    let exchange = || {
        let mut stream = TcpStream::connect(entry).unwrap();
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
    };
    let counted = || {
        let scheduled = instance.series("baton_boost_hedge_events_total", "outcome=\"scheduled\"");
        (instance.metric("baton_dial_attempts_total"), scheduled)
    };
    // The first races, which is always a dial.
    exchange();
    let mut idle = 0;
    until("ten have got an idle one", || {
        until("a full pool", || (instance.metric("baton_prewarm_idle") == 8.0).then_some(()));
        let before = counted();
        exchange();
        let after = counted();
        if before.0 == after.0 {
            assert_eq!(before.1, after.1, "no dial, no clock");
            idle += 1;
        }
        (idle == 10).then_some(())
    });
    instance.stop();
}
