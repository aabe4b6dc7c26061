//! Two workers, between which connections move.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::Duration;

use baton_handoff::message::{Migrate, Migrated, Side, ToSupervisor, ToWorker};

use super::boss::{Boss, Upstream, rule, rule_with};
use super::streams::{Fate, Stream, Style};
use super::{clients, echoed, end_of};

const LIMIT: Duration = Duration::from_secs(60);

impl Boss {
    /// Has all connections moved to another worker.
    pub(super) fn begin_move(&mut self, to: &mut Self, limit: Duration) {
        let (near, far) = baton_handoff::pair().unwrap();
        let timeout_ms = u64::try_from(limit.as_millis()).unwrap();
        let order = |side, other| ToWorker::Migrate(Migrate { side, other, timeout_ms });
        to.say(&order(Side::Take, self.id), &[far.as_fd()]);
        self.say(&order(Side::Give, to.id), &[near.as_fd()]);
    }

    /// Waits for progress that is as wanted.
    pub(super) fn migrated(&mut self, wanted: impl Fn(&Migrated) -> bool) -> Migrated {
        loop {
            match self.hear() {
                ToSupervisor::Migrated(migrated) if wanted(&migrated) => return migrated,
                ToSupervisor::Migrated(migrated) if !migrated.over => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Moves everything; how many moved and stayed.
    pub(super) fn move_all(&mut self, to: &mut Self) -> (u64, u64) {
        self.begin_move(to, LIMIT);
        let Migrated { moved, kept, .. } = self.migrated(|migrated| migrated.over);
        (moved, kept)
    }
}

/// Waits until nobody is connected.
fn deserted(boss: &mut Boss) {
    boss.pulse_until(|pulse| pulse.connections == 0);
}

#[test]
fn every_byte_arrives_however_often_connections_move() {
    let upstream = Upstream::echo();
    let mut here = Boss::greeted();
    let address = here.listen();
    let mut there = here.beside(false);
    for boss in [&mut here, &mut there] {
        boss.serve(1, &[rule("r", address, &[upstream.address])]);
        boss.quiesce();
    }
    here.activate(1);
    let styles = [
        Style::Idle,
        Style::Bulk(100),
        Style::Bulk(200_000),
        Style::Slow,
        Style::HalfClosed(50_000_000),
        Style::Bulk(20_000),
    ];
    let streams = styles.map(|style| Stream::start(address, style));
    for _ in 0..20 {
        streams.iter().for_each(Stream::advance);
        assert_eq!(here.move_all(&mut there), (6, 0));
        std::mem::swap(&mut here, &mut there);
        here.pulse_until(|pulse| pulse.connections == 6);
        deserted(&mut there);
    }
    for stream in streams {
        assert_eq!(stream.fate(), Fate::Exact);
    }
    for boss in [&mut here, &mut there] {
        deserted(boss);
        assert_eq!(boss.drain(LIMIT), 0);
    }
}

#[test]
fn a_connection_that_has_no_upstream_yet_moves_as_soon_as_it_has() {
    let upstream = Upstream::echo();
    let mut old = Boss::greeted();
    let address = old.listen();
    let mut new = old.beside(false);
    let pattern = format!(
        r#"{{"name":"r","listen":"{address}","mode":"regex","timeout":60000,
            "targets":[{{"address":"{}","regexp":"^GO"}}]}}"#,
        upstream.address
    );
    old.serve(1, std::slice::from_ref(&pattern));
    let mut late = TcpStream::connect(address).unwrap();
    old.pulse_until(|pulse| pulse.connections == 1);
    new.serve(1, &[pattern]);
    old.quiesce();
    old.begin_move(&mut new, LIMIT);
    old.migrated(|migrated| migrated.waiting == 1 && !migrated.over);
    echoed(&mut late, b"GO!");
    let migrated = old.migrated(|migrated| migrated.over);
    assert_eq!((migrated.moved, migrated.waiting, migrated.kept), (1, 0, 0));
    deserted(&mut old);
    echoed(&mut late, b"on");
    assert_eq!(new.ping().connections, 1);
}

#[test]
fn what_has_not_moved_when_the_time_is_over_stays() {
    let upstream = Upstream::echo();
    let mut old = Boss::greeted();
    let address = old.listen();
    let mut new = old.beside(false);
    for boss in [&mut old, &mut new] {
        boss.serve(1, &[rule("r", address, &[upstream.address])]);
    }
    new.quiesce();
    let mut client = TcpStream::connect(address).unwrap();
    echoed(&mut client, b"here");
    old.begin_move(&mut new, Duration::ZERO);
    assert_eq!(old.migrated(|migrated| migrated.over).moved, 0);
    echoed(&mut client, b"still here");
    assert_eq!((old.ping().connections, new.ping().connections), (1, 0));
}

#[test]
fn without_somebody_to_take_them_connections_stay() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut client = TcpStream::connect(address).unwrap();
    echoed(&mut client, b"here");
    let (near, far) = baton_handoff::pair().unwrap();
    drop(far);
    let give = Migrate { side: Side::Give, other: boss.id, timeout_ms: 60_000 };
    boss.say(&ToWorker::Migrate(give), &[near.as_fd()]);
    assert_eq!(boss.migrated(|migrated| migrated.over).moved, 0);
    echoed(&mut client, b"still here");
}

#[test]
fn an_old_worker_that_serves_again_takes_its_connections_back() {
    let upstream = Upstream::echo();
    let mut old = Boss::greeted();
    let address = old.listen();
    let mut new = old.beside(false);
    old.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut first = TcpStream::connect(address).unwrap();
    echoed(&mut first, b"one");
    new.serve(2, &[rule("r", address, &[upstream.address])]);
    old.quiesce();
    assert_eq!(old.move_all(&mut new), (1, 0));
    let mut second = TcpStream::connect(address).unwrap();
    echoed(&mut second, b"one");
    old.activate(1);
    new.quiesce();
    assert_eq!(new.move_all(&mut old), (2, 0));
    assert_eq!(new.drain(LIMIT), 0);
    assert!(new.ended());
    for client in [&mut first, &mut second] {
        echoed(client, b"two");
    }
    drop((first, second));
    deserted(&mut old);
}

#[test]
fn limits_and_counts_hold_for_connections_that_have_moved() {
    let upstream = Upstream::echo();
    let mut old = Boss::greeted();
    let address = old.listen();
    let mut new = old.beside(false);
    let rules = [rule_with(
        "r",
        address,
        &[upstream.address],
        r#""mode":"normal","maxConnections":3,"maxConnectionsPerIP":2"#,
    )];
    old.serve(1, &rules);
    let mut clients = clients(address, 2, b"abc");
    new.serve(1, &rules);
    old.quiesce();
    assert_eq!(old.move_all(&mut new), (2, 0));
    clients.iter_mut().for_each(|client| echoed(client, b"defg"));
    new.metrics_until(|text| {
        let has = |line: &str| text.contains(line);
        has(r#"baton_connections_accepted_total{rule="r",mode="normal"} 2"#)
            && has(r#"baton_connections_active{rule="r",mode="normal"} 2"#)
            && has(r#"baton_relay_bytes_total{rule="r",direction="upstream_to_client"} 14"#)
            && has(r#"baton_migrated_connections_total{result="moved"} 2"#)
            && has("baton_migration_pause_seconds_count 2")
    });
    // The address has its share of two.
    assert_eq!(end_of(&mut TcpStream::connect(address).unwrap()), Ok(0));
    drop(clients);
    deserted(&mut new);
    echoed(&mut TcpStream::connect(address).unwrap(), b"in again");
    new.metrics_until(|text| {
        text.contains(r#"baton_relay_duration_seconds_count{rule="r"} 3"#)
            && text.contains(r#"baton_connections_active{rule="r",mode="normal"} 0"#)
    });
}

#[test]
fn a_connection_whose_rule_is_gone_is_served_to_its_end() {
    let upstream = Upstream::echo();
    let mut old = Boss::greeted();
    let (address, other) = (old.listen(), old.listen());
    let mut new = old.beside(false);
    let mut newest = old.beside(false);
    old.serve(1, &[rule("r", address, &[upstream.address])]);
    let stream = Stream::start(address, Style::Bulk(5000));
    for boss in [&mut new, &mut newest] {
        boss.serve(2, &[rule("s", other, &[upstream.address])]);
    }
    assert_eq!(old.move_all(&mut new), (1, 0));
    stream.advance();
    assert_eq!(new.ping().connections, 1);
    assert_eq!(new.move_all(&mut newest), (1, 0));
    stream.advance();
    deserted(&mut new);
    newest.begin_drain(LIMIT);
    newest.pulse_until(|pulse| pulse.connections == 1);
    assert_eq!(stream.fate(), Fate::Exact);
    assert_eq!(newest.hear(), ToSupervisor::Drained { cut: 0 });
}

#[test]
fn silence_before_a_move_counts_after_it() {
    let upstream = Upstream::echo();
    let mut old = Boss::greeted();
    let address = old.listen();
    let mut new = old.beside(false);
    let fields = r#""mode":"normal","idleTimeout":4000"#;
    for boss in [&mut old, &mut new] {
        boss.serve(1, &[rule_with("r", address, &[upstream.address], fields)]);
    }
    new.quiesce();
    let mut client = TcpStream::connect(address).unwrap();
    // Before the last byte: what is told after it may be told late.
    let begun = std::time::Instant::now();
    echoed(&mut client, b"once");
    // It is moved to and fro all the time, and no move makes it younger.
    client.set_nonblocking(true).unwrap();
    loop {
        old.move_all(&mut new);
        std::mem::swap(&mut old, &mut new);
        match client.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            ended => {
                assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
                break;
            }
        }
        assert!(begun.elapsed() < LIMIT, "it lives for ever");
    }
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn a_worker_that_drains_gives_away_what_it_has_and_ends_at_once() {
    let upstream = Upstream::echo();
    let mut old = Boss::greeted();
    let address = old.listen();
    let mut new = old.beside(false);
    for boss in [&mut old, &mut new] {
        boss.serve(1, &[rule("r", address, &[upstream.address])]);
    }
    new.quiesce();
    let mut clients = clients(address, 200, b"here");
    old.begin_drain(LIMIT);
    old.begin_move(&mut new, LIMIT);
    loop {
        match old.hear() {
            ToSupervisor::Migrated(_) => {}
            ToSupervisor::Drained { cut } => break assert_eq!(cut, 0),
            other => panic!("{other:?}"),
        }
    }
    assert!(old.ended());
    clients.iter_mut().for_each(|client| echoed(client, b"there"));
    assert_eq!(new.ping().connections, 200);
    // What was taken over can be cut like any other.
    assert_eq!(new.drain(Duration::ZERO), 200);
    for client in &mut clients {
        assert_eq!(end_of(client), Err(ErrorKind::ConnectionReset));
    }
}

#[test]
fn a_broken_connection_holds_nobody_up() {
    let upstream = Upstream::echo();
    let mut old = Boss::greeted();
    let address = old.listen();
    let mut new = old.beside(false);
    for boss in [&mut old, &mut new] {
        boss.serve(1, &[rule("r", address, &[upstream.address])]);
    }
    new.quiesce();
    let mut healthy = TcpStream::connect(address).unwrap();
    echoed(&mut healthy, b"here");
    // Its upstream breaks while the client still has bytes to fetch, so it ends slowly.
    let mut breaking = TcpStream::connect(address).unwrap();
    breaking.write_all(&[7; 100]).unwrap();
    old.pulse_until(|pulse| pulse.connections == 2);
    let (moved, kept) = old.move_all(&mut new);
    assert_eq!((moved, kept), (2, 0));
    echoed(&mut healthy, b"there");
}
