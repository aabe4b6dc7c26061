//! Death at every single write, deterministically: the fold, the sweep and a registration are
//! stopped before each of their writes in turn, and the region must be right then, for a reader,
//! and after whoever comes next has gone on.

#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use crate::catalog;
use crate::cell::Counter;
use crate::directory::{Phase, State};
use crate::lane::Lane;
use crate::layout::{Counts, MAX_LANES, desc, head};
use crate::owner::{Owner, Role};
use crate::shared::Shared;
use crate::snapshot::{Guard, Value};
use crate::sync::Ordering;
use crate::words::fuse;

fn region() -> Arc<Shared> {
    let counts =
        Counts { lanes: MAX_LANES, series: 32, cells: 64, arena: 256, records: 2, block: 32 };
    Arc::new(Shared::in_memory(&counts, 4096))
}

/// Never a running process.
fn owner(start: u64) -> Owner {
    Owner::new(0xFF_FFFF, Role::Worker, start)
}

fn totals(shared: &Shared) -> Vec<(String, u64)> {
    let snapshot = shared.snapshot(|_| true, &mut Guard::default()).unwrap();
    assert_eq!(snapshot.damaged, 0);
    let mut totals: Vec<(String, u64)> = Vec::new();
    for family in snapshot.families {
        for sample in family.samples {
            let name = format!("{} {:?}", family.name, sample.labels);
            match sample.value {
                Value::Counter(total) => totals.push((name, total)),
                Value::Histogram { counts, .. } => totals.push((name, counts.iter().sum())),
                Value::Gauge(_) => {}
            }
        }
    }
    totals
}

fn labels(rule: &str) -> [(&str, &str); 2] {
    [("rule", rule), ("mode", "normal")]
}

#[test]
fn a_fold_that_dies_at_any_write_neither_loses_nor_doubles() {
    let mut at = 0;
    loop {
        let shared = region();
        let earlier = Lane::claim(Arc::clone(&shared), owner(1));
        let held = earlier.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("web"));
        held.add(100);
        shared.fold(0);
        let dead = Lane::claim(Arc::clone(&shared), owner(2));
        let accepted = dead.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("web"));
        accepted.add(7);
        let duration = dead.histogram(&catalog::RELAY_DURATION, &[("rule", "web")]);
        duration.observe(std::time::Duration::from_secs(1));
        let live = Lane::claim(Arc::clone(&shared), owner(3));
        let more = live.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("web"));
        more.add(20);
        let before = totals(&shared);
        assert!(before.iter().any(|(_, total)| *total == 127), "{before:?}");

        let done = fuse::within(at, || shared.fold(0));
        assert_eq!(totals(&shared), before, "seen after death at write {at}");
        // The next supervisor: ends the fold, then folds what is still held by the dead.
        shared.recover();
        assert_eq!(totals(&shared), before, "recovered after death at write {at}");
        if shared.owner(0).is_some() {
            shared.fold(0);
        }
        assert_eq!(totals(&shared), before, "folded after death at write {at}");
        assert_eq!(shared.owner(0), None);
        // A lane and its blocks are really free: the next owner starts from zero.
        let next = Lane::claim(Arc::clone(&shared), owner(4));
        assert_eq!(shared.owner(0), Some(owner(4)));
        let accepted = next.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("web"));
        assert_eq!(accepted.get(), 0);
        accepted.inc();
        more.inc();
        let grown: u64 = totals(&shared).iter().map(|(_, total)| total).sum();
        assert_eq!(grown, before.iter().map(|(_, total)| total).sum::<u64>() + 2);
        if done {
            break;
        }
        at += 1;
    }
    assert!(at > 100, "a fold writes both copies and the pool: {at}");
}

#[test]
fn a_registration_that_dies_at_any_write_leaves_a_working_region() {
    let mut at = 0;
    loop {
        let shared = region();
        let live = Lane::claim(Arc::clone(&shared), owner(1));
        let accepted = live.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("web"));
        accepted.add(5);
        // Outside, so that nothing is let go on the way: a killed process lets go of nothing.
        let mut kept = Vec::new();
        let done = fuse::within(at, || {
            let dying = Lane::claim(Arc::clone(&shared), owner(2));
            let reason = [("rule", "web"), ("mode", "normal"), ("reason", "access_policy")];
            kept.push(dying.counter(&catalog::CONNECTIONS_REJECTED, &reason));
            kept.push(dying.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("web")));
            kept.iter().for_each(Counter::inc);
        });
        let held: Vec<usize> = shared
            .held_lanes()
            .filter(|holder| holder.owner == owner(2))
            .map(|holder| holder.lane)
            .collect();
        held.into_iter().for_each(|lane| shared.fold(lane));
        let web = |totals: &[(String, u64)]| {
            totals.iter().filter(|(name, _)| name.contains("accepted")).map(|(_, n)| n).sum::<u64>()
        };
        assert_eq!(web(&totals(&shared)), 5 + u64::from(done), "death at write {at}");
        // Somebody else registers the same series and more.
        let next = Lane::claim(Arc::clone(&shared), owner(3));
        let again = next.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("web"));
        again.inc();
        let other = next.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("api"));
        other.add(10);
        assert_eq!(web(&totals(&shared)), 16 + u64::from(done), "death at write {at}");
        if done {
            break;
        }
        at += 1;
    }
    assert!(at > 20, "{at}");
}

#[test]
fn a_sweep_that_dies_at_any_write_hurts_no_other_series() {
    let mut at = 0;
    loop {
        let shared = region();
        let live = Lane::claim(Arc::clone(&shared), owner(1));
        let web = live.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("web"));
        web.add(5);
        live.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("old")).add(9);
        let done = fuse::within(at, || assert_eq!(shared.sweep(), 1));
        // It comes back before anyone has recovered: on its old count or anew, but it counts.
        let old = live.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("old"));
        old.add(3);
        assert!([3, 12].contains(&old.get()), "{} after death at write {at}", old.get());
        let dropped = shared.words.load(head::DROPPED, Ordering::Relaxed);
        assert_eq!(dropped, 0, "death at write {at}");
        drop(old);
        shared.recover();
        for descriptor in (0..shared.layout.descriptors.len()).filter_map(|i| shared.descriptor(i))
        {
            let state = State::unpack(descriptor[desc::STATE].load(Ordering::Relaxed));
            assert!(state.phase != Phase::Dying, "death at write {at}");
        }
        assert_eq!(shared.sweep(), 1);
        web.inc();
        let api = live.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("api"));
        api.add(10);
        let old = live.counter(&catalog::CONNECTIONS_ACCEPTED, &labels("old"));
        old.inc();
        let seen = totals(&shared);
        let total = |rule: &str| {
            seen.iter().filter(|(name, _)| name.contains(rule)).map(|(_, n)| *n).collect::<Vec<_>>()
        };
        assert_eq!(total("web"), [6], "death at write {at}");
        assert_eq!(total("api"), [10], "death at write {at}");
        assert_eq!(total("\"old\""), [1], "death at write {at}");
        if done {
            break;
        }
        at += 1;
    }
    assert!(at > 2, "{at}");
}
