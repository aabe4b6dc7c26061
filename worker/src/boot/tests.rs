//! A whole worker on threads of this process, driven over its control channel by a supervisor
//! that does what it is told.
#![allow(clippy::wildcard_enum_match_arm)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use baton_handoff::message::{Generation, ToSupervisor, ToWorker};

mod boss;
mod inspected;
mod modes;
mod moving;
mod observed;
mod prewarm;
mod recovered;
mod streams;

use boss::{Boss, Upstream, config, heard, nobody, rule, rule_with};

fn echoed(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, text);
}

/// Clients that have heard their echo, connected one after the other.
fn clients(address: SocketAddr, count: usize, text: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        echoed(&mut stream, text);
        stream
    };
    (0..count).map(connect).collect()
}

/// How a connection ends for a client that says nothing more.
fn end_of(stream: &mut TcpStream) -> Result<usize, ErrorKind> {
    stream.read(&mut [0; 64]).map_err(|error| error.kind())
}

#[test]
fn a_worker_relays_once_it_is_active_and_drains_when_told() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut client = TcpStream::connect(address).unwrap();
    echoed(&mut client, b"hello");
    drop(client);
    assert_eq!(boss.drain(Duration::from_secs(10)), 0);
    assert!(boss.ended());
}

#[test]
fn nothing_is_accepted_before_activation() {
    let upstream = Upstream::named("up");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let plan = boss.prepare(1, &config(&[rule("r", address, &[upstream.address])])).unwrap();
    boss.hand_over(&plan);
    let mut early = TcpStream::connect(address).unwrap();
    assert_eq!(boss.ping().connections, 0);
    boss.activate(1);
    let mut text = String::new();
    early.read_to_string(&mut text).unwrap();
    assert_eq!(text, "up");
}

#[test]
fn a_half_closed_request_gets_its_whole_answer() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut client = TcpStream::connect(address).unwrap();
    let request = vec![7; 1 << 20];
    let mut writer = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        writer.write_all(&request).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        request.len()
    });
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len(), sending.join().unwrap());
}

#[test]
fn the_next_target_serves_when_the_first_refuses() {
    let upstream = Upstream::named("second");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[nobody(), upstream.address])]);
    assert_eq!(heard(address).unwrap(), "second");
}

#[test]
fn a_client_without_an_upstream_is_reset() {
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[nobody()])]);
    assert_eq!(heard(address).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_reload_changes_the_rules_of_new_connections_only() {
    let (old, new) = (Upstream::echo(), Upstream::named("new"));
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[old.address])]);
    let mut kept = TcpStream::connect(address).unwrap();
    echoed(&mut kept, b"before");
    boss.serve(2, &[rule("r", address, &[new.address])]);
    assert_eq!(heard(address).unwrap(), "new");
    echoed(&mut kept, b"after");
    let pulse = boss.ping();
    assert_eq!((pulse.generation, pulse.retired_generations), (Generation(2), 1));
    drop(kept);
    boss.pulse_until(|pulse| pulse.retired_generations == 0 && pulse.connections == 0);
}

#[test]
fn listeners_come_and_go_with_a_reload() {
    let (one, two) = (Upstream::named("one"), Upstream::named("two"));
    let mut boss = Boss::greeted();
    let (first, second) = (boss.listen(), boss.listen());
    boss.serve(1, &[rule("a", first, &[one.address])]);
    boss.serve(2, &[rule("b", second, &[two.address])]);
    assert_eq!(heard(second).unwrap(), "two");
    // Whoever connects to the removed address waits for somebody else to accept.
    let mut waiting = TcpStream::connect(first).unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(end_of(&mut waiting), Err(ErrorKind::WouldBlock));
    boss.serve(3, &[rule("a", first, &[one.address])]);
    assert_eq!(heard(first).unwrap(), "one");
}

#[test]
fn an_equal_configuration_changes_nothing() {
    let upstream = Upstream::named("up");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let rules = [rule("r", address, &[upstream.address])];
    boss.serve(1, &rules);
    assert!(boss.prepare(2, &config(&rules)).unwrap().unchanged);
    assert_eq!(boss.ping().generation, Generation(1));
    assert_eq!(heard(address).unwrap(), "up");
}

#[test]
fn every_problem_of_a_configuration_is_told_and_nothing_changes() {
    let upstream = Upstream::named("up");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let good = rule("r", address, &[upstream.address]);
    boss.serve(1, std::slice::from_ref(&good));
    let problems = boss.prepare(2, r#"{"rules":[{"name":"x"}],"other":1}"#).unwrap_err();
    assert!(problems.len() > 1, "{problems:?}");
    assert!(problems.iter().all(|line| line.starts_with("test.json:1:")), "{problems:?}");
    let changed = config(&[good]).replace("\"workerThreads\":2", "\"workerThreads\":3");
    let problems = boss.prepare(2, &changed).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("needs a restart"), "{problems:?}");
    assert_eq!(heard(address).unwrap(), "up");
}

#[test]
fn a_quiesced_worker_leaves_clients_in_the_queue_and_takes_them_when_activated_again() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut kept = TcpStream::connect(address).unwrap();
    echoed(&mut kept, b"one");
    boss.quiesce();
    let mut waiting: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    echoed(&mut kept, b"two");
    assert_eq!(boss.ping().connections, 1);
    boss.activate(1);
    for client in &mut waiting {
        echoed(client, b"three");
    }
}

#[test]
fn a_drain_waits_for_what_still_runs() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut client = TcpStream::connect(address).unwrap();
    echoed(&mut client, b"one");
    boss.begin_drain(Duration::from_secs(60));
    boss.pulse_until(|pulse| pulse.connections == 1);
    echoed(&mut client, b"two");
    drop(client);
    assert_eq!(boss.hear(), ToSupervisor::Drained { cut: 0 });
    assert!(boss.ended());
}

#[test]
fn what_is_left_at_the_limit_is_reset_on_both_sides() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut clients: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    for client in &mut clients {
        echoed(client, b"live");
    }
    assert_eq!(boss.drain(Duration::ZERO), 10);
    for client in &mut clients {
        assert_eq!(end_of(client), Err(ErrorKind::ConnectionReset));
    }
    assert!(boss.ended());
}

#[test]
fn a_ninth_draining_generation_is_refused() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let mut kept = Vec::new();
    for number in 1..=9 {
        // The name differs, so each is a change.
        boss.serve(number, &[rule(&format!("r{number}"), address, &[upstream.address])]);
        let mut client = TcpStream::connect(address).unwrap();
        echoed(&mut client, b"hold");
        kept.push(client);
    }
    assert_eq!(boss.ping().retired_generations, 8);
    let next = config(&[rule("r10", address, &[upstream.address])]);
    let problems = boss.prepare(10, &next).unwrap_err();
    assert_eq!(problems, ["reload refused: 8 generations are still draining"]);
    drop(kept.remove(0));
    boss.pulse_until(|pulse| pulse.retired_generations == 7);
    boss.serve(10, &[rule("r10", address, &[upstream.address])]);
}

#[test]
fn limits_and_lists_close_without_a_word() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let (few, denied) = (boss.listen(), boss.listen());
    let limit = r#""mode":"normal","maxConnections":2,"maxConnectionsPerIP":2"#;
    let list = r#""mode":"normal","allowlist":["10.0.0.0/8"]"#;
    boss.serve(
        1,
        &[
            rule_with("few", few, &[upstream.address], limit),
            rule_with("denied", denied, &[upstream.address], list),
        ],
    );
    let mut kept: Vec<_> = (0..2).map(|_| TcpStream::connect(few).unwrap()).collect();
    for client in &mut kept {
        echoed(client, b"in");
    }
    assert_eq!(heard(few).unwrap(), "");
    assert_eq!(heard(denied).unwrap(), "");
    drop(kept);
    boss.pulse_until(|pulse| pulse.connections == 0);
    echoed(&mut TcpStream::connect(few).unwrap(), b"in again");
}

#[test]
fn limits_count_connections_of_earlier_generations() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let fields = r#""mode":"normal","maxConnections":1"#;
    boss.serve(1, &[rule_with("a", address, &[upstream.address], fields)]);
    let mut kept = TcpStream::connect(address).unwrap();
    echoed(&mut kept, b"in");
    boss.serve(2, &[rule_with("b", address, &[upstream.address], fields)]);
    assert_eq!(heard(address).unwrap(), "");
}

#[test]
fn a_silent_connection_ends_at_its_idle_limit_with_a_reset() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    // Long enough for the one exchange, however busy the machine.
    let fields = r#""mode":"normal","idleTimeout":5000"#;
    boss.serve(1, &[rule_with("r", address, &[upstream.address], fields)]);
    let mut client = TcpStream::connect(address).unwrap();
    echoed(&mut client, b"once");
    assert_eq!(end_of(&mut client), Err(ErrorKind::ConnectionReset));
}

#[test]
fn connections_spread_over_the_shards_and_all_work() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut clients: Vec<_> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    for client in &mut clients {
        echoed(client, b"ping");
    }
    assert_eq!(boss.ping().connections, 200);
    drop(clients);
    boss.pulse_until(|pulse| pulse.connections == 0);
}

#[test]
fn a_message_out_of_order_is_refused_and_harms_nothing() {
    let upstream = Upstream::named("up");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    boss.say(&ToWorker::Activate(Generation(7)), &[]);
    match boss.hear() {
        ToSupervisor::Refused(refused) => assert_eq!(refused.generation, Generation(7)),
        other => panic!("{other:?}"),
    }
    boss.say(&ToWorker::Abort(Generation(7)), &[]);
    assert_eq!(heard(address).unwrap(), "up");
}

#[test]
fn a_worker_without_a_supervisor_goes_on_serving() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut kept = TcpStream::connect(address).unwrap();
    echoed(&mut kept, b"before");
    let worker = boss.vanish();
    echoed(&mut kept, b"after");
    echoed(&mut TcpStream::connect(address).unwrap(), b"new");
    assert!(!worker.is_finished());
}

#[test]
fn a_worker_that_never_served_ends_with_its_supervisor() {
    let worker = Boss::greeted().vanish();
    assert_ne!(worker.join().unwrap(), std::process::ExitCode::SUCCESS);
}
