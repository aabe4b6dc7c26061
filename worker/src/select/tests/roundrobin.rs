//! `roundrobin`.

use baton_config::model::Mode;

use super::sim::{Bench, Does, REFUSES, ms};
use crate::flow::{Fault, GiveUp, LineIndex, Quota};
use crate::testkit::{rule, target};

fn roundrobin(ports: &[u16]) -> Bench {
    Bench::new(rule(Mode::RoundRobin, ports.iter().map(|&p| target(p)).collect()))
}

#[test]
fn b10_the_cursor_steps_once_a_connection_over_the_list_as_configured() {
    let mut bench = roundrobin(&[1, 2, 1]);
    let turns: Vec<_> = (0..6).map(|_| bench.run(|_| Does::Connects(1)).order()[0]).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2], "duplicates count");
}

#[test]
fn b10_rules_have_independent_cursors() {
    let (mut one, mut two) = (roundrobin(&[1, 2]), roundrobin(&[1, 2]));
    one.run(|_| Does::Connects(1));
    assert_eq!(two.run(|_| Does::Connects(1)).order(), [0]);
    assert_eq!(one.run(|_| Does::Connects(1)).order(), [1]);
}

#[test]
fn b10_a_failed_turn_is_raced_without_that_address_with_a_fresh_timeout() {
    let mut bench = roundrobin(&[1, 2, 1, 3]);
    let run = bench.run(|line| match line.0 {
        0 => Does::Silent,
        1 => Does::Connects(30),
        _ => Does::Connects(10),
    });
    assert_eq!(run.order(), [0, 1, 3], "the duplicate of the failed address does not race");
    assert_eq!(run.end, Ok(LineIndex(3)));
    assert_eq!((run.dials[0].deadline, run.dials[1].deadline), (3000, 6000));
}

#[test]
fn b10_an_open_breaker_goes_straight_to_the_race_and_shares_the_winner_cache() {
    let mut bench = roundrobin(&[1, 2, 3]);
    let line = std::sync::Arc::clone(bench.lines.line(LineIndex(0)));
    for _ in 0..3 {
        line.admit(bench.now).unwrap().failed(Fault::Dial, bench.now);
    }
    let cold = bench.run(|line| Does::Connects(u64::from(line.0) * 10));
    assert_eq!(cold.order(), [1, 2]);
    assert_eq!(cold.machine.notes().cache_hit, Some(false));
    for _ in 0..2 {
        bench.run(|_| Does::Connects(1));
    }
    let warm = bench.run(|_| Does::Connects(1));
    assert_eq!(warm.order(), [1], "the cached winner alone");
    assert_eq!(warm.machine.notes().cache_hit, Some(true));
}

#[test]
fn a68_a_turn_that_connects_asks_no_cache() {
    let mut bench = roundrobin(&[1, 2]);
    let run = bench.run(|_| Does::Connects(1));
    assert_eq!(run.machine.notes().cache_hit, None);
}

#[test]
fn a100_a_full_turn_races_the_others_without_waiting() {
    let mut bench = roundrobin(&[1, 2]);
    let run = bench.run(|line| if line.0 == 0 { Does::TargetFull } else { Does::Connects(1) });
    assert_eq!(run.dials[1].quota, Quota::Immediate);
    assert_eq!(run.end, Ok(LineIndex(1)));
    let run = bench.run(|_| Does::ProcessFull);
    assert_eq!(run.end, Err(GiveUp::QuotaExhausted));
}

#[test]
fn b10_a_preparation_failure_counts_like_a_dial_failure() {
    let mut bench = roundrobin(&[1, 2]);
    let run = bench.run(|line| match line.0 {
        0 => Does::Fails(2, Fault::Preparation),
        _ => Does::Connects(1),
    });
    assert_eq!(run.end, Ok(LineIndex(1)));
    assert_eq!(bench.lines.line(LineIndex(0)).streak(), 1);
}

#[test]
fn b10_with_all_failing_two_timeouts_are_the_limit() {
    let mut bench = roundrobin(&[1, 2, 3]);
    let run = bench.run(|_| Does::Silent);
    assert_eq!(run.end, Err(GiveUp::Deadline));
    assert_eq!(run.took, 6000);
    let mut bench = roundrobin(&[1, 2, 3]);
    bench.pass(ms(1));
    assert_eq!(bench.run(|_| REFUSES).end, Err(GiveUp::AllFailed));
}
