//! The explanation agrees with what the machines do, and touches nothing.

use std::time::Duration;

use baton_config::model::{Forward, Mode, Strategy, Target};

use super::sim::{Bench, Does, REFUSES, forward, ms};
use crate::flow::{Candidates, Fault, LineIndex};
use crate::select::Affinity;
use crate::select::explain::{Explained, Reason};
use crate::testkit::{rule, target};
use crate::upstream::LineSnapshot;

fn explain(bench: &Bench) -> Vec<Explained> {
    let all: Candidates = bench.lines.indexes().collect();
    bench.selector.explain(&bench.lines, &all, &all, Affinity::default(), bench.now)
}

/// The usable ones in order, and the excluded ones with their reason.
fn split(explained: &[Explained]) -> (Vec<u16>, Vec<(u16, Reason)>) {
    let usable = explained.iter().filter(|e| e.usable).map(|e| e.line.0).collect();
    let rest = explained.iter().filter(|e| !e.usable).map(|e| (e.line.0, e.reason)).collect();
    (usable, rest)
}

fn of(mode: Mode, count: u16) -> Bench {
    Bench::new(rule(mode, (1..=count).map(target).collect()))
}

fn fail(bench: &Bench, line: u16, times: u32) {
    for _ in 0..times {
        bench.lines.line(LineIndex(line)).admit(bench.now).unwrap().failed(Fault::Dial, bench.now);
    }
}

#[test]
fn the_explained_order_is_the_order_of_the_dials_in_every_deterministic_mode() {
    let modes = [
        Mode::Normal,
        Mode::Boost(None),
        Mode::RoundRobin,
        Mode::Forward(Forward { retries: 8, ..forward(Strategy::Fifo) }),
        Mode::Forward(Forward { retries: 0, ..forward(Strategy::Round) }),
        Mode::Forward(Forward { retries: 0, ..forward(Strategy::Hash) }),
        Mode::Forward(Forward { retries: 0, ..forward(Strategy::LeastConn) }),
    ];
    for mode in modes {
        let mut bench = of(mode.clone(), 6);
        let mut rng = fastrand::Rng::with_seed(5);
        let mut held = Vec::new();
        for (index, node) in bench.lines.iter() {
            node.line.sampled(ms(rng.u64(1..100)), bench.now);
            // No ties for the strategy that would draw among them.
            held.extend((0..6 - index.0).map(|_| node.line.adopt()));
        }
        fail(&bench, 2, 3);
        for round in 0..3 {
            let (explained, _) = split(&explain(&bench));
            let run = bench.run(|_| REFUSES);
            // Once all have failed the selector may come to its last resort, marked before.
            let shared = run.order().len().min(explained.len());
            assert!(shared > 0, "{mode:?}, round {round}");
            assert_eq!(run.order()[..shared], explained[..shared], "{mode:?}, round {round}");
            if matches!(mode, Mode::Forward(_)) {
                bench.pass(Duration::from_secs(11));
            }
        }
    }
}

#[test]
fn every_reason_for_exclusion_is_told() {
    let backup = Target { backup: true, ..target(4) };
    let targets = vec![target(1), target(2), target(3), backup];
    let bench = Bench::new(rule(Mode::Forward(forward(Strategy::Fifo)), targets));
    fail(&bench, 1, 1);
    let thresholds = crate::upstream::health::Thresholds { failure: 1, success: 1 };
    bench.lines.line(LineIndex(2)).probed(false, thresholds);
    let (usable, excluded) = split(&explain(&bench));
    assert_eq!(usable, [0]);
    let expected = [(1, Reason::Marked), (2, Reason::Unhealthy), (3, Reason::HeldBack)];
    assert_eq!(excluded, expected);

    fail(&bench, 0, 1);
    assert_eq!(split(&explain(&bench)).0, [3], "the backup serves");
    bench.lines.line(LineIndex(3)).admit(bench.now).unwrap().failed(Fault::Dial, bench.now);
    let last = explain(&bench)[0];
    assert!(last.usable && last.reason == Reason::LastResort);
}

#[test]
fn open_breakers_duplicates_and_routes_elsewhere_are_told() {
    let mut bench = Bench::new(rule(
        Mode::Boost(None),
        vec![target(1), target(2), target(1), target(3), target(4)],
    ));
    fail(&bench, 1, 3);
    let all: Candidates = bench.lines.indexes().collect();
    let some: Candidates = (0..4).map(LineIndex).collect();
    let few: Candidates = (0..3).map(LineIndex).collect();
    let told = |candidates: &Candidates, bench: &Bench| {
        let explained =
            bench.selector.explain(&bench.lines, &some, candidates, Affinity::default(), bench.now);
        split(&explained)
    };
    let (usable, excluded) = told(&few, &bench);
    assert_eq!(usable, [0]);
    let expected =
        [(1, Reason::Open), (2, Reason::Duplicate), (3, Reason::OtherSubset), (4, Reason::NoMatch)];
    assert_eq!(excluded, expected);
    bench.pass(Duration::from_secs(5));
    let _probe = bench.lines.line(LineIndex(1)).admit(bench.now).unwrap();
    let probing = bench.selector.explain(&bench.lines, &all, &all, Affinity::default(), bench.now);
    assert!(probing.iter().any(|e| e.line.0 == 1 && e.reason == Reason::Probing));
}

#[test]
fn the_cached_winner_comes_first_and_explaining_changes_nothing() {
    let mut bench = of(Mode::Boost(None), 3);
    bench.run(|line| Does::Connects(if line.0 == 1 { 5 } else { 50 }));
    let state = |bench: &Bench| -> Vec<_> {
        bench.lines.iter().map(|(_, node)| LineSnapshot::of(&node.line)).collect()
    };
    let before = (state(&bench), bench.selector.peek_turn());
    let explained = explain(&bench);
    assert_eq!((explained[0].line.0, explained[0].reason), (1, Reason::CachedWinner));
    assert_eq!(explained[0].ewma_nanos, 5_000_000);
    assert_eq!(explained[0].score, 5_000_000);
    assert_eq!(before, (state(&bench), bench.selector.peek_turn()));
}
