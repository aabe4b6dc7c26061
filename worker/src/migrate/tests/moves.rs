//! Connections that move on purpose, at full speed, and what happens if one worker dies of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::Worker;
use super::streams::{Fate, Running, Shared, Style};
use crate::net::testing::eventually;

/// Moves in the long tests; `BATON_MOVES` asks for more.
const MOVES: u64 = 60;

fn moves() -> u64 {
    std::env::var("BATON_MOVES").ok().and_then(|text| text.parse().ok()).unwrap_or(MOVES)
}

fn start(worker: &Worker, shared: &Arc<Shared>, styles: &[Style]) -> Vec<Running> {
    let begin = |(seed, style): (u64, &Style)| {
        let (peers, client, upstream) = Running::start(seed, *style, shared);
        worker.relay(client, upstream);
        peers
    };
    (0..).zip(styles).map(begin).collect()
}

const STYLES: [Style; 6] = [
    Style::Bulk(200_000),
    Style::PingPong,
    Style::Bulk(100),
    Style::HalfClosed,
    Style::SlowReader,
    Style::Bulk(20_000),
];

#[test]
fn every_byte_arrives_however_often_connections_move() {
    let shared = Arc::new(Shared::default());
    let (mut here, mut there) = (Worker::start(), Worker::start());
    let (open, _) = here.census();
    let running = start(&here, &shared, &STYLES);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..moves() {
        let goal = shared.moved.load(Ordering::Relaxed) + random.u64(0..200_000);
        shared.allow(500_000);
        eventually("progress", || shared.moved.load(Ordering::Relaxed) >= goal);
        here.begin_move(&there);
        assert_eq!(here.moved(&there), (6, 0));
        (here, there) = (there, here);
    }
    shared.stop();
    for peers in running {
        assert_eq!(peers.fate(), Fate::Exact);
    }
    eprintln!("{} moves, {} bytes exact", moves(), shared.moved.load(Ordering::Relaxed));
    for worker in [&here, &there] {
        eventually("nothing is left", || worker.census() == (open, 0));
    }
}

#[test]
fn one_connection_at_full_speed_moves_many_times() {
    let shared = Arc::new(Shared::default());
    let (mut here, mut there) = (Worker::start(), Worker::start());
    let running = start(&here, &shared, &[Style::Bulk(100_000)]);
    for _ in 0..10 * moves() {
        shared.allow(100_000);
        here.begin_move(&there);
        assert_eq!(here.moved(&there), (1, 0));
        (here, there) = (there, here);
    }
    shared.stop();
    for peers in running {
        assert_eq!(peers.fate(), Fate::Exact);
    }
}

/// More connections than one offer takes, in mid-stream.
fn crowd(worker: &Worker, shared: &Arc<Shared>) -> Vec<Running> {
    let styles: Vec<Style> = (0..100)
        .map(|number| if number % 10 == 0 { Style::PingPong } else { Style::Bulk(50) })
        .collect();
    start(worker, shared, &styles)
}

/// Kills one of two workers while everything moves; the other takes what the dead one had.
fn interrupted(kills_the_new: bool, seed: u64) {
    let shared = Arc::new(Shared::default());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut worker = Worker::start();
    let mut running = crowd(&worker, &shared);
    for _ in 0..6 {
        let mut other = Worker::start();
        shared.allow(20_000);
        let goal = random.usize(0..=running.len());
        worker.begin_move(&other);
        eventually("some have moved", || other.records().len() >= goal);
        let (survivor, mut victim) = if kills_the_new {
            (worker, other)
        } else {
            std::mem::swap(&mut worker, &mut other);
            (worker, other)
        };
        victim.process.kill();
        let outcome = survivor.recover(victim);
        assert!(["", "in_flight=1"].contains(&outcome.lost.as_str()), "{outcome:?}");
        worker = survivor;
        if !outcome.lost.is_empty() {
            eventually("a reset", || {
                shared.allow(1000);
                running.iter().any(Running::has_ended)
            });
            let at = running.iter().position(Running::has_ended).unwrap();
            assert_eq!(running.remove(at).fate(), Fate::Reset);
        }
        let records = || u64::try_from(worker.records().len()).unwrap();
        assert_eq!(records(), u64::try_from(running.len()).unwrap(), "each is somewhere once");
    }
    shared.stop();
    for peers in running {
        assert_eq!(peers.fate(), Fate::Exact);
    }
}

#[test]
fn when_the_new_worker_is_killed_the_old_one_has_everything_again() {
    interrupted(true, 21);
}

#[test]
fn when_the_old_worker_is_killed_the_new_one_has_everything() {
    interrupted(false, 22);
}
