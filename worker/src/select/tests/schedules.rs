//! Thousands of random schedules: several connections at once over the same lines, each dial
//! meeting a random fate at a random time, connections abandoned in the middle. What must
//! always hold is checked by the driver (steps after the end, attempts left in flight, a
//! machine that waits for nothing) and here.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use baton_config::model::{Hedge, Mode, OnAllFailed, ParallelMode, Strategy, Target};

use super::sim::{Bench, Does, Drive, Run, forward, ms};
use crate::flow::{Fault, GiveUp, LineIndex};
use crate::testkit::{rule, target};
use crate::upstream::{LineSnapshot, Refused};

const ROUNDS: u64 = 3000;

/// A dial's fate: mostly quick, sometimes everything else.
fn fate(rng: &mut fastrand::Rng, quota_refusals: bool) -> Does {
    match rng.u8(0..16) {
        0..=5 => Does::Connects(rng.u64(1..200)),
        6..=9 => Does::Fails(rng.u64(0..100), Fault::Dial),
        10 => Does::Fails(rng.u64(0..100), Fault::Preparation),
        11 => Does::Fails(rng.u64(0..100), Fault::Local),
        12 => Does::Silent,
        13 => Does::Prewarmed,
        14 if quota_refusals => Does::TargetFull,
        15 if quota_refusals => Does::ProcessFull,
        _ => Does::Connects(1),
    }
}

fn modes(rng: &mut fastrand::Rng) -> Mode {
    let parallel = if rng.bool() { ParallelMode::Round } else { ParallelMode::Rand };
    let strategies = [
        Strategy::Round,
        Strategy::Rand,
        Strategy::Fifo,
        Strategy::Hash,
        Strategy::Parallel { max: rng.u16(0..4), mode: parallel },
        Strategy::LeastConn,
        Strategy::Latency,
    ];
    let mut spec = forward(strategies[rng.usize(0..strategies.len())]);
    spec.retries = rng.u8(0..4);
    spec.selector.max_fails = rng.u16(1..4);
    if rng.bool() {
        spec.selector.on_all_failed = OnAllFailed::Reject;
    }
    match rng.u8(0..6) {
        0 => Mode::Normal,
        1 => Mode::Boost(None),
        2 => Mode::Boost(Some(Hedge { min_delay: ms(25), max_delay: ms(250) })),
        3 => Mode::RoundRobin,
        _ => Mode::Forward(spec),
    }
}

fn world(seed: u64) -> Bench {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mode = modes(&mut rng);
    let selected = matches!(mode, Mode::Forward(_));
    let count = rng.u16(1..9);
    let targets = (0..count)
        .map(|n| Target {
            // Sometimes an address twice, sometimes a backup (never only backups).
            backup: selected && n > 0 && rng.u8(0..4) == 0,
            weight: rng.u16(1..5),
            ..target(if rng.u8(0..8) == 0 { 1 } else { n + 1 })
        })
        .collect();
    let mut bench = Bench::new(rule(mode, targets));
    bench.rng = rng;
    bench
}

/// Runs `connections` overlapping connections to their ends; some are abandoned.
fn storm(bench: &mut Bench, connections: usize, mut watch: impl FnMut(&Bench)) -> Vec<Run> {
    let mut drives = Vec::new();
    let mut runs = Vec::new();
    let mut rng = bench.rng.fork();
    let mut fates = bench.rng.fork();
    let mut does = move |_: LineIndex| fate(&mut fates, true);
    for _ in 0..connections {
        let mut drive = Drive::new(bench.machine(), bench.now);
        drive.start(&mut does);
        drives.push(drive);
        watch(bench);
        // Let some of what is under way happen before the next client comes.
        for _ in 0..rng.u8(0..6) {
            step_next(bench, &mut drives, &mut does);
            watch(bench);
        }
        if rng.u8(0..12) == 0 && !drives.is_empty() {
            drop(drives.swap_remove(rng.usize(0..drives.len())));
            watch(bench);
        }
        bench.pass(ms(rng.u64(0..3000)));
    }
    while drives.iter().any(|drive| drive.end.is_none()) {
        step_next(bench, &mut drives, &mut does);
        watch(bench);
    }
    runs.extend(drives.into_iter().map(Drive::finish));
    runs
}

/// Lets the next thing happen in whichever connection it is due.
fn step_next(bench: &mut Bench, drives: &mut [Drive], does: &mut impl FnMut(LineIndex) -> Does) {
    let next = drives
        .iter_mut()
        .filter_map(|drive| drive.due().map(|due| (due, drive)))
        .min_by_key(|(due, _)| *due);
    if let Some((due, drive)) = next {
        bench.now = bench.now.max(due);
        drive.now = bench.now;
        drive.step(does);
    }
}

#[test]
fn every_machine_ends_in_exactly_one_use_or_give_up_and_leaves_nothing_behind() {
    for seed in 0..ROUNDS {
        let mut bench = world(seed);
        let mut runs = storm(&mut bench, 6, |_| {});
        for run in &mut runs {
            assert_eq!(run.end.is_ok(), run.winner.is_some(), "seed {seed}");
            assert!(run.machine.take_winner().is_none(), "a winner is taken once");
        }
        drop(runs);
        for (_, node) in bench.lines.iter() {
            assert_eq!(node.line.active(), 0, "seed {seed}: nothing stays active");
            assert_ne!(
                node.line.check(bench.now),
                Err(Refused::Probing),
                "seed {seed}: no probe without an owner"
            );
        }
    }
}

#[test]
fn a85_boost_and_its_race_never_have_more_than_two_in_flight() {
    let mut seen = 0;
    for seed in 0..ROUNDS {
        let mut bench = world(seed);
        let wide = matches!(bench.rule.mode, Mode::Forward(_));
        for run in storm(&mut bench, 5, |_| {}) {
            if !wide {
                assert!(run.most_in_flight <= 2, "seed {seed}");
                seen += usize::from(run.most_in_flight == 2);
            }
        }
    }
    assert!(seen > 1000, "the property was exercised");
}

#[test]
fn a85_each_address_is_dialled_at_most_once_a_connection() {
    for seed in 0..ROUNDS {
        let mut bench = world(seed);
        let selected = matches!(bench.rule.mode, Mode::Forward(_));
        let hedged = matches!(bench.rule.mode, Mode::Boost(Some(_)));
        for run in storm(&mut bench, 5, |_| {}) {
            let mut seen = HashSet::new();
            for dial in &run.dials {
                let line = bench.lines.node(LineIndex(dial.line)).first();
                let repeated = !seen.insert(line);
                // A backup that got no quota was not dialled; it may be the failover later.
                let refused_backup = hedged && run.machine.notes().hedge.skipped_capacity;
                assert!(!repeated || refused_backup, "seed {seed} {selected}: {:?}", run.dials);
            }
        }
    }
}

#[test]
fn a78_at_most_one_half_open_probe_is_out_however_many_connections_want_it() {
    let mut probes = 0;
    for seed in 0..ROUNDS {
        let mut bench = world(seed);
        if matches!(bench.rule.mode, Mode::Forward(_)) {
            continue;
        }
        // A line between its cooling and its probe's end has at most that one attempt that
        // was admitted since; `check` tells the two states apart.
        let mut active_before: HashMap<u16, (bool, u32)> = HashMap::new();
        storm(&mut bench, 8, |bench| {
            for (index, node) in bench.lines.iter() {
                let probing = node.line.check(bench.now) == Err(Refused::Probing);
                let active = node.line.active();
                if let Some(&(was, before)) = active_before.get(&index.0)
                    && was
                    && probing
                {
                    assert!(active <= before, "seed {seed}: admitted beside the probe");
                }
                probes += usize::from(probing);
                active_before.insert(index.0, (probing, active));
            }
        });
    }
    assert!(probes > 100, "the property was exercised");
}

#[test]
fn a101_quota_refusals_alone_change_no_state() {
    for seed in 0..ROUNDS {
        let mut bench = world(seed);
        let mut rng = bench.rng.fork();
        storm(&mut bench, 4, |_| {});
        let before: Vec<_> = snapshots(&bench);
        let cached = bench.selector.winner.get(&bench.lines, bench.now).map(|hit| hit.token);
        for _ in 0..3 {
            let run = bench.run(|_| if rng.bool() { Does::TargetFull } else { Does::ProcessFull });
            let reason = run.end.unwrap_err();
            assert!(
                matches!(reason, GiveUp::QuotaExhausted | GiveUp::NoneUsable),
                "seed {seed}: {reason:?}"
            );
        }
        assert_eq!(before, snapshots(&bench), "seed {seed}");
        if let Some(hit) = bench.selector.winner.get(&bench.lines, bench.now) {
            assert_eq!(Some(hit.token), cached, "seed {seed}");
        }
    }
}

fn snapshots(bench: &Bench) -> Vec<LineSnapshot> {
    bench.lines.iter().map(|(_, node)| LineSnapshot::of(&node.line)).collect()
}

#[test]
fn c31_a_backup_is_never_dialled_while_a_primary_is_usable() {
    let mut backups = 0;
    for seed in 0..ROUNDS {
        let mut bench = world(seed);
        if !matches!(bench.rule.mode, Mode::Forward(_)) || bench.lines.len() < 2 {
            continue;
        }
        let mut rng = bench.rng.fork();
        for _ in 0..12 {
            let lines = std::sync::Arc::clone(&bench.lines);
            let mut drive = Drive::new(bench.machine(), bench.now);
            let mut does = |line: LineIndex| {
                if lines.node(line).backup {
                    backups += 1;
                }
                if rng.u8(0..4) > 0 { super::sim::REFUSES } else { fate(&mut rng, false) }
            };
            check_backups(&bench, &mut drive, &mut does, true);
            while drive.end.is_none() {
                check_backups(&bench, &mut drive, &mut does, false);
            }
            bench.now = drive.now.after(ms(bench.rng.u64(0..4000)));
        }
    }
    assert!(backups > 500, "the property was exercised");
}

/// One step of a connection, with the rule about backups checked against the lines as they
/// were right after it: a dial does not change marks, so they are as the decision saw them.
fn check_backups(
    bench: &Bench,
    drive: &mut Drive,
    does: &mut impl FnMut(LineIndex) -> Does,
    first: bool,
) {
    let mut dialled = Vec::new();
    let mut watching = |line: LineIndex| {
        dialled.push(line);
        does(line)
    };
    if first {
        drive.start(&mut watching);
    } else {
        drive.step(&mut watching);
    }
    for line in dialled {
        let primary_usable =
            bench.lines.iter().any(|(_, node)| !node.backup && node.line.usable(drive.now));
        assert!(
            !(bench.lines.node(line).backup && primary_usable),
            "a backup was dialled beside a usable primary"
        );
    }
}

#[test]
fn a80_losers_of_a_race_are_neutral_in_every_schedule() {
    let mut cancelled = 0;
    for seed in 0..ROUNDS {
        let mut bench = world(seed);
        // Every line connects, at different speeds: nobody ever fails, many are cancelled.
        let mut rng = bench.rng.fork();
        for _ in 0..6 {
            let run = bench.run(|_| Does::Connects(rng.u64(1..200)));
            assert!(run.end.is_ok());
            cancelled += run.cancelled.len();
            bench.pass(Duration::from_secs(rng.u64(0..40)));
        }
        for (_, node) in bench.lines.iter() {
            assert_eq!(node.line.streak(), 0, "seed {seed}");
            assert!(node.line.usable(bench.now), "seed {seed}");
        }
    }
    assert!(cancelled > 0, "nobody ever lost a race");
}
