//! Models of what several processes do at once: every interleaving, and every value that the
//! memory model lets a relaxed load see (up to three preemptions).
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p baton-metrics --release loom
//! ```
//!
//! The models run the very code of the region over a tiny one in process memory; each thread
//! stands for a process.

#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use loom::thread;

use crate::directory::{Entry, Registered};
use crate::key::{Entity, Meta};
use crate::layout::{Counts, LANE_OWNER};
use crate::owner::{Owner, Role};
use crate::record;
use crate::shared::Shared;
use crate::sync::Ordering;
use crate::words::Words;

const META: Meta = Meta { entity: Entity::Counter, family: 0 };
const KEY: &[u8] = b"k";

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    builder.check(model);
}

fn region(lanes: u32) -> Arc<Shared> {
    let counts = Counts { lanes, series: 2, cells: 2, arena: 8, records: 0, block: 2 };
    Arc::new(Shared::in_memory(&counts, 256))
}

/// A lane held by a process that never runs.
fn hold_lane(shared: &Shared, lane: usize) {
    let entry = shared.layout.lanes.at(lane).unwrap();
    let owner = Owner::new(0xFF_FFFF, Role::Worker, lane as u64 + 1);
    shared.words.store(entry + LANE_OWNER, owner.0, Ordering::Release);
}

fn register(shared: &Shared, lane: usize) -> (Registered, usize) {
    let registered = shared.register(lane, META, KEY, 1, &mut 0).unwrap();
    let word = shared.own_block(lane, registered.room.first, false).unwrap();
    (registered, word)
}

/// The series' total as a snapshot computes it; `None` when folds came between.
fn total(shared: &Shared, cell: usize) -> Option<u64> {
    let look = |commit: crate::fold::Commit, holders: &[crate::shared::Holder]| {
        let word = shared.base_cell(commit.copy(), cell).unwrap();
        let base = shared.words.load(word, Ordering::Relaxed);
        holders.iter().fold(base, |sum, holder| sum + shared.lane_value(holder.lane, cell))
    };
    shared.consistently(look).ok()
}

#[test]
fn loom_a_reader_sees_every_count_once_while_a_lane_is_folded() {
    explore(|| {
        let shared = region(1);
        hold_lane(&shared, 0);
        let (registered, word) = register(&shared, 0);
        shared.words.fetch_add(word, 5);
        let folder = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.fold(0))
        };
        if let Some(seen) = total(&shared, registered.room.first) {
            assert_eq!(seen, 5);
        }
        folder.join().unwrap();
        assert_eq!(total(&shared, registered.room.first), Some(5));
    });
}

#[test]
fn loom_a_live_lane_counts_on_while_another_is_folded() {
    explore(|| {
        let shared = region(2);
        hold_lane(&shared, 0);
        hold_lane(&shared, 1);
        let (registered, dead) = register(&shared, 0);
        shared.words.fetch_add(dead, 5);
        let live = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (registered, word) = register(&shared, 1);
                shared.words.fetch_add(word, 1);
                registered
            })
        };
        shared.fold(0);
        assert_eq!(live.join().unwrap(), registered);
        assert_eq!(total(&shared, registered.room.first), Some(6));
    });
}

#[test]
fn loom_two_processes_that_register_one_key_share_one_whole_descriptor() {
    explore(|| {
        let shared = region(2);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.register(1, META, KEY, 1, &mut 0).unwrap())
        };
        let mine = shared.register(0, META, KEY, 1, &mut 0).unwrap();
        assert_eq!(mine, other.join().unwrap());
        let entry = shared.entry(mine.descriptor).unwrap();
        assert_eq!((entry.key.as_slice(), entry.users), (KEY, 3));
    });
}

#[test]
fn loom_a_reader_never_sees_half_a_descriptor() {
    explore(|| {
        let shared = region(1);
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.register(0, META, KEY, 1, &mut 0).unwrap())
        };
        match shared.entry(0) {
            Ok(Entry { key, meta, .. }) => assert_eq!((key.as_slice(), meta), (KEY, META)),
            Err(absent) => assert_eq!(absent, crate::directory::Absent::Unused),
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_a_series_is_taken_back_or_held_never_both() {
    explore(|| {
        let shared = region(1);
        let (registered, word) = register(&shared, 0);
        shared.words.fetch_add(word, 5);
        shared.let_go(registered.descriptor, 0);
        let entry = shared.entry(registered.descriptor).unwrap();
        let sweeper = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.take_back(&entry))
        };
        let again = shared.register(0, META, KEY, 1, &mut 0).unwrap();
        shared.words.fetch_add(shared.lane_cell(0, again.room.first).unwrap(), 1);
        let taken = sweeper.join().unwrap();
        let entry = shared.entry(again.descriptor).unwrap();
        assert_eq!((entry.key.as_slice(), entry.users), (KEY, 1));
        let count = shared.lane_value(0, again.room.first);
        assert_eq!(count, if taken { 1 } else { 6 });
    });
}

#[test]
fn loom_a_record_is_read_whole_or_not_at_all() {
    explore(|| {
        let words = Arc::new(Words::heap(4));
        record::store(&words, 0, &[1, 1]);
        let writers: Vec<_> = [2, 3]
            .into_iter()
            .map(|value| {
                let words = Arc::clone(&words);
                thread::spawn(move || record::store(&words, 0, &[value, value]))
            })
            .collect();
        if let Some([a, b]) = record::load(&words, 0) {
            assert_eq!(a, b);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}
