//! Connections made ahead of need, through a whole worker.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use socket2::SockRef;

use super::boss::{Boss, Upstream, heard, nobody, rule_with};
use super::end_of;
use crate::net::testing::{PATIENCE, eventually, own_address};

const PREWARM: &str = r#""mode":"normal","prewarm":true"#;

/// A server that hands every connection to the test.
fn collector() -> (SocketAddr, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (found, connections) = channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if found.send(stream).is_err() {
                return;
            }
        }
    });
    (address, connections)
}

fn next(connections: &Receiver<TcpStream>) -> TcpStream {
    let stream = connections.recv_timeout(PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn pool(address: SocketAddr, metric: &str, value: u32) -> String {
    format!("baton_prewarm_{metric}{{target=\"{address}\"}} {value}\n")
}

#[test]
fn a_client_gets_an_idle_connection_and_another_takes_its_place() {
    let (target, connections) = collector();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule_with("r", address, &[target], PREWARM)]);
    boss.metrics_until(|text| text.contains(&pool(target, "idle", 4)));
    let idle: Vec<_> = (0..4).map(|_| next(&connections)).collect();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"hello").unwrap();
    // The fifth replaces the one that was taken: it cannot have been dialled before.
    let _fifth = next(&connections);
    boss.metrics_until(|text| text.contains(&pool(target, "idle", 4)));
    let attempts = format!("baton_dial_attempts_total{{rule=\"r\",target=\"{target}\"}} 0\n");
    assert!(boss.metrics().contains(&attempts), "{}", boss.metrics());
    // A refill is a sample.
    let observed = format!("baton_route_observed{{rule=\"r\",target=\"{target}\"}} 1\n");
    boss.metrics_until(|text| text.contains(&observed));
    eventually("the client's bytes", || {
        let heard = idle.iter().filter(|stream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0; 8]).is_ok()
        });
        let count = heard.count();
        assert!(count <= 1, "{count} have heard them");
        count == 1
    });
}

#[test]
fn only_rules_with_prewarm_take_from_a_pool() {
    let upstream = Upstream::named("up");
    let target = upstream.address;
    let mut boss = Boss::greeted();
    let (with, without) = (boss.listen(), boss.listen());
    let rules = [
        rule_with("with", with, &[target], PREWARM),
        rule_with("without", without, &[target], r#""mode":"normal""#),
    ];
    boss.serve(1, &rules);
    assert_eq!(heard(without).unwrap(), "up");
    let dialled = format!("baton_dial_attempts_total{{rule=\"without\",target=\"{target}\"}} 1\n");
    boss.metrics_until(|text| text.contains(&dialled));
}

#[test]
fn an_unhealthy_target_has_an_empty_pool_that_is_not_refilled() {
    let (well, unused) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let target = Upstream::with({
        let (well, unused) = (Arc::clone(&well), Arc::clone(&unused));
        move |mut stream| {
            // Checks ask at once, idle ones never.
            if stream.read(&mut [0; 1024])? == 0 {
                unused.fetch_add(1, Ordering::SeqCst);
            } else if well.load(Ordering::SeqCst) {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
            }
            Ok(())
        }
    });
    let target = target.address;
    let mut boss = Boss::greeted();
    let address = boss.listen();
    // One answer may come too late on a busy machine; four do not.
    let fields =
        format!(r#"{PREWARM},"healthCheck":{{"type":"http","interval":250,"failureThreshold":4}}"#);
    boss.serve(1, &[rule_with("r", address, &[target], &fields)]);
    boss.metrics_until(|text| text.contains(&pool(target, "idle", 4)));
    well.store(false, Ordering::SeqCst);
    boss.metrics_until(|text| {
        ["desired", "idle", "warming"].iter().all(|m| text.contains(&pool(target, m, 0)))
    });
    eventually("they are closed from our side", || unused.load(Ordering::SeqCst) >= 4);
}

#[test]
fn an_open_breaker_empties_the_pool_although_its_connections_live() {
    let target = own_address();
    let listener = TcpListener::bind(target).unwrap();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    // A race always dials, so the breaker learns that nobody listens while idle ones are there.
    let fields = r#""mode":"boost","prewarm":true"#;
    boss.serve(1, &[rule_with("r", address, &[target], fields)]);
    let idle: Vec<_> = (0..4).map(|_| listener.accept().unwrap().0).collect();
    boss.metrics_until(|text| text.contains(&pool(target, "idle", 4)));
    // At once, whoever has a copy.
    SockRef::from(&listener).shutdown(Shutdown::Both).unwrap();
    for _ in 0..3 {
        assert!(heard(address).is_err());
    }
    boss.metrics_until(|text| {
        ["desired", "idle", "warming"].iter().all(|m| text.contains(&pool(target, m, 0)))
    });
    for mut stream in idle {
        assert_eq!(end_of(&mut stream), Ok(0));
    }
}

#[test]
fn a_target_that_refuses_is_tried_again_with_pauses_and_counted() {
    let target = nobody();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule_with("r", address, &[target], PREWARM)]);
    boss.metrics_until(|text| {
        let failures = format!("baton_prewarm_failures_total{{target=\"{target}\"}} ");
        let count = text.split(&failures).nth(1).and_then(|rest| rest.lines().next());
        count.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count >= 6)
    });
    // Refills are no dials of clients: the line is untouched.
    let closed = format!("baton_route_circuit_open{{rule=\"r\",target=\"{target}\"}} 0\n");
    boss.metrics_until(|text| text.contains(&closed));
}

#[test]
fn pools_do_not_cross_a_reload_or_a_worker_that_stops_accepting() {
    let (target, connections) = collector();
    let mut boss = Boss::greeted();
    let (address, other) = (boss.listen(), boss.listen());
    let stays = rule_with("r", address, &[target], PREWARM);
    boss.serve(1, std::slice::from_ref(&stays));
    let first: Vec<_> = (0..4).map(|_| next(&connections)).collect();
    let second = rule_with("second", other, &[nobody()], r#""mode":"normal""#);
    boss.serve(2, &[stays, second]);
    for mut stream in first {
        assert_eq!(end_of(&mut stream), Ok(0));
    }
    let again: Vec<_> = (0..4).map(|_| next(&connections)).collect();
    boss.quiesce();
    for mut stream in again {
        assert_eq!(end_of(&mut stream), Ok(0));
    }
    boss.activate(2);
    let _back = next(&connections);
}

#[test]
fn a_server_that_breaks_an_idle_connection_at_its_first_use_is_not_blamed() {
    let (target, connections) = collector();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule_with("r", address, &[target], PREWARM)]);
    boss.metrics_until(|text| text.contains(&pool(target, "idle", 4)));
    let mut idle: Vec<_> = (0..4).map(|_| next(&connections)).collect();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"x").unwrap();
    let used = loop {
        let readable = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0]).is_ok()
        };
        match idle.iter().position(readable) {
            Some(used) => break idle.remove(used),
            None => std::thread::yield_now(),
        }
    };
    // With a byte unread the close is a reset.
    drop(used);
    assert_eq!(end_of(&mut client), Err(std::io::ErrorKind::ConnectionReset));
    let of_line = |metric, value| format!("{metric}{{rule=\"r\",target=\"{target}\"}} {value}\n");
    boss.metrics_until(|text| text.contains("baton_relay_duration_seconds_count{rule=\"r\"} 1\n"));
    boss.metrics_until(|text| text.contains(&of_line("baton_route_observed", 1)));
    assert!(boss.metrics().contains(&of_line("baton_route_consecutive_failures", 0)));
}
