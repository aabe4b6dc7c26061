//! `forward`: strategies, marks, backups, retries.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use baton_config::model::{Forward, Mode, OnAllFailed, ParallelMode, Strategy, Target};

use super::sim::{Bench, Does, REFUSES, forward, ms};
use crate::flow::{Fault, GiveUp, LineIndex};
use crate::select::Affinity;
use crate::testkit::{rule, target};

fn bench(spec: Forward, targets: Vec<Target>) -> Bench {
    Bench::new(rule(Mode::Forward(spec), targets))
}

fn plain(strategy: Strategy, count: u16) -> Bench {
    bench(forward(strategy), (1..=count).map(target).collect())
}

/// How often each line was chosen in `runs` connections that all succeed.
fn shares(bench: &mut Bench, runs: u32) -> HashMap<u16, u32> {
    let mut shares = HashMap::new();
    for _ in 0..runs {
        *shares.entry(bench.run(|_| Does::Connects(1)).end.unwrap().0).or_default() += 1;
    }
    shares
}

#[test]
fn c6_round_takes_turns_over_what_is_usable() {
    let mut bench = plain(Strategy::Round, 3);
    assert_eq!(shares(&mut bench, 300), HashMap::from([(0, 100), (1, 100), (2, 100)]));
    let failed = bench.lines.line(LineIndex(1)).admit(bench.now).unwrap();
    failed.failed(Fault::Dial, bench.now);
    assert_eq!(shares(&mut bench, 300), HashMap::from([(0, 150), (2, 150)]));
}

#[test]
fn c6_a_dead_target_does_not_skew_the_turns_of_its_neighbours() {
    let mut spec = forward(Strategy::Round);
    spec.selector.max_fails = 1000;
    let mut bench = bench(spec, (1..=4).map(target).collect());
    let mut shares = HashMap::new();
    for _ in 0..400 {
        let run = bench.run(|line| if line.0 == 0 { REFUSES } else { Does::Connects(1) });
        *shares.entry(run.end.unwrap().0).or_insert(0u32) += 1;
    }
    let (least, most) = (shares.values().min().unwrap(), shares.values().max().unwrap());
    assert_eq!(shares.len(), 3);
    assert!(most - least <= 2, "{shares:?}");
}

#[test]
fn c7_weights_of_two_to_one_over_3000_within_three_sigma() {
    let heavy = Target { weight: 20, ..target(1) };
    let light = Target { weight: 10, ..target(2) };
    let mut bench = bench(forward(Strategy::Rand), vec![heavy, light]);
    let shares = shares(&mut bench, 3000);
    // σ = √(3000 · 2/3 · 1/3) = 25.8
    assert!((2000 - 77..=2000 + 77).contains(&shares[&0]), "{shares:?}");
    assert_eq!(shares[&0] + shares[&1], 3000);
}

#[test]
fn c8_fifo_takes_the_first_usable_and_returns_to_it() {
    let mut bench = plain(Strategy::Fifo, 3);
    let run = bench.run(|line| if line.0 == 0 { REFUSES } else { Does::Connects(1) });
    assert_eq!(run.order(), [0, 1]);
    assert_eq!(bench.run(|_| Does::Connects(1)).order(), [1]);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.run(|_| Does::Connects(1)).order(), [0]);
}

fn by_client(bench: &mut Bench, last: u8) -> u16 {
    let ip = IpAddr::from([192, 0, 2, last]);
    let candidates = bench.lines.indexes().collect();
    let rng = bench.rng.fork();
    let machine = bench.selector.begin(&bench.lines, candidates, Affinity::client(ip), rng);
    bench.drive(machine, |_| Does::Connects(1)).end.unwrap().0
}

#[test]
fn c9_hash_sticks_to_the_client_and_a_failure_moves_only_its_own_clients() {
    let mut bench = plain(Strategy::Hash, 5);
    let before: Vec<_> = (0..=255).map(|client| by_client(&mut bench, client)).collect();
    let again: Vec<_> = (0..=255).map(|client| by_client(&mut bench, client)).collect();
    assert_eq!(before, again);
    for line in 0..5 {
        // 256 keys over 5 nodes: 51 each, σ = 6.4.
        let share = before.iter().filter(|&&l| l == line).count();
        assert!((51 - 20..=51 + 20).contains(&share), "line {line}: {share}");
    }
    let failed = bench.lines.line(LineIndex(2)).admit(bench.now).unwrap();
    failed.failed(Fault::Dial, bench.now);
    for (client, &line) in (0..=255).zip(&before) {
        let now = by_client(&mut bench, client);
        assert!(if line == 2 { now != 2 } else { now == line });
    }
}

#[test]
fn c9_mapped_clients_hash_like_their_ipv4_address() {
    let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
    assert_eq!(Affinity::client(mapped), Affinity::client([192, 0, 2, 1].into()));
}

#[test]
fn c11_parallel_dials_all_at_once_and_closes_the_rest() {
    let mut bench = plain(Strategy::Parallel { max: 0, mode: ParallelMode::Round }, 5);
    let run = bench.run(|line| Does::Connects(50 - u64::from(line.0) * 10));
    assert_eq!(run.order(), [0, 1, 2, 3, 4]);
    assert_eq!(run.end, Ok(LineIndex(4)));
    assert_eq!(run.cancelled.len(), 4);
    assert!(run.dials.iter().all(|d| d.at == 0));
}

#[test]
fn c13_parallel_round_takes_consecutive_targets_and_wraps() {
    let order = |count, turns| -> Vec<Vec<u16>> {
        let mut bench = plain(Strategy::Parallel { max: 2, mode: ParallelMode::Round }, count);
        (0..turns).map(|_| bench.run(|_| Does::Connects(1)).order()).collect()
    };
    assert_eq!(order(6, 4), [[0, 1], [2, 3], [4, 5], [0, 1]]);
    assert_eq!(order(3, 3), [[0, 1], [2, 0], [1, 2]]);
}

#[test]
fn c13_parallel_rand_draws_distinct_targets_uniformly() {
    let mut bench = plain(Strategy::Parallel { max: 2, mode: ParallelMode::Rand }, 5);
    let mut seen = [0u32; 5];
    for _ in 0..2500 {
        let order = bench.run(|_| Does::Connects(1)).order();
        assert!(order.len() == 2 && order[0] != order[1]);
        order.iter().for_each(|&line| seen[usize::from(line)] += 1);
    }
    // 1000 each, σ = √(2500 · 0.4 · 0.6) = 24.5
    assert!(seen.iter().all(|&n| (1000 - 74..=1000 + 74).contains(&n)), "{seen:?}");
}

#[test]
fn c14_parallel_failures_mark_no_candidate() {
    let mut bench = plain(Strategy::Parallel { max: 0, mode: ParallelMode::Round }, 3);
    for _ in 0..3 {
        let run = bench.run(|line| if line.0 < 2 { REFUSES } else { Does::Connects(9) });
        assert_eq!(run.order(), [0, 1, 2], "a dead candidate is raced again");
        assert_eq!(run.end, Ok(LineIndex(2)));
    }
    assert_eq!(bench.run(|_| REFUSES).end, Err(GiveUp::AllFailed));
    assert!(bench.lines.iter().all(|(_, node)| node.line.usable(bench.now)));
}

#[test]
fn c14_candidates_already_marked_are_filtered_out_first() {
    let mut bench = plain(Strategy::Parallel { max: 0, mode: ParallelMode::Round }, 3);
    let failed = bench.lines.line(LineIndex(1)).admit(bench.now).unwrap();
    failed.failed(Fault::Dial, bench.now);
    assert_eq!(bench.run(|_| Does::Connects(1)).order(), [0, 2]);
}

#[test]
fn c15_two_connections_may_use_different_targets_of_a_race() {
    let mut bench = plain(Strategy::Parallel { max: 0, mode: ParallelMode::Round }, 2);
    let one = bench.run(|line| Does::Connects(if line.0 == 0 { 1 } else { 5 }));
    let two = bench.run(|line| Does::Connects(if line.0 == 0 { 5 } else { 1 }));
    assert_eq!((one.end, two.end), (Ok(LineIndex(0)), Ok(LineIndex(1))));
}

#[test]
fn c22_a_targets_own_limits_override_the_selectors_each_separately() {
    let patient = Target { max_fails: Some(3), ..target(1) };
    let long = Target { fail_timeout: Some(Duration::from_secs(60)), ..target(2) };
    let mut spec = forward(Strategy::Fifo);
    spec.retries = 0;
    let mut bench = bench(spec, vec![patient, long, target(3)]);
    assert_eq!(bench.run(|_| REFUSES).order(), [0]);
    assert_eq!(bench.run(|_| REFUSES).order(), [0]);
    assert_eq!(bench.run(|_| REFUSES).order(), [0], "the third failure marks");
    assert_eq!(bench.run(|_| REFUSES).order(), [1], "one failure marks");
    bench.pass(Duration::from_secs(11));
    assert_eq!(bench.run(|_| REFUSES).order(), [0]);
    assert_eq!(bench.run(|_| Does::Connects(1)).order(), [2], "its mark lasts a minute");
}

#[test]
fn c28_a_sole_target_is_always_used() {
    let mut spec = forward(Strategy::Round);
    spec.selector.on_all_failed = OnAllFailed::Reject;
    let mut bench = bench(spec, vec![target(1)]);
    for _ in 0..5 {
        let run = bench.run(|_| REFUSES);
        assert_eq!((run.order(), run.end), (vec![0], Err(GiveUp::AllFailed)));
    }
    assert_eq!(bench.run(|_| Does::Connects(1)).end, Ok(LineIndex(0)));
}

#[test]
fn c29_with_all_marked_the_last_resort_is_the_one_whose_mark_ends_first() {
    for on_all_failed in [OnAllFailed::LastResort, OnAllFailed::Reject] {
        let mut spec = forward(Strategy::Round);
        spec.selector.on_all_failed = on_all_failed;
        spec.retries = 0;
        let mut bench = bench(spec, (1..=3).map(target).collect());
        for line in [1, 2, 0] {
            let admitted = bench.lines.line(LineIndex(line)).admit(bench.now).unwrap();
            admitted.failed(Fault::Dial, bench.now);
            bench.pass(ms(100));
        }
        let run = bench.run(|_| Does::Connects(1));
        match on_all_failed {
            OnAllFailed::LastResort => assert_eq!(run.order(), [1]),
            OnAllFailed::Reject => {
                assert_eq!((run.order(), run.end), (vec![], Err(GiveUp::NoneUsable)));
            }
        }
    }
}

#[test]
fn c31_backups_serve_only_while_all_primaries_are_marked() {
    let backup = |port| Target { backup: true, ..target(port) };
    let mut bench =
        bench(forward(Strategy::Round), vec![target(1), target(2), backup(3), backup(4)]);
    assert_eq!(shares(&mut bench, 40), HashMap::from([(0, 20), (1, 20)]));
    let run = bench.run(|line| if line.0 < 2 { REFUSES } else { Does::Connects(1) });
    assert!(run.end.unwrap().0 >= 2, "both primaries are marked now");
    let backups = shares(&mut bench, 40);
    assert_eq!((backups[&2], backups[&3]), (20, 20), "c32: the same strategy among backups");
    bench.pass(Duration::from_secs(10));
    assert!(shares(&mut bench, 10).keys().all(|&line| line < 2));
}

#[test]
fn c32_backups_alone_are_ordinary_targets() {
    let backup = |port| Target { backup: true, ..target(port) };
    let mut bench = bench(forward(Strategy::Round), vec![backup(1), backup(2)]);
    assert_eq!(shares(&mut bench, 10), HashMap::from([(0, 5), (1, 5)]));
}

#[test]
fn c39_retries_go_to_untried_targets_within_the_timeout() {
    let mut bench = plain(Strategy::Fifo, 5);
    let run = bench.run(|_| REFUSES);
    assert_eq!((run.order(), run.end), (vec![0, 1, 2], Err(GiveUp::AllFailed)));

    let mut spec = forward(Strategy::Fifo);
    spec.retries = 0;
    let mut none = self::bench(spec, vec![target(1), target(2)]);
    assert_eq!(none.run(|_| REFUSES).order(), [0]);
}

#[test]
fn a100_a_full_target_uses_up_no_retry() {
    let mut spec = forward(Strategy::Fifo);
    spec.retries = 0;
    let mut bench = bench(spec, (1..=4).map(target).collect());
    let run = bench.run(|line| if line.0 < 2 { Does::TargetFull } else { REFUSES });
    assert_eq!((run.order(), run.end), (vec![0, 1, 2], Err(GiveUp::AllFailed)));
}

#[test]
fn c39_a_black_hole_leaves_time_for_the_retries() {
    let mut bench = plain(Strategy::Fifo, 5);
    let run = bench.run(|line| if line.0 < 2 { Does::Silent } else { Does::Connects(5) });
    assert_eq!(run.end, Ok(LineIndex(2)));
    let deadlines: Vec<_> = run.dials.iter().map(|d| d.deadline).collect();
    assert_eq!(deadlines, [1000, 2000, 3000]);
}

#[test]
fn c39_an_unmarked_primary_already_tried_lets_no_backup_in() {
    let mut spec = forward(Strategy::Fifo);
    spec.selector.max_fails = 3;
    let mut bench = bench(spec, vec![target(1), Target { backup: true, ..target(2) }]);
    for _ in 0..2 {
        let run = bench.run(|_| REFUSES);
        assert_eq!((run.order(), run.end), (vec![0], Err(GiveUp::AllFailed)));
    }
    let run = bench.run(|line| if line.0 == 0 { REFUSES } else { Does::Connects(1) });
    assert_eq!(run.order(), [0, 1], "the third failure marks it");
}

#[test]
fn a109_an_unhealthy_target_is_excluded_even_as_the_last_resort() {
    use crate::upstream::health::Thresholds;

    let mut bench = plain(Strategy::Fifo, 2);
    let thresholds = Thresholds { failure: 1, success: 1 };
    bench.lines.line(LineIndex(0)).probed(false, thresholds);
    assert_eq!(bench.run(|_| REFUSES).order(), [1]);
    assert_eq!(bench.run(|_| REFUSES).order(), [1], "the last resort");
    bench.lines.line(LineIndex(1)).probed(false, thresholds);
    assert_eq!(bench.run(|_| REFUSES).end, Err(GiveUp::NoneUsable));
}

#[test]
fn leastconn_takes_the_least_loaded_and_spreads_ties() {
    let mut bench = plain(Strategy::LeastConn, 4);
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(bench.run(|_| Does::Connects(1)).winner.unwrap());
    }
    assert!(bench.lines.iter().all(|(_, node)| node.line.active() == 10));
    held.retain(|winner| winner.line() != LineIndex(2));
    for _ in 0..10 {
        let run = bench.run(|_| Does::Connects(1));
        assert_eq!(run.end, Ok(LineIndex(2)));
        held.push(run.winner.unwrap());
    }
}
