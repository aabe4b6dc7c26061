//! `kill -9`, at any moment.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_handoff::table::{Busy, RECORD_SIZE};

use super::engine::Worker;
use super::streams::{Fate, Running, Shared, Style, bytes};
use crate::net::testing::{accepted_pair, eventually};

/// How often the long test kills; `BATON_KILLS` asks for more.
const KILLS: u64 = 100;

fn kills() -> u64 {
    std::env::var("BATON_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

fn style(number: u64) -> Style {
    match number % 6 {
        0 => Style::Bulk(200_000),
        1 => Style::PingPong,
        2 => Style::Bulk(100),
        3 => Style::HalfClosed,
        4 => Style::SlowReader,
        _ => Style::Bulk(20_000),
    }
}

#[test]
fn streams_through_many_kills_are_exact_or_reset() {
    let shared = Arc::new(Shared::default());
    let mut random = fastrand::Rng::with_seed(4);
    let mut worker = Worker::start();
    let (at_start, _) = worker.census();
    let mut running: Vec<Running> = Vec::new();
    let mut seeds = 0..;
    let (mut resets, mut lost, mut resumed, mut finished) = (0, 0, 0, 0);
    for kill in 0..kills() {
        while running.len() < 6 {
            let seed = seeds.next().unwrap();
            let (peers, client, upstream) = Running::start(seed, style(seed), &shared);
            worker.relay(client, upstream);
            running.push(peers);
        }
        let spare = Worker::start();
        let goal = shared.moved.load(Ordering::Relaxed) + random.u64(0..500_000);
        shared.allow(1_000_000);
        eventually("progress", || shared.moved.load(Ordering::Relaxed) >= goal);
        worker.process.kill();
        let outcome = spare.recover(worker);
        worker = spare;
        (resumed, finished) = (resumed + outcome.resumed, finished + outcome.finished);
        // One thread relays, so at most one connection has bytes in memory.
        assert!(["", "in_flight=1"].contains(&outcome.lost.as_str()), "{kill}: {outcome:?}");
        if !outcome.lost.is_empty() {
            lost += 1;
            eventually("a reset", || {
                // A writer finds out when it writes.
                shared.allow(1000);
                running.iter().any(Running::has_ended)
            });
            let at = running.iter().position(Running::has_ended).unwrap();
            assert_eq!(running.remove(at).fate(), Fate::Reset);
            resets += 1;
        }
    }
    shared.stop();
    for peers in running {
        assert_eq!(peers.fate(), Fate::Exact);
    }
    assert_eq!(resets, lost);
    let moved = shared.moved.load(Ordering::Relaxed);
    eprintln!(
        "{} kills: {resumed} times carried on, {finished} sockets closed, {lost} reset, \
         {moved} bytes exact",
        kills()
    );
    eventually("nothing is left", || worker.census() == (at_start, 0));
}

/// A connection through a worker, with both peers in the test's hands.
fn relayed(worker: &Worker) -> (TcpStream, TcpStream) {
    let (client, near) = accepted_pair();
    let (upstream, far) = accepted_pair();
    worker.relay(near, far);
    (client, upstream)
}

fn replace(mut worker: Worker) -> Worker {
    let spare = Worker::start();
    worker.process.kill();
    spare.recover(worker);
    spare
}

fn send(mut stream: &TcpStream, seed: u64, positions: std::ops::Range<u64>) {
    stream.write_all(&bytes(seed, positions)).unwrap();
}

fn receive(mut stream: &TcpStream, seed: u64, positions: std::ops::Range<u64>) {
    let mut found = vec![0; usize::try_from(positions.end - positions.start).unwrap()];
    stream.read_exact(&mut found).unwrap();
    assert!(found == bytes(seed, positions), "wrong bytes");
}

fn next(mut stream: &TcpStream) -> Result<usize, ErrorKind> {
    stream.read(&mut [0; 64]).map_err(|error| error.kind())
}

fn end(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn an_idle_connection_goes_on_through_ten_workers() {
    let mut worker = Worker::start();
    let (client, upstream) = relayed(&worker);
    for round in 0..10 {
        send(&client, 1, round * 10..round * 10 + 10);
        receive(&upstream, 1, round * 10..round * 10 + 10);
        send(&upstream, 2, round * 10..round * 10 + 10);
        receive(&client, 2, round * 10..round * 10 + 10);
        worker = replace(worker);
    }
    end(&client);
    assert_eq!(next(&upstream), Ok(0));
    end(&upstream);
    assert_eq!(next(&client), Ok(0));
}

#[test]
fn what_peers_do_while_nobody_serves_them_is_served_afterwards() {
    let mut worker = Worker::start();
    let (ending, ended) = relayed(&worker);
    let (breaking, broken) = relayed(&worker);
    let (half, halved) = relayed(&worker);
    end(&half);
    assert_eq!(next(&halved), Ok(0));
    worker.process.stop();
    send(&ending, 1, 0..100_000);
    end(&ending);
    send(&breaking, 2, 0..100_000);
    eventually("all of it is with the worker", || {
        crate::net::unsent(std::os::fd::AsFd::as_fd(&breaking)).unwrap() == 0
    });
    crate::net::reset(breaking.into());
    send(&halved, 3, 0..100_000);
    end(&halved);
    let spare = Worker::start();
    worker.process.kill();
    let outcome = spare.recover(worker);
    assert_eq!((outcome.resumed, outcome.lost.as_str()), (3, ""));

    receive(&ended, 1, 0..100_000);
    assert_eq!(next(&ended), Ok(0), "an end is an end");
    receive(&broken, 2, 0..100_000);
    assert_eq!(next(&broken), Err(ErrorKind::ConnectionReset), "a reset is no end");
    receive(&half, 3, 0..100_000);
    assert_eq!(next(&half), Ok(0));
    send(&ended, 4, 0..10);
    receive(&ending, 4, 0..10);
    end(&ended);
    assert_eq!(next(&ending), Ok(0));
}

/// Writes until nothing more is taken.
fn stuff(mut stream: &TcpStream, seed: u64, sent: &mut u64) {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.write(&bytes(seed, *sent..*sent + 3000)) {
            Ok(count) => *sent += count as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    stream.set_nonblocking(false).unwrap();
}

#[test]
fn a_reader_that_is_far_behind_gets_every_byte() {
    let worker = Worker::start();
    let (client, upstream) = relayed(&worker);
    let mut sent = 0;
    eventually("blocked", || {
        stuff(&client, 1, &mut sent);
        let track = worker.records()[0].found.unwrap().to_upstream;
        track.pipe.is_some() && track.busy == Busy::No
    });
    end(&client);
    let worker = replace(replace(worker));
    receive(&upstream, 1, 0..sent);
    assert_eq!(next(&upstream), Ok(0));
    end(&upstream);
    assert_eq!(next(&client), Ok(0));
    eventually("nothing is left", || worker.census().1 == 0);
}

#[test]
fn bytes_that_were_in_memory_end_in_a_reset_on_both_sides() {
    let mut worker = Worker::start();
    let (client, upstream) = relayed(&worker);
    let (idle, other) = relayed(&worker);
    // Without a descriptor there is no pipe, so what is left over stays in memory.
    assert_eq!(worker.process.line.ask("limit"), "limited");
    let mut sent = 0;
    eventually("blocked", || {
        stuff(&client, 1, &mut sent);
        worker.records()[0].found.unwrap().to_upstream.busy == Busy::Memory
    });
    let spare = Worker::start();
    worker.process.kill();
    let outcome = spare.recover(worker);
    assert_eq!((outcome.resumed, outcome.lost.as_str()), (1, "in_flight=1"));
    assert_eq!(next(&client), Err(ErrorKind::ConnectionReset));
    let mut rest = Vec::new();
    let error = (&upstream).read_to_end(&mut rest).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(rest == bytes(1, 0..rest.len() as u64), "wrong bytes before the reset");
    send(&idle, 2, 0..10);
    receive(&other, 2, 0..10);
}

#[test]
fn a_successor_that_is_killed_while_it_recovers_has_a_successor() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut worker = Worker::start();
    let peers: Vec<_> = (0..120).map(|_| relayed(&worker)).collect();
    for round in 0..10u64 {
        let mut first = Worker::start();
        let second = Worker::start();
        worker.process.kill();
        let taken = random.usize(0..=peers.len());
        first.begin_recovery(&[&worker]);
        eventually("some are taken", || first.records().len() >= taken);
        first.process.kill();
        let outcome = second.recover_all(vec![worker, first]);
        assert_eq!((outcome.resumed, outcome.lost.as_str()), (120, ""), "{taken}");
        for (client, upstream) in &peers {
            send(client, 1, round * 10..round * 10 + 10);
            receive(upstream, 1, round * 10..round * 10 + 10);
        }
        worker = second;
    }
    for (client, upstream) in &peers {
        end(client);
        assert_eq!(next(upstream), Ok(0));
        end(upstream);
        assert_eq!(next(client), Ok(0));
    }
    eventually("nothing is left", || worker.census().1 == 0);
}

#[test]
fn a_damaged_table_costs_connections_and_nothing_else() {
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..12 {
        let mut worker = Worker::start();
        let peers: Vec<_> = (0..8).map(|_| relayed(&worker)).collect();
        let spare = Worker::start();
        worker.process.kill();
        let file = worker.table();
        for _ in 0..random.usize(1..30) {
            let place = 4096 + random.usize(0..8 * RECORD_SIZE);
            file.write_all_at(&[random.u8(..)], place as u64).unwrap();
        }
        let outcome = spare.recover(worker);
        let mut alive = 0;
        for (client, upstream) in peers {
            let mut to = &client;
            if to.write_all(&bytes(1, 0..10)).is_ok() {
                match next(&upstream) {
                    Ok(0) => end(&upstream),
                    Ok(count) => {
                        assert_eq!(count, 10);
                        alive += 1;
                        continue;
                    }
                    Err(error) => assert_eq!(error, ErrorKind::ConnectionReset),
                }
            }
        }
        assert_eq!(alive, outcome.resumed, "{outcome:?}");
    }
}
