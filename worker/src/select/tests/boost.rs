//! `boost`: the race and the winner cache.

use std::time::Duration;

use baton_config::model::Mode;

use super::sim::{Bench, Does, REFUSES, ms};
use crate::flow::{Fault, GiveUp, LineIndex, Quota, RelayEnd};
use crate::select::Selector;
use crate::testkit::{rule, target};

pub(super) fn boost(count: u16) -> Bench {
    Bench::new(rule(Mode::Boost(None), (1..=count).map(target).collect()))
}

#[test]
fn a85_a_cold_race_dials_two_at_once_and_the_first_to_connect_wins() {
    let mut bench = boost(4);
    let run = bench.run(|line| Does::Connects(if line.0 == 0 { 50 } else { 20 }));
    assert_eq!(run.end, Ok(LineIndex(1)));
    assert_eq!(run.order(), [0, 1]);
    assert!(run.dials.iter().all(|d| d.at == 0 && d.fresh && d.quota == Quota::Wait));
    assert_eq!(run.cancelled, [LineIndex(0)]);
}

#[test]
fn a85_a_failed_racer_is_replaced_by_the_next_untried_line() {
    let mut bench = boost(5);
    let run = bench.run(|line| match line.0 {
        0 => Does::Fails(10, Fault::Dial),
        1 => Does::Silent,
        2 => Does::Fails(10, Fault::Dial),
        _ => Does::Connects(30),
    });
    assert_eq!(run.end, Ok(LineIndex(3)));
    assert_eq!(run.order(), [0, 1, 2, 3]);
    assert_eq!(run.dials.iter().map(|d| d.at).collect::<Vec<_>>(), [0, 0, 10, 20]);
    assert_eq!(run.most_in_flight, 2);
}

#[test]
fn a80_a_cancelled_loser_is_neutral() {
    let mut bench = boost(2);
    for _ in 0..5 {
        bench.run(|line| if line.0 == 0 { Does::Silent } else { Does::Connects(10) });
        bench.pass(Duration::from_secs(31));
    }
    let loser = bench.lines.line(LineIndex(0));
    assert_eq!((loser.streak(), loser.ewma_nanos(), loser.active()), (0, 0, 0));
    assert!(loser.usable(bench.now));
}

#[test]
fn a80_a_cancelled_probe_lets_the_next_connection_probe() {
    let mut bench = boost(2);
    for _ in 0..3 {
        // The other line keeps winning; this one fails first each time.
        bench.run(|line| if line.0 == 0 { REFUSES } else { Does::Connects(10) });
        bench.pass(Duration::from_secs(31));
        bench.run(|line| if line.0 == 0 { REFUSES } else { Does::Connects(10) });
        if !bench.lines.line(LineIndex(0)).usable(bench.now) {
            break;
        }
        bench.pass(Duration::from_secs(31));
    }
    let line = std::sync::Arc::clone(bench.lines.line(LineIndex(0)));
    assert!(!line.usable(bench.now));
    bench.pass(Duration::from_secs(31));
    let run = bench.run(|line| if line.0 == 0 { Does::Silent } else { Does::Connects(10) });
    assert_eq!(run.cancelled, [LineIndex(0)]);
    assert!(line.usable(bench.now), "the probe's place was given back");
}

#[test]
fn a86_a_warm_cache_dials_the_cached_line_alone() {
    let mut bench = boost(3);
    bench.run(|line| Does::Connects(if line.0 == 1 { 5 } else { 50 }));
    let run = bench.run(|_| Does::Connects(5));
    assert_eq!(run.order(), [1]);
    assert_eq!(run.machine.notes().cache_hit, Some(true));
    assert!(!run.dials[0].fresh, "a prewarmed socket may serve it");
}

#[test]
fn b5_the_cache_lasts_thirty_seconds_whatever_hits_it() {
    let mut bench = boost(2);
    bench.run(|_| Does::Connects(5));
    for _ in 0..5 {
        bench.pass(ms(5_900));
        assert_eq!(bench.run(|_| Does::Connects(5)).machine.notes().cache_hit, Some(true));
    }
    bench.pass(ms(500));
    assert_eq!(bench.run(|_| Does::Connects(5)).machine.notes().cache_hit, Some(false));
}

#[test]
fn b5_a_hit_with_less_than_fifteen_seconds_left_asks_for_one_background_race() {
    let mut bench = boost(2);
    bench.run(|line| Does::Connects(if line.0 == 0 { 5 } else { 50 }));
    bench.pass(Duration::from_secs(14));
    let mut early = bench.run(|_| Does::Connects(5));
    assert!(early.machine.take_refresh().is_none());
    bench.pass(Duration::from_secs(2));
    let mut due = bench.run(|_| Does::Connects(5));
    let ticket = due.machine.take_refresh().expect("due");
    assert!(due.machine.take_refresh().is_none(), "once");
    let mut other = bench.run(|_| Does::Connects(5));
    assert!(other.machine.take_refresh().is_none(), "somebody has it");

    let race = Selector::refresh(ticket, &bench.lines, bench.lines.indexes().collect());
    let run = bench.drive(race, |line| Does::Connects(if line.0 == 0 { 50 } else { 5 }));
    assert_eq!(run.end, Ok(LineIndex(1)));
    assert!(run.dials.iter().all(|d| d.quota == Quota::Background && d.deadline == 2000));
    let warm = bench.run(|_| Does::Connects(5));
    assert_eq!(warm.order(), [1], "replaced");
    bench.pass(Duration::from_secs(16));
    let mut again = bench.run(|_| Does::Connects(5));
    assert!(again.machine.take_refresh().is_some(), "the right was given back");
}

#[test]
fn b5_a_background_race_without_a_place_to_dial_changes_nothing() {
    let mut bench = boost(2);
    bench.run(|_| Does::Connects(5));
    bench.pass(Duration::from_secs(16));
    let ticket = bench.run(|_| Does::Connects(5)).machine.take_refresh().unwrap();
    let race = Selector::refresh(ticket, &bench.lines, bench.lines.indexes().collect());
    let run = bench.drive(race, |_| Does::ProcessFull);
    assert_eq!(run.end, Err(GiveUp::QuotaExhausted));
    assert_eq!(bench.run(|_| Does::Connects(5)).machine.notes().cache_hit, Some(true));
}

#[test]
fn b7_a_cached_line_that_fails_is_evicted_and_the_others_race_at_once() {
    let mut bench = boost(4);
    bench.run(|line| Does::Connects(if line.0 == 0 { 5 } else { 50 }));
    let run = bench.run(|line| match line.0 {
        0 => Does::Fails(7, Fault::Dial),
        3 => Does::Connects(1),
        _ => Does::Connects(40),
    });
    assert_eq!(run.order()[0], 0);
    assert!(run.dials[1..].iter().all(|d| d.at == 7));
    assert_eq!(run.dials.len(), 3);
    let winner = run.end.unwrap();
    assert_eq!(bench.run(|_| Does::Connects(1)).order(), [winner.0], "a94: the fallback is cached");
}

#[test]
fn b9_a_cached_line_that_stays_silent_leaves_half_of_the_time_to_the_others() {
    let mut bench = boost(3);
    bench.run(|line| Does::Connects(if line.0 == 0 { 5 } else { 50 }));
    let run = bench.run(|line| if line.0 == 0 { Does::Silent } else { Does::Connects(40) });
    assert_eq!(run.dials[0].deadline, 1500);
    assert!(run.dials[1..].iter().all(|d| (d.at, d.deadline) == (1500, 3000)));
    let winner = run.end.unwrap();
    assert_eq!(bench.run(|_| Does::Connects(1)).order(), [winner.0]);
}

#[test]
fn b9_a_cached_line_that_is_usually_slow_keeps_twice_its_usual_time() {
    let mut bench = boost(2);
    bench.run(|_| Does::Connects(900));
    assert_eq!(bench.run(|_| Does::Connects(1700)).dials[0].deadline, 1800);
    let mut bench = boost(2);
    bench.run(|_| Does::Connects(1600));
    let run = bench.run(|_| Does::Connects(1600));
    assert_eq!(run.dials[0].deadline, 2750, "the others have the least share left");
}

#[test]
fn b9_a_cached_line_without_others_has_the_whole_time() {
    let mut bench = boost(1);
    bench.run(|_| Does::Connects(5));
    assert_eq!(bench.run(|_| Does::Connects(2900)).dials[0].deadline, 3000);
}

#[test]
fn b7_a_broken_relay_evicts_exactly_its_own_entry() {
    let mut bench = boost(2);
    let old = bench.run(|line| Does::Connects(if line.0 == 0 { 5 } else { 50 })).winner.unwrap();
    bench.pass(Duration::from_secs(31));
    let new = bench.run(|line| Does::Connects(if line.0 == 0 { 50 } else { 5 })).winner.unwrap();
    old.finish(RelayEnd::Broken, bench.now);
    assert_eq!(bench.run(|_| Does::Connects(5)).order(), [1], "a newer entry stays");
    new.finish(RelayEnd::Broken, bench.now);
    assert_eq!(bench.run(|_| Does::Connects(5)).machine.notes().cache_hit, Some(false));
    for line in [0, 1] {
        assert_eq!(bench.lines.line(LineIndex(line)).streak(), 0, "a81: not the line's fault");
    }
}

#[test]
fn a101_a_quota_refusal_leaves_cache_and_line_as_they_are() {
    let mut bench = boost(3);
    bench.run(|line| Does::Connects(if line.0 == 0 { 5 } else { 50 }));
    let run = bench.run(|line| if line.0 == 0 { Does::TargetFull } else { Does::Connects(9) });
    assert!(run.end.is_ok());
    assert!(run.dials[1..].iter().all(|d| d.quota == Quota::Immediate));
    assert_eq!(bench.lines.line(LineIndex(0)).streak(), 0);
    assert_eq!(bench.run(|_| Does::Connects(5)).order(), [0], "still the cached winner");
}

#[test]
fn a101_quota_refusals_in_a_cold_race_end_the_client_without_a_trace() {
    let mut bench = boost(3);
    let run = bench.run(|_| Does::TargetFull);
    assert_eq!(run.end, Err(GiveUp::QuotaExhausted));
    assert_eq!(run.order().len(), 3);
    let run = bench.run(|_| Does::ProcessFull);
    assert_eq!(run.end, Err(GiveUp::QuotaExhausted));
    for (_, node) in bench.lines.iter() {
        assert_eq!((node.line.streak(), node.line.active()), (0, 0));
    }
}

#[test]
fn b15_with_every_line_excluded_the_client_is_closed_without_a_dial() {
    let mut bench = boost(2);
    for _ in 0..3 {
        assert_eq!(bench.run(|_| REFUSES).end, Err(GiveUp::AllFailed));
    }
    let run = bench.run(|_| Does::Connects(1));
    assert_eq!((run.end, run.dials.len()), (Err(GiveUp::NoneUsable), 0));
}

#[test]
fn b16_a_machine_dropped_in_the_middle_is_neutral() {
    let mut bench = boost(2);
    let mut machine = bench.machine();
    machine.start(bench.now, &mut crate::flow::Steps::new());
    assert_eq!(bench.lines.line(LineIndex(0)).active(), 1);
    drop(machine);
    for (_, node) in bench.lines.iter() {
        assert_eq!((node.line.streak(), node.line.active()), (0, 0));
    }
}
