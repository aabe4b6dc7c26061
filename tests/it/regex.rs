//! `regex`: several protocols on one port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Hello, Instance, Loopback, Upstream, converse, deliver, hear, until};

fn start(entry: SocketAddr, extra: Value, targets: Value) -> Instance {
    let mut rule = json!({ "name": "r", "listen": entry.to_string(), "mode": "regex",
                           "targets": targets });
    for (key, value) in extra.as_object().unwrap() {
        rule[key] = value.clone();
    }
    Instance::start(&json!({ "rules": [rule] }))
}

/// HTTP, SSH and TLS by their first bytes, and a banner for whoever stays silent.
fn shared_port(timeout: u64) -> (Instance, SocketAddr, Vec<Upstream>) {
    let loopback = Loopback::unique();
    let mut upstreams: Vec<_> =
        ["http", "ssh", "tls"].map(|name| Upstream::reporting(loopback.next(), name)).into();
    upstreams.push(Upstream::named(loopback.next(), "220 mail.example\r\n"));
    let address = |number: usize| upstreams[number].address().to_string();
    let entry = loopback.next();
    let targets = json!([
        { "address": address(0), "regexp": r"^(GET|POST|HEAD) [^ ]* HTTP/1" },
        { "address": address(1), "regexp": r"^SSH-[12]\." },
        { "address": address(2), "regexp": r"^\x16\x03[\x00-\x03]" },
        { "address": address(3) },
    ]);
    (start(entry, json!({ "timeout": timeout }), targets), entry, upstreams)
}

#[test]
fn a63_http_ssh_and_tls_share_a_port_and_all_bytes_arrive() {
    let (instance, entry, _upstreams) = shared_port(60_000);
    let long = format!("GET / HTTP/1.1\r\nCookie: {}\r\n\r\n", "x".repeat(20_000));
    let hello = Hello::named(b"one.example").bytes();
    for (bytes, name) in
        [(long.as_bytes(), &b"http:"[..]), (b"SSH-2.0-OpenSSH_9.2\r\n", b"ssh:"), (&hello, b"tls:")]
    {
        assert!(converse(entry, bytes).unwrap() == [name, bytes].concat());
    }
    instance.stop();
}

#[test]
fn a64_single_bytes_are_matched_as_they_come_and_at_every_split() {
    let (instance, entry, upstreams) = shared_port(60_000);
    let request = b"GET /index.html HTTP/1.1\r\n\r\n";
    let wanted = [&b"http:"[..], request].concat();
    assert_eq!(deliver(entry, request.chunks(1)).unwrap(), wanted);
    for split in 1..request.len() {
        assert_eq!(deliver(entry, [&request[..split], &request[split..]]).unwrap(), wanted);
    }
    // Decided by its first bytes, with the rest still to come: no 4 KiB, no end is waited for.
    let mut client = TcpStream::connect(entry).unwrap();
    client.write_all(b"SSH-2.").unwrap();
    let ssh = format!("target=\"{}\"", upstreams[1].address());
    until("the target is dialled", || {
        (instance.series("baton_dial_success_total", &ssh) == 1.0).then_some(())
    });
    instance.stop();
}

#[test]
fn b11_a_client_that_waits_for_the_server_gets_the_fallback_at_the_deadline() {
    let (instance, entry, _upstreams) = shared_port(250);
    let start = Instant::now();
    assert_eq!(hear(entry).unwrap(), "220 mail.example\r\n");
    assert!(start.elapsed() >= Duration::from_millis(250));
    instance.stop();
}

#[test]
fn b11_what_can_match_nothing_goes_to_the_fallback_at_once() {
    // Were the deadline waited for, the test would never see the answer.
    let (instance, entry, _upstreams) = shared_port(300_000);
    let mut client = TcpStream::connect(entry).unwrap();
    client.write_all(b"EHLO x\r\n").unwrap();
    let mut banner = [0; 18];
    client.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"220 mail.example\r\n");
    instance.stop();
}

#[test]
fn a65_without_a_match_and_a_fallback_nobody_is_dialled() {
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "x");
    let entry = loopback.next();
    let targets = json!([{ "address": upstream.address().to_string(), "regexp": "needle" }]);
    let instance = start(entry, json!({ "timeout": "5m" }), targets.clone());
    let hay = vec![b'-'; 4096];
    let late = [&hay[..], b"needle"].concat();
    for (bytes, what) in
        [(&b""[..], "the end"), (b"nee", "an end within"), (&hay, "4 KiB"), (&late, "a late match")]
    {
        assert_eq!(converse(entry, bytes).unwrap_or_default(), b"", "{what}");
    }
    assert_eq!(upstream.accepted(), 0);
    let just = [&hay[..4090], b"needle"].concat();
    assert_eq!(converse(entry, &just).unwrap().len(), 2 + just.len());
    instance.stop();
    let entry = loopback.next();
    let instance = start(entry, json!({ "timeout": 250 }), targets);
    assert_eq!(hear(entry).unwrap_or_default(), "", "silence");
    assert_eq!(upstream.accepted(), 1);
    instance.stop();
}

#[test]
fn a66_the_next_matching_target_serves_when_the_first_is_dead() {
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "second");
    let other = Upstream::reporting(loopback.next(), "other");
    let entry = loopback.next();
    let targets = json!([
        { "address": loopback.next().to_string(), "regexp": "^SSH-" },
        { "address": other.address().to_string(), "regexp": "^GET" },
        { "address": upstream.address().to_string(), "regexp": "^SSH-2" },
    ]);
    let instance = start(entry, json!({ "timeout": "1m" }), targets);
    // Up to the last byte of the longer pattern in one segment, so that both match at once.
    assert_eq!(converse(entry, b"SSH-2.0").unwrap(), b"second:SSH-2.0");
    assert_eq!(other.accepted(), 0);
    instance.stop();
}
