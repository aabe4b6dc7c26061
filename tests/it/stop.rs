//! The end: drain, cut, exit codes, one instance a directory.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, Scratch, Streams, Upstream, baton, until};

fn config(entry: SocketAddr, upstream: SocketAddr, drain: &str) -> Value {
    json!({
        "supervisor": { "drainTimeout": drain },
        "rules": [{ "name": "echo", "listen": entry.to_string(), "mode": "normal",
                    "targets": [{ "address": upstream.to_string() }] }]
    })
}

#[test]
fn a_transfer_that_ends_in_time_is_not_cut() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let mut instance = Instance::start(&config(entry, upstream.address(), "5m"));
    let mut client = TcpStream::connect(entry).unwrap();
    client.write_all(b"before").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();

    instance.signal(Signal::SIGTERM);
    until("no new connection is let in", || TcpStream::connect(entry).err().map(|_| ()));
    // Three seconds of transfer, one frame at a time.
    for _ in 0..30 {
        client.write_all(b"during").unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
        std::thread::park_timeout(Duration::from_millis(100));
    }
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "a clean end");
    assert!(instance.wait_end().success());
}

#[test]
fn an_endless_transfer_is_cut_by_the_limit() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let mut instance = Instance::start(&config(entry, upstream.address(), "1s"));
    let streams = Streams::open(entry, 4);
    instance.signal(Signal::SIGTERM);
    assert!(instance.wait_end().success(), "cut connections are no failure");
    for result in streams.finish() {
        let error = result.unwrap_err();
        assert!(!error.contains("too many"), "reset, no clean end: {error}");
    }
}

#[test]
fn a_stop_tells_how_many_connections_it_cut() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let mut instance = Instance::start(&config(entry, upstream.address(), "0s"));
    let streams = Streams::open(entry, 3);
    let said = instance.expect_ok(&["stop"]);
    assert!(said.contains("stopped; 3 connections were cut"), "{said}");
    assert!(instance.wait_end().success());
    for result in streams.finish() {
        result.unwrap_err();
    }
}

#[test]
fn a_second_signal_cuts_at_once() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let mut instance = Instance::start(&config(entry, upstream.address(), "10m"));
    let streams = Streams::open(entry, 4);
    instance.signal(Signal::SIGINT);
    instance
        .wait_for("it stops", |status| (status["supervisor"]["state"] == "stopping").then_some(()));
    instance.signal(Signal::SIGINT);
    assert!(instance.wait_end().success());
    assert!(streams.finish().iter().all(Result::is_err));
}

#[test]
fn the_command_stops_and_waits() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let mut instance = Instance::start(&config(entry, upstream.address(), "5m"));
    instance.expect_ok(&["stop"]);
    assert!(instance.wait_end().success());
    assert_eq!(instance.run(&["status"]).code, 3);
    assert_eq!(instance.run(&["metrics"]).code, 0, "the counters are still there");
}

#[test]
fn a_second_command_cuts_at_once() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let mut instance = Instance::start(&config(entry, upstream.address(), "10m"));
    let streams = Streams::open(entry, 4);
    let mut first = instance.command(&["stop"]).spawn().unwrap();
    instance
        .wait_for("it stops", |status| (status["supervisor"]["state"] == "stopping").then_some(()));
    instance.expect_ok(&["stop"]);
    assert!(first.wait().unwrap().success(), "the first one hears of the end too");
    assert!(instance.wait_end().success());
    assert!(streams.finish().iter().all(Result::is_err));
}

#[test]
fn a_second_instance_says_so_and_exits() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let instance = Instance::start(&config(loopback.next(), upstream.address(), "5m"));
    let scratch = Scratch::new();
    let other = config(loopback.next(), upstream.address(), "5m").to_string();
    let file = scratch.file("other.json", other);
    let outcome = baton()
        .args(["run", "--config"])
        .arg(&file)
        .arg("--runtime-dir")
        .arg(instance.runtime_dir())
        .output()
        .unwrap();
    assert_eq!(outcome.status.code(), Some(1));
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(said.contains("another instance is running"), "{said}");
    assert!(said.contains(&format!("pid {}", instance.pid())), "{said}");
    instance.stop();
}

#[test]
fn a_port_that_is_taken_at_start_ends_it_with_every_problem() {
    let loopback = Loopback::unique();
    let taken = [loopback.next(), loopback.next()];
    let _holders = taken.map(|address| std::net::TcpListener::bind(address).unwrap());
    let rules: Vec<_> = taken
        .iter()
        .enumerate()
        .map(|(number, entry)| {
            json!({ "name": format!("r{number}"), "listen": entry.to_string(), "mode": "normal",
                    "targets": [{ "address": "127.0.0.1:1" }] })
        })
        .collect();
    let mut instance = Instance::launch(&json!({ "rules": rules }), baton());
    assert_eq!(instance.wait_end().code(), Some(1));
    for (number, entry) in taken.iter().enumerate() {
        let expected = format!("listen r{number} at {entry}: Address already in use");
        assert!(instance.log().contains(&expected), "{}", instance.log());
    }
}
