//! Lines that are left out: by checks and by the breaker.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, Upstream, hear, until};

/// For how long a breaker that has just opened stays open.
const COOLING: Duration = Duration::from_secs(5);

fn start(entry: SocketAddr, mode: &str, targets: &[SocketAddr], extra: Value) -> Instance {
    let targets: Vec<_> =
        targets.iter().map(|address| json!({ "address": address.to_string() })).collect();
    let mut rule =
        json!({ "name": "r", "listen": entry.to_string(), "mode": mode, "targets": targets });
    for (key, value) in extra.as_object().unwrap() {
        rule[key] = value.clone();
    }
    Instance::start(&json!({ "rules": [rule] }))
}

fn of(target: SocketAddr) -> String {
    format!("target=\"{target}\"")
}

fn wait_unhealthy(instance: &Instance, target: SocketAddr, value: f64) {
    until("the checks have decided", || {
        let seen = instance.series("baton_active_health_unhealthy", &of(target));
        (seen == value).then_some(())
    });
}

/// The head of a request, to the blank line or the end.
fn asked(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    head
}

#[test]
fn a109_a_tcp_check_leaves_a_target_out_before_any_client_finds_it_dead() {
    let loopback = Loopback::unique();
    let first_address = loopback.next();
    let first = Upstream::named(first_address, "first");
    let second = Upstream::named(loopback.next(), "second");
    let entry = loopback.next();
    let checks = json!({ "healthCheck": { "type": "tcp", "interval": 250, "timeout": 200,
                                          "failureThreshold": 2, "successThreshold": 2 } });
    let instance = start(entry, "normal", &[first_address, second.address()], checks);
    assert_eq!(hear(entry).unwrap(), "first");
    drop(first);
    wait_unhealthy(&instance, first_address, 1.0);
    let dials = || instance.series("baton_dial_attempts_total", &of(first_address));
    let before = dials();
    assert_eq!(hear(entry).unwrap(), "second");
    assert_eq!(dials(), before, "it is not even tried");
    assert_eq!(
        instance.series("baton_route_consecutive_failures", &of(first_address)),
        0.0,
        "probes are no clients"
    );
    let _first = Upstream::named(first_address, "first");
    wait_unhealthy(&instance, first_address, 0.0);
    assert_eq!(hear(entry).unwrap(), "first");
    instance.stop();
}

#[test]
fn a110_an_http_check_goes_by_the_status() {
    let loopback = Loopback::unique();
    let well = Arc::new(AtomicBool::new(true));
    let probes = Arc::new(AtomicU64::new(0));
    let first = Upstream::serve(loopback.next(), {
        let (well, probes) = (Arc::clone(&well), Arc::clone(&probes));
        move |mut stream| {
            let request = asked(&mut stream);
            if request.starts_with(b"GET /ready?x=1 HTTP/1.1\r\n") {
                probes.fetch_add(1, Ordering::SeqCst);
            }
            let status = if well.load(Ordering::SeqCst) { 204 } else { 503 };
            let _gone = write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let second = Upstream::serve(loopback.next(), |mut stream| {
        asked(&mut stream);
        let _gone = stream.write_all(b"HTTP/1.1 200 second\r\nContent-Length: 0\r\n\r\n");
    });
    let entry = loopback.next();
    let checks = json!({ "healthCheck": { "type": "http", "path": "/ready?x=1", "interval": 1000,
        "timeout": 1000, "failureThreshold": 3, "successThreshold": 1, "statusMin": 200, "statusMax": 299 } });
    let instance = start(entry, "normal", &[first.address(), second.address()], checks);
    let ask = || {
        let mut stream = TcpStream::connect(entry).unwrap();
        let _heard = stream.write_all(b"? HTTP/1.1\r\n\r\n");
        let mut answer = String::new();
        let _reset = stream.read_to_string(&mut answer);
        answer
    };
    assert!(ask().starts_with("HTTP/1.1 204"));
    well.store(false, Ordering::SeqCst);
    wait_unhealthy(&instance, first.address(), 1.0);
    assert!(ask().starts_with("HTTP/1.1 200 second"));
    well.store(true, Ordering::SeqCst);
    wait_unhealthy(&instance, first.address(), 0.0);
    assert!(ask().starts_with("HTTP/1.1 204"));
    assert!(probes.load(Ordering::SeqCst) >= 3);
    instance.stop();
}

#[test]
fn a77_a78_the_breaker_opens_after_three_and_the_first_client_after_cooling_is_the_probe() {
    // A machine too busy to do it all within the cooling time has proved nothing.
    until("all is seen while the breaker cools", || {
        let loopback = Loopback::unique();
        let dead = loopback.next();
        let second = Upstream::named(loopback.next(), "second");
        let entry = loopback.next();
        let instance = start(entry, "normal", &[dead, second.address()], json!({}));
        let attempts = || instance.series("baton_dial_attempts_total", &of(dead));
        let open = || instance.series("baton_route_circuit_open", &of(dead));
        for _ in 0..2 {
            assert_eq!(hear(entry).unwrap(), "second");
        }
        assert_eq!((attempts(), open()), (2.0, 0.0));
        let before = Instant::now();
        assert_eq!(hear(entry).unwrap(), "second");
        let after = Instant::now();
        until("the breaker shows open", || (open() == 1.0).then_some(()));
        for _ in 0..20 {
            assert_eq!(hear(entry).unwrap(), "second");
        }
        let tried = attempts();
        if before.elapsed() >= COOLING {
            return None;
        }
        assert_eq!(tried, 3.0, "nobody tries an open line");

        // No traffic and no checks meanwhile: nothing but time readmits it.
        let first = Upstream::named(dead, "first");
        while after.elapsed() < COOLING {
            std::thread::park_timeout(COOLING.saturating_sub(after.elapsed()));
        }
        assert_eq!(hear(entry).unwrap(), "first", "the first client after cooling is the probe");
        assert_eq!(attempts(), 4.0);
        assert_eq!(hear(entry).unwrap(), "first");
        until("the breaker shows closed", || (open() == 0.0).then_some(()));
        drop(first);
        instance.stop();
        Some(())
    });
}

#[test]
fn b15_a84_with_every_line_open_the_client_is_closed_without_a_dial() {
    let loopback = Loopback::unique();
    let dead = [loopback.next(), loopback.next()];
    for mode in ["normal", "boost", "roundrobin"] {
        let entry = loopback.next();
        let instance = start(entry, mode, &dead, json!({}));
        let attempts = || instance.metric("baton_dial_attempts_total");
        until("both breakers are open", || {
            assert!(hear(entry).is_err());
            (instance.metric("baton_route_circuit_open") == 2.0).then_some(())
        });
        // On a busy machine they may have cooled meanwhile, and then somebody is the probe.
        until("nobody is dialled", || {
            let before = attempts();
            assert!(hear(entry).is_err(), "reset");
            (attempts() == before).then_some(())
        });
        instance.stop();
    }
}

#[test]
fn a81_a_relay_that_breaks_in_the_middle_is_not_the_lines_fault() {
    let loopback = Loopback::unique();
    let upstream = Upstream::serve(loopback.next(), |mut stream| {
        let _heard = stream.read(&mut [0; 8]);
        let _told = stream.write_all(b"half an ans");
        let socket = socket2::Socket::from(stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    });
    let entry = loopback.next();
    let instance = start(entry, "normal", &[upstream.address()], json!({}));
    for _ in 0..6 {
        let mut client = TcpStream::connect(entry).unwrap();
        client.write_all(b"question").unwrap();
        let mut heard = Vec::new();
        assert!(client.read_to_end(&mut heard).is_err(), "the reset is passed on");
    }
    until("all are accounted for", || {
        (instance.metric("baton_relay_duration_seconds_count") == 6.0).then_some(())
    });
    assert_eq!(instance.metric("baton_dial_success_total"), 6.0);
    assert_eq!(instance.metric("baton_route_circuit_open"), 0.0);
    instance.stop();
}

#[test]
fn a17_a_retired_generation_probes_nobody_while_its_connections_drain() {
    let loopback = Loopback::unique();
    let watched = Upstream::echo(loopback.next());
    let clock = Upstream::echo(loopback.next());
    let [entry, other] = std::array::from_fn(|_| loopback.next());
    let rule = |name: &str, entry: SocketAddr, target: &Upstream, checked: bool| {
        let mut rule = json!({ "name": name, "listen": entry.to_string(), "mode": "normal",
                               "targets": [{ "address": target.address().to_string() }] });
        if checked {
            rule["healthCheck"] = json!({ "type": "tcp", "interval": 250 });
        }
        rule
    };
    let config = |checked: bool| json!({ "rules": [rule("r", entry, &watched, checked), rule("clock", other, &clock, true)] });
    let instance = Instance::start(&config(true));
    let mut held = TcpStream::connect(entry).unwrap();
    held.write_all(b"x").unwrap();
    held.read_exact(&mut [0; 1]).unwrap();
    until("probes run", || (watched.accepted() >= 3).then_some(()));
    instance.configure(&config(false));
    instance.expect_ok(&["reload"]);
    // A probe that was under way may still arrive; after that, the other rule tells the time.
    let rounds = |count: u64| {
        let start = clock.accepted();
        until("other probes go on", || (clock.accepted() >= start + count).then_some(()));
    };
    rounds(2);
    // Whatever came before our own is counted when that is.
    let counted = || {
        let before = watched.accepted();
        drop(TcpStream::connect(watched.address()).unwrap());
        until("our own is counted", || {
            let now = watched.accepted();
            (now > before).then_some(now)
        })
    };
    let before = counted();
    rounds(5);
    assert_eq!(counted(), before + 1);
    assert_eq!(instance.metric("baton_routing_retired_generations"), 1.0);
    held.write_all(b"y").unwrap();
    held.read_exact(&mut [0; 1]).unwrap();
    drop(held);
    instance.stop();
}

#[test]
fn b15_b21_failed_connections_are_told_at_most_once_a_second_with_how_many_were_not() {
    let loopback = Loopback::unique();
    let entry = loopback.next();
    let instance = start(entry, "normal", &[loopback.next()], json!({}));
    let begun = Instant::now();
    let count = 200;
    for _ in 0..count {
        assert!(hear(entry).is_err());
    }
    let seconds = begun.elapsed().as_secs();
    let told: Vec<Value> = until("the first is told", || {
        let log = instance.log();
        // The last line may be half written.
        let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let told = whole.filter(|line| line.contains("connection failed"));
        let told: Vec<_> = told.map(|line| serde_json::from_str(line).unwrap()).collect();
        (!told.is_empty()).then_some(told)
    });
    let lines = u64::try_from(told.len()).unwrap();
    assert!((1..=seconds + 2).contains(&lines), "{lines} lines in {seconds} s");
    for line in &told {
        assert_eq!((&line["ruleName"], &line["level"]), (&json!("r"), &json!("WARN")));
        assert!(line["remoteAddr"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(["all_failed", "none_usable"].contains(&line["reason"].as_str().unwrap()));
    }
    let left_out: u64 = told.iter().map(|line| line["left_out"].as_u64().unwrap()).sum();
    assert!(lines + left_out <= count);
    instance.stop();
}
