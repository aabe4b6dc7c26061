//! The hedge of `boost`.

use std::time::Duration;

use baton_config::model::{Hedge, Mode};

use super::sim::{Bench, Does, ms};
use crate::flow::{Fault, GiveUp, LineIndex, Quota};
use crate::testkit::{rule, target};

/// Three lines, the first of them cached with a mean of `mean` milliseconds.
fn warm(mean: u64, timeout: u64) -> Bench {
    let hedge = Hedge { min_delay: ms(25), max_delay: ms(250) };
    let mut rule = rule(Mode::Boost(Some(hedge)), (1..=3).map(target).collect());
    rule.timeout = ms(timeout);
    let mut bench = Bench::new(rule);
    let run = bench.run(|line| Does::Connects(if line.0 == 0 { mean } else { mean + 100 }));
    assert_eq!(run.end, Ok(LineIndex(0)));
    bench
}

#[test]
fn a87_a_backup_starts_after_twice_the_usual_time_within_the_limits() {
    for (mean, delay) in [(50, 100), (5, 25), (400, 250)] {
        let mut bench = warm(mean, 3000);
        let run = bench.run(|line| if line.0 == 0 { Does::Silent } else { Does::Connects(10) });
        assert_eq!(run.dials.len(), 2);
        assert_eq!((run.dials[0].at, run.dials[1].at), (0, delay), "mean of {mean} ms");
        assert_eq!(run.most_in_flight, 2);
        let hedge = run.machine.notes().hedge;
        assert!(hedge.scheduled && hedge.won);
        assert_eq!(hedge.launched, Some(ms(delay)));
        assert_eq!(run.cancelled, [LineIndex(0)]);
        let winner = run.end.unwrap();
        let next = bench.run(|_| Does::Connects(1));
        assert_eq!(next.order(), [winner.0], "a94: the winner is cached");
    }
}

#[test]
fn a87_a_primary_in_time_needs_no_backup() {
    let mut bench = warm(50, 3000);
    let run = bench.run(|_| Does::Connects(90));
    assert_eq!(run.order(), [0]);
    assert!(run.machine.notes().hedge.avoided);
}

#[test]
fn a88_a_primary_that_fails_is_replaced_at_once() {
    let mut bench = warm(50, 3000);
    let run = bench.run(|line| match line.0 {
        0 => Does::Fails(3, Fault::Dial),
        _ => Does::Connects(10),
    });
    assert!(run.dials[1..].iter().all(|d| d.at == 3 && d.quota == Quota::Wait));
    assert!(run.end.is_ok());
}

#[test]
fn a90_without_a_free_place_the_primary_goes_on_alone() {
    let mut bench = warm(50, 3000);
    let run = bench.run(|line| match line.0 {
        0 => Does::Connects(500),
        _ => Does::TargetFull,
    });
    assert_eq!(run.end, Ok(LineIndex(0)));
    assert_eq!(run.dials[1].quota, Quota::Immediate);
    assert_eq!(run.dials.len(), 2, "no second try, no waiter");
    let hedge = run.machine.notes().hedge;
    assert!(hedge.skipped_capacity && hedge.launched.is_none());
}

#[test]
fn a91_a_refused_backup_becomes_the_failover_and_then_waits_like_any_other() {
    let mut bench = warm(50, 3000);
    let mut refused = false;
    let run = bench.run(|line| match line.0 {
        0 => Does::Fails(500, Fault::Dial),
        _ if !std::mem::replace(&mut refused, true) => Does::ProcessFull,
        _ => Does::Connects(10),
    });
    assert!(run.end.is_ok());
    assert_eq!(run.dials[1].quota, Quota::Immediate);
    let refused = run.dials[1].line;
    let failover = run.dials[2..].iter().find(|d| d.line == refused).expect("tried again");
    assert_eq!((failover.at, failover.quota), (500, Quota::Wait));
}

#[test]
fn a_backup_refused_its_quota_is_not_why_a_connection_ends() {
    let mut bench = warm(50, 3000);
    let mut refused = false;
    let run = bench.run(|line| match line.0 {
        0 => Does::Fails(500, Fault::Dial),
        _ if !std::mem::replace(&mut refused, true) => Does::ProcessFull,
        _ => Does::Fails(1, Fault::Dial),
    });
    assert!(run.machine.notes().hedge.skipped_capacity);
    assert_eq!(run.end, Err(GiveUp::AllFailed));
}

#[test]
fn a93_a_prewarmed_primary_starts_no_hedge() {
    let mut bench = warm(50, 3000);
    let run = bench.run(|_| Does::Prewarmed);
    assert_eq!(run.order(), [0]);
    assert_eq!(run.machine.notes().hedge, crate::select::HedgeNotes::default());
}

#[test]
fn a95_without_time_for_the_delay_no_hedge_is_scheduled() {
    let mut bench = warm(90, 400);
    bench.rule.timeout = ms(150);
    let mut short = Bench::new(bench.rule);
    short.run(|line| Does::Connects(if line.0 == 0 { 90 } else { 140 }));
    let run = short.run(|line| if line.0 == 0 { Does::Connects(149) } else { Does::Silent });
    assert_eq!(run.order(), [0]);
    let hedge = run.machine.notes().hedge;
    assert!(hedge.skipped_deadline && !hedge.scheduled);
}

#[test]
fn a_hedge_without_another_usable_line_says_so() {
    let mut bench = warm(50, 3000);
    for line in [1, 2] {
        let line = std::sync::Arc::clone(bench.lines.line(LineIndex(line)));
        for _ in 0..3 {
            line.admit(bench.now).unwrap().failed(Fault::Dial, bench.now);
        }
    }
    let run = bench.run(|_| Does::Connects(500));
    assert_eq!(run.order(), [0]);
    assert!(run.machine.notes().hedge.no_candidate);
}

#[test]
fn a89_the_hedge_clock_starts_when_the_dial_does() {
    use crate::flow::{AttemptId, Event, Step, Steps};

    let mut bench = warm(50, 3000);
    let mut machine = bench.machine();
    let mut steps = Steps::new();
    machine.start(bench.now, &mut steps);
    assert!(matches!(steps[..], [Step::Dial { .. }]), "no clock while waiting for quota");
    steps.clear();
    let started = bench.now.after(Duration::from_millis(120));
    machine.on(Event::Started(AttemptId(0)), started, &mut steps);
    assert_eq!(steps[..], [Step::WakeAt(started.after(ms(100)))]);
}
