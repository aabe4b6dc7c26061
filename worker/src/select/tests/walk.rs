//! `normal` and its kin.

use baton_config::model::Mode;

use super::sim::{Bench, Does, REFUSES};
use crate::flow::{Fault, GiveUp, LineIndex, Quota};
use crate::testkit::{rule, target};

fn normal(ports: &[u16]) -> Bench {
    Bench::new(rule(Mode::Normal, ports.iter().map(|&p| target(p)).collect()))
}

#[test]
fn a62_targets_are_tried_in_order_until_one_connects() {
    let mut bench = normal(&[1, 2, 3, 4]);
    let run = bench.run(|line| if line.0 < 2 { REFUSES } else { Does::Connects(10) });
    assert_eq!(run.end, Ok(LineIndex(2)));
    assert_eq!(run.order(), [0, 1, 2]);
    assert!(run.winner.is_some());
}

#[test]
fn b9_a_black_hole_gets_only_its_share_of_the_timeout() {
    let mut bench = normal(&[1, 2, 3]);
    let run = bench.run(|line| if line.0 == 0 { Does::Silent } else { Does::Connects(10) });
    assert_eq!(run.end, Ok(LineIndex(1)));
    assert_eq!(run.dials[0].deadline, 1000);
    assert_eq!(run.dials[1].deadline, 2000);
    assert_eq!(run.took, 1010);
}

#[test]
fn b9_a_refusal_leaves_its_share_to_the_others() {
    let mut bench = normal(&[1, 2]);
    let run = bench.run(|line| if line.0 == 0 { REFUSES } else { Does::Silent });
    assert_eq!(run.dials[1].deadline, 3000);
    assert_eq!(run.end, Err(GiveUp::Deadline));
}

#[test]
fn b9_a_share_is_never_below_250_ms_nor_beyond_the_timeout() {
    let mut bench = normal(&(1..=20).collect::<Vec<_>>());
    bench.rule.timeout = super::sim::ms(600);
    let mut bench = Bench::new(bench.rule);
    let run = bench.run(|_| Does::Silent);
    let deadlines: Vec<_> = run.dials.iter().map(|d| d.deadline).collect();
    assert_eq!(deadlines, [250, 500, 600]);
    assert_eq!(run.end, Err(GiveUp::Deadline));
}

#[test]
fn a84_open_lines_are_skipped_and_a_rule_with_only_open_lines_dials_nothing() {
    let mut bench = normal(&[1, 2]);
    for _ in 0..3 {
        let run = bench.run(|_| REFUSES);
        assert_eq!(run.end, Err(GiveUp::AllFailed));
    }
    let run = bench.run(|_| Does::Connects(1));
    assert_eq!(run.end, Err(GiveUp::NoneUsable));
    assert!(run.dials.is_empty());
    bench.pass(std::time::Duration::from_secs(5));
    let run = bench.run(|_| Does::Connects(1));
    assert_eq!(run.end, Ok(LineIndex(0)));
    assert!(run.dials[0].fresh, "a half-open probe is a fresh dial");
}

#[test]
fn a100_a_full_target_hands_over_to_the_others_without_a_second_wait() {
    let mut bench = normal(&[1, 2, 3]);
    let run = bench.run(|line| match line.0 {
        0 | 1 => Does::TargetFull,
        _ => Does::Connects(5),
    });
    assert_eq!(run.end, Ok(LineIndex(2)));
    let quotas: Vec<_> = run.dials.iter().map(|d| d.quota).collect();
    assert_eq!(quotas, [Quota::Wait, Quota::Immediate, Quota::Immediate]);
    assert_eq!(run.took, 255);
}

#[test]
fn a100_a_full_process_ends_the_client() {
    let mut bench = normal(&[1, 2]);
    let run = bench.run(|_| Does::ProcessFull);
    assert_eq!(run.end, Err(GiveUp::QuotaExhausted));
    assert_eq!(run.order(), [0]);
}

#[test]
fn our_own_lack_is_not_held_against_a_line() {
    let mut bench = normal(&[1]);
    for _ in 0..5 {
        let run = bench.run(|_| Does::Fails(0, Fault::Local));
        assert_eq!(run.end, Err(GiveUp::AllFailed));
    }
    assert_eq!(bench.lines.line(LineIndex(0)).streak(), 0);
}

#[test]
fn a_target_written_twice_is_tried_once() {
    let mut bench = normal(&[1, 1, 2]);
    let run = bench.run(|_| REFUSES);
    assert_eq!(run.order(), [0, 2]);
}
