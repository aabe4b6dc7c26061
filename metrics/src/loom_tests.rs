//! Models of what several processes do at once: every interleaving, and every value that the
//! memory model lets a relaxed load see (up to three preemptions).
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p baton-metrics --release --lib loom
//! ```
//!
//! The models run the very code of the region over a tiny one in process memory; each thread
//! stands for a process.
//!
//! Limit: loom remembers the last access to a word only, so a thread that reads before it writes
//! hides an earlier reader from it. Each model therefore runs with either side going first; that
//! it finds what it must was tried by removing fences, orderings and checks one by one.

#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use loom::thread;

use crate::directory::{Absent, Entry, Registered};
use crate::fold::Commit;
use crate::key::{Entity, Meta};
use crate::layout::{Counts, LANE_OWNER};
use crate::owner::{Owner, Role};
use crate::record;
use crate::shared::{Holder, Shared};
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

/// Runs `a` and `b` at once over what `setup` makes, and then `check`, in every interleaving.
fn race<S, A, B>(setup: fn() -> S, a: fn(&S) -> A, b: fn(&S) -> B, check: fn(&S, A, B))
where
    S: Send + Sync + 'static,
    A: Send + 'static,
    B: Send + 'static,
{
    for a_first in [true, false] {
        explore(move || {
            let state = Arc::new(setup());
            let theirs = Arc::clone(&state);
            if a_first {
                let other = thread::spawn(move || b(&theirs));
                let mine = a(&state);
                check(&state, mine, other.join().unwrap());
            } else {
                let other = thread::spawn(move || a(&theirs));
                let mine = b(&state);
                check(&state, other.join().unwrap(), mine);
            }
        });
    }
}

fn region(lanes: u32) -> Shared {
    let counts = Counts { lanes, series: 2, cells: 2, arena: 8, records: 0, block: 2 };
    Shared::in_memory(&counts, 256)
}

/// A lane held by a process that never runs.
fn hold_lane(shared: &Shared, lane: usize) {
    let entry = shared.layout.lanes.at(lane).unwrap();
    let owner = Owner::new(0xFF_FFFF, Role::Worker, lane as u64 + 1);
    shared.words.store(entry + LANE_OWNER, owner.0, Ordering::Release);
}

/// A region with `lanes` held lanes, of which the first has counted 5.
fn counted(lanes: u32) -> Shared {
    let shared = region(lanes);
    (0..lanes as usize).for_each(|lane| hold_lane(&shared, lane));
    count(&shared, 0, 5);
    shared
}

fn register(shared: &Shared, lane: usize) -> Option<Registered> {
    shared.register(lane, META, KEY, 1, &mut 0)
}

/// Registers the series and counts.
fn count(shared: &Shared, lane: usize, by: u64) -> Registered {
    let registered = register(shared, lane).unwrap();
    let word = shared.own_block(lane, registered.room.first, false).unwrap();
    shared.words.fetch_add(word, by);
    registered
}

/// The total of the only cell as a snapshot computes it; `None` when folds came between.
fn total(shared: &Shared) -> Option<u64> {
    let look = |commit: Commit, holders: &[Holder]| {
        let word = shared.base_cell(commit.copy(), 0).unwrap();
        let base = shared.words.load(word, Ordering::Relaxed);
        holders.iter().fold(base, |sum, holder| sum + shared.lane_value(holder.lane, 0))
    };
    shared.consistently(look).ok()
}

#[test]
fn loom_a_reader_sees_every_count_once_while_a_lane_is_folded() {
    race(
        || counted(1),
        |shared| shared.fold(0),
        total,
        |shared, (), seen| {
            assert!(seen.is_none_or(|seen| seen == 5), "{seen:?}");
            assert_eq!(total(shared), Some(5));
        },
    );
}

#[test]
fn loom_a_live_lane_counts_on_while_another_is_folded() {
    race(
        || counted(2),
        |shared| shared.fold(0),
        |shared| count(shared, 1, 1),
        |shared, (), _| {
            assert_eq!(total(shared), Some(6));
        },
    );
}

#[test]
fn loom_a_freed_lane_and_its_block_are_empty_when_claimed_again() {
    // One block in the pool: whoever gets it gets it from the dead lane.
    let claim = |shared: &Shared| {
        let entry = shared.layout.lanes.at(0).unwrap();
        let owner = Owner::new(0xFF_FFFF, Role::Worker, 9);
        shared.words.swap_if(entry + LANE_OWNER, Owner::NOBODY, owner.0)
            && register(shared, 0).is_some_and(|registered| {
                let word = shared.own_block(0, registered.room.first, false).unwrap();
                assert_eq!(shared.words.fetch_add(word, 1), Some(0));
                true
            })
    };
    race(
        || counted(1),
        |shared| shared.fold(0),
        claim,
        |shared, (), claimed| {
            assert_eq!(total(shared), Some(if claimed { 6 } else { 5 }));
        },
    );
}

#[test]
fn loom_two_processes_that_register_one_key_share_one_whole_descriptor() {
    race(
        || region(2),
        move |shared| register(shared, 0).unwrap(),
        move |shared| register(shared, 1).unwrap(),
        |shared, a, b| {
            assert_eq!(a, b);
            let entry = shared.entry(a.descriptor).unwrap();
            assert_eq!((entry.key.as_slice(), entry.users), (KEY, 3));
        },
    );
}

#[test]
fn loom_a_reader_never_sees_half_a_descriptor() {
    race(
        || region(1),
        |shared| register(shared, 0),
        |shared| shared.entry(0),
        |_, _, seen| match seen {
            Ok(Entry { key, meta, .. }) => assert_eq!((key.as_slice(), meta), (KEY, META)),
            Err(absent) => assert_eq!(absent, Absent::Unused),
        },
    );
}

/// A series that was counted to 5 and let go, and its descriptor.
fn let_go() -> (Shared, Entry) {
    let shared = region(1);
    hold_lane(&shared, 0);
    let registered = count(&shared, 0, 5);
    shared.let_go(registered.descriptor, 0);
    let entry = shared.entry(registered.descriptor).unwrap();
    (shared, entry)
}

#[test]
fn loom_a_series_is_taken_back_or_held_never_both() {
    race(
        let_go,
        |(shared, entry)| shared.take_back(entry),
        |(shared, _)| count(shared, 0, 1),
        |(shared, _), taken, again| {
            let entry = shared.entry(again.descriptor).unwrap();
            assert_eq!((entry.key.as_slice(), entry.users), (KEY, 1));
            let count = shared.lane_value(0, again.room.first);
            assert_eq!(count, if taken { 1 } else { 6 });
        },
    );
}

#[test]
fn loom_a_reader_takes_no_cell_for_another_series() {
    let look = |(shared, _): &(Shared, Entry)| {
        let entry = shared.entry(0).ok()?;
        let value = shared.lane_value(0, entry.room.first);
        shared.unchanged(0, entry.state).then_some((entry.key, value))
    };
    let reuse = |(shared, entry): &(Shared, Entry)| {
        assert!(shared.take_back(entry));
        let other = shared.register(0, META, b"other", 1, &mut 0).unwrap();
        assert_eq!(other.descriptor, entry.index);
        let word = shared.lane_cell(0, other.room.first).unwrap();
        shared.words.fetch_add(word, 7);
    };
    race(let_go, reuse, look, |_, (), seen| match seen {
        Some((key, value)) if key == KEY => assert_eq!(value, 5),
        Some((key, value)) => assert!(key == b"other" && (value == 0 || value == 7), "{value}"),
        None => {}
    });
}

#[test]
fn loom_a_record_is_read_whole_or_not_at_all() {
    let stored = || {
        let words = Words::heap(4);
        record::store(&words, 0, &[1, 1]);
        words
    };
    race(
        stored,
        |words| record::store(words, 0, &[2, 2]),
        |words| record::load(words, 0),
        |words, (), seen: Option<[u64; 2]>| {
            assert!(seen.is_none_or(|[a, b]| a == b), "{seen:?}");
            assert_eq!(record::load(words, 0), Some([2, 2]));
        },
    );
    race(
        stored,
        |words| record::store(words, 0, &[2, 2]),
        |words| {
            record::store(words, 0, &[3, 3]);
            record::load(words, 0)
        },
        |_, (), seen: Option<[u64; 2]>| assert!(seen.is_none_or(|[a, b]| a == b), "{seen:?}"),
    );
}
