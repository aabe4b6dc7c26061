#![allow(clippy::unwrap_used)]

use super::*;
use crate::flow::{Fault, RelayEnd};

const T: Moment = Moment(1_000_000_000_000);

fn breaker() -> Arc<Line> {
    Arc::new(Line::new(Gate::Breaker))
}

fn after(seconds: u64) -> Moment {
    T.after(Duration::from_secs(seconds))
}

fn fail(line: &Arc<Line>, times: u32, fault: Fault, now: Moment) {
    for _ in 0..times {
        line.admit(now).unwrap().failed(fault, now);
    }
}

#[test]
fn a78_of_many_threads_that_want_the_probe_one_gets_it() {
    let line = breaker();
    fail(&line, 3, Fault::Dial, T);
    assert_eq!(line.check(after(4)), Err(Refused::Open));
    let admitted: Vec<_> = std::thread::scope(|scope| {
        let attempts: Vec<_> = (0..8).map(|_| scope.spawn(|| line.admit(after(5)).ok())).collect();
        attempts.into_iter().filter_map(|attempt| attempt.join().unwrap()).collect()
    });
    assert_eq!(admitted.len(), 1);
    assert!(admitted[0].is_probe());
    assert_eq!(line.check(after(5)), Err(Refused::Probing));
    drop(admitted);
    assert_eq!(line.check(after(5)), Ok(()), "given back when dropped");
}

#[test]
fn a79_preparation_failures_count_and_our_own_lack_does_not() {
    let line = breaker();
    fail(&line, 9, Fault::Local, T);
    assert_eq!((line.streak(), line.check(T)), (0, Ok(())));
    fail(&line, 3, Fault::Preparation, T);
    assert_eq!(line.check(T), Err(Refused::Open));
}

#[test]
fn a79_an_upstream_that_breaks_before_its_first_byte_opens_though_it_connects() {
    let line = breaker();
    for _ in 0..3 {
        let held = line.admit(T).unwrap().connected(Some(Duration::from_millis(1)), T);
        held.finish(RelayEnd::AtOnce, T);
    }
    assert_eq!(line.check(T), Err(Refused::Open));
}

#[test]
fn a81_a_relay_that_breaks_later_is_not_the_lines_fault() {
    let line = breaker();
    for _ in 0..5 {
        let held = line.admit(T).unwrap().connected(Some(Duration::from_millis(1)), T);
        held.finish(RelayEnd::Broken, T);
    }
    assert_eq!((line.streak(), line.check(T)), (0, Ok(())));
}

#[test]
fn a83_a_late_success_does_not_close_an_open_breaker_but_its_latency_is_true() {
    let line = breaker();
    let early = line.admit(T).unwrap();
    fail(&line, 3, Fault::Dial, T);
    drop(early.connected(Some(Duration::from_millis(9)), T));
    assert_eq!(line.check(T), Err(Refused::Open));
    assert_eq!(line.ewma_nanos(), 9_000_000);
}

#[test]
fn b1_prewarmed_sockets_and_failures_give_no_sample() {
    let line = breaker();
    drop(line.admit(T).unwrap().connected(None, T));
    fail(&line, 1, Fault::Dial, T);
    assert_eq!(line.ewma_nanos(), 0);
}

#[test]
fn b8_a_clean_relay_with_bytes_forgives_and_one_without_does_not() {
    let line = breaker();
    fail(&line, 2, Fault::Preparation, T);
    let held = || line.admit(T).unwrap().connected(Some(Duration::from_millis(1)), T);
    held().finish(RelayEnd::Clean { carried: false }, T);
    assert_eq!(line.streak(), 2);
    held().finish(RelayEnd::Clean { carried: true }, T);
    assert_eq!(line.streak(), 0);
}

#[test]
fn a_line_that_fails_fast_never_looks_fast() {
    let line = breaker();
    drop(line.admit(T).unwrap().connected(Some(Duration::from_millis(50)), T));
    assert_eq!(line.load_nanos(T), Some(50_000_000));
    fail(&line, 2, Fault::Dial, T);
    assert_eq!(line.load_nanos(T), Some(2_000_000_000));
    assert_eq!(line.ewma_nanos(), 50_000_000, "an error is no latency");
}

#[test]
fn the_first_byte_adds_to_what_the_latency_strategy_weighs_only() {
    let line = breaker();
    let held = line.admit(T).unwrap().connected(Some(Duration::from_millis(5)), T);
    held.first_byte(Duration::from_millis(400), T);
    assert_eq!(line.load_nanos(T), Some(405_000_000));
    assert_eq!(line.ewma_nanos(), 5_000_000, "the race keeps the connect time alone");
}

#[test]
fn c28_marks_do_not_refuse_admission() {
    let policy = MarkPolicy { max_fails: 1, fail_timeout: Duration::from_secs(10) };
    let line = Arc::new(Line::new(Gate::Marks(policy)));
    fail(&line, 7, Fault::Dial, T);
    assert_eq!(line.check(T), Err(Refused::Marked));
    assert!(line.admit(T).is_ok(), "the selector decides about a sole or last target");
    drop(line.admit(T).unwrap().connected(Some(Duration::from_millis(1)), T));
    assert_eq!(line.check(T), Ok(()), "c25: a success clears the mark at once");
}

#[test]
fn c14_an_attempt_without_marks_leaves_them_alone() {
    let policy = MarkPolicy { max_fails: 1, fail_timeout: Duration::from_secs(10) };
    let line = Arc::new(Line::new(Gate::Marks(policy)));
    assert!(!line.admit(T).unwrap().without_marks().failed(Fault::Dial, T));
    assert_eq!(line.check(T), Ok(()));
}

#[test]
fn a109_an_unhealthy_line_admits_nobody() {
    let line = breaker();
    let thresholds = Thresholds { failure: 2, success: 1 };
    assert!(!line.probed(false, thresholds));
    assert!(line.probed(false, thresholds));
    assert!(line.unhealthy());
    assert_eq!(line.admit(T).map(drop), Err(Refused::Unhealthy));
    assert!(line.probed(true, thresholds));
    assert!(line.usable(T));
}

#[test]
fn active_counts_attempts_and_connections_until_they_are_dropped() {
    let line = breaker();
    let attempt = line.admit(T).unwrap();
    let adopted = line.adopt();
    assert_eq!(line.active(), 2);
    let held = attempt.connected(None, T);
    assert_eq!(line.active(), 2);
    held.finish(RelayEnd::Neutral, T);
    adopted.finish(RelayEnd::Clean { carried: true }, T);
    assert_eq!(line.active(), 0);
}
