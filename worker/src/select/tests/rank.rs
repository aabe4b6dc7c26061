//! Scores and pairs.

use std::sync::Arc;
use std::time::Duration;

use crate::flow::{Fault, LineIndex, Moment};
use crate::select::rank::{EXPLORE_AFTER, pair, score};
use crate::upstream::{Gate, Line};

const START: Moment = Moment(1_000_000_000_000);

/// A line with this mean in milliseconds (0: never sampled), last tried at this second.
fn line(ewma: u64, tried: u64) -> Arc<Line> {
    let line = Arc::new(Line::new(Gate::Breaker));
    if ewma > 0 {
        line.sampled(Duration::from_millis(ewma), START);
    }
    if tried > 0 {
        let then = START.after(Duration::from_secs(tried));
        line.admit(then).unwrap().started(then);
    }
    line
}

fn picked(lines: &[Arc<Line>], second: u64) -> Vec<u16> {
    let usable = (0..lines.len() as u16).map(LineIndex);
    let now = START.after(Duration::from_secs(second));
    pair(usable, |line| &lines[usize::from(line.0)], now)
        .into_iter()
        .flatten()
        .map(|line| line.0)
        .collect()
}

#[test]
fn b2_the_score_is_latency_plus_a_second_for_each_failure_in_a_row() {
    let fresh = line(0, 0);
    assert_eq!(score(&fresh), 1_000_000_000);
    let known = line(20, 0);
    assert_eq!(score(&known), 20_000_000);
    for _ in 0..2 {
        known.admit(START).unwrap().failed(Fault::Dial, START);
    }
    assert_eq!(score(&known), 2_020_000_000);
}

#[test]
fn b2_ties_go_by_configured_order() {
    assert_eq!(picked(&[line(5, 1), line(5, 1), line(5, 1)], 2), [0, 1]);
}

#[test]
fn b3_with_nothing_known_the_first_two_race() {
    assert_eq!(picked(&[line(0, 9), line(0, 8), line(0, 0)], 10), [0, 1]);
}

#[test]
fn b3_beside_the_best_known_races_the_least_recently_tried_unknown() {
    assert_eq!(picked(&[line(30, 1), line(0, 3), line(10, 1), line(0, 2)], 4), [2, 3]);
    assert_eq!(picked(&[line(30, 1), line(0, 3)], 4), [0, 1]);
}

#[test]
fn b4_with_three_known_the_one_left_alone_for_thirty_seconds_is_explored() {
    let lines = [line(10, 50), line(20, 49), line(500, 20)];
    assert_eq!(picked(&lines, 49), [0, 1], "29 s are not enough");
    assert_eq!(picked(&lines, 50), [0, 2]);
    assert_eq!(EXPLORE_AFTER, Duration::from_secs(30));
}

#[test]
fn b4_two_known_lines_are_never_explored() {
    assert_eq!(picked(&[line(500, 1), line(10, 90)], 100), [1, 0]);
}

#[test]
fn b4_the_best_line_is_not_its_own_exploration() {
    assert_eq!(picked(&[line(10, 1), line(20, 2), line(30, 60)], 61), [0, 1]);
}
