#![allow(clippy::unwrap_used)]

use super::*;

fn second(s: u64) -> Moment {
    Moment(s * 1_000_000_000)
}

/// Lets `count` ordinary attempts through and fails them all.
fn fail(breaker: &mut Breaker, count: u32, failure: Failure, now: Moment) -> bool {
    (0..count).fold(false, |opened, _| {
        let pass = breaker.admit(now).unwrap();
        breaker.failed(pass, failure, now) || opened
    })
}

fn cooling(breaker: &Breaker, now: Moment) -> u64 {
    match breaker.state() {
        State::Open { until } => until.since(now).as_secs(),
        State::Closed | State::HalfOpen { .. } => 0,
    }
}

#[test]
fn a77_three_failures_in_a_row_open_for_five_seconds() {
    let mut breaker = Breaker::default();
    assert!(!fail(&mut breaker, 2, Failure::Dial, second(1)));
    let pass = breaker.admit(second(1)).unwrap();
    breaker.succeeded(pass);
    assert!(!fail(&mut breaker, 2, Failure::Dial, second(1)), "a success ends the streak");
    assert!(fail(&mut breaker, 1, Failure::Dial, second(1)));
    assert_eq!(cooling(&breaker, second(1)), 5);
    assert_eq!(breaker.admit(second(5)), None);
}

#[test]
fn a77_failed_probes_double_the_cooling_up_to_sixty_seconds() {
    let mut breaker = Breaker::default();
    let mut now = second(0);
    fail(&mut breaker, 3, Failure::Dial, now);
    let mut seen = vec![cooling(&breaker, now)];
    for _ in 0..6 {
        now = now.after(Duration::from_secs(*seen.last().unwrap()));
        let probe = breaker.admit(now).unwrap();
        assert!(probe.probe && breaker.failed(probe, Failure::Dial, now));
        seen.push(cooling(&breaker, now));
    }
    assert_eq!(seen, [5, 10, 20, 40, 60, 60, 60]);
}

#[test]
fn a78_one_probe_is_let_through_and_others_find_it_open() {
    let mut breaker = Breaker::default();
    fail(&mut breaker, 3, Failure::Dial, second(0));
    assert!(breaker.admit(second(5)).unwrap().probe);
    assert_eq!(breaker.admit(second(5)), None);
    assert_eq!(breaker.admit(second(500)), None);
}

#[test]
fn a80_a_probe_given_back_lets_the_next_one_probe_without_a_trace() {
    let mut breaker = Breaker::default();
    fail(&mut breaker, 3, Failure::Dial, second(0));
    let before = (breaker.dial_streak(), breaker.level(), breaker.epoch());
    let probe = breaker.admit(second(5)).unwrap();
    breaker.give_back(probe);
    assert_eq!(before, (breaker.dial_streak(), breaker.level(), breaker.epoch()));
    assert!(breaker.admit(second(6)).unwrap().probe);
}

#[test]
fn a83_outcomes_of_attempts_admitted_before_the_opening_change_nothing() {
    let mut breaker = Breaker::default();
    let early = breaker.admit(second(0)).unwrap();
    fail(&mut breaker, 3, Failure::Dial, second(0));
    let open = breaker;
    breaker.succeeded(early);
    assert!(!breaker.failed(early, Failure::Dial, second(1)));
    breaker.proved(early);
    assert_eq!(breaker, open);

    let probe = breaker.admit(second(5)).unwrap();
    let half = breaker;
    breaker.failed(early, Failure::Attributable, second(5));
    breaker.give_back(early);
    assert_eq!(breaker, half, "nor while the probe is out");
    breaker.succeeded(probe);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn b8_a_line_that_connects_but_breaks_afterwards_opens_all_the_same() {
    let mut breaker = Breaker::default();
    for round in 0..3 {
        let pass = breaker.admit(second(0)).unwrap();
        breaker.succeeded(pass);
        assert_eq!(breaker.failed(pass, Failure::Attributable, second(0)), round == 2);
    }
    assert_eq!(cooling(&breaker, second(0)), 5);
}

#[test]
fn b8_a_probe_success_closes_but_keeps_the_level_until_an_ordinary_success() {
    let mut breaker = Breaker::default();
    fail(&mut breaker, 3, Failure::Dial, second(0));
    let probe = breaker.admit(second(5)).unwrap();
    breaker.succeeded(probe);
    assert_eq!((breaker.state(), breaker.level()), (State::Closed, 1));

    let mut again = breaker;
    fail(&mut again, 3, Failure::Dial, second(6));
    assert_eq!(cooling(&again, second(6)), 10);

    let pass = breaker.admit(second(6)).unwrap();
    breaker.succeeded(pass);
    fail(&mut breaker, 3, Failure::Dial, second(7));
    assert_eq!(cooling(&breaker, second(7)), 5);
}

#[test]
fn b8_dial_successes_do_not_lower_the_level_of_a_line_that_breaks_afterwards() {
    let mut breaker = Breaker::default();
    fail(&mut breaker, 3, Failure::Attributable, second(0));
    let probe = breaker.admit(second(5)).unwrap();
    breaker.succeeded(probe);
    let pass = breaker.admit(second(5)).unwrap();
    breaker.succeeded(pass);
    assert!(breaker.failed(pass, Failure::Attributable, second(5)));
    assert_eq!(cooling(&breaker, second(5)), 10);
}

#[test]
fn b8_a_clean_relay_forgives_both_streaks_and_the_level() {
    let mut breaker = Breaker::restore(2, 2, 3, None);
    let pass = breaker.admit(second(0)).unwrap();
    breaker.proved(pass);
    assert_eq!((breaker.dial_streak(), breaker.attributable_streak(), breaker.level()), (0, 0, 0));
}
