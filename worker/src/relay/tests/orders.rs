//! Cutting, idling, freezing and resuming.

use std::time::Duration;

use super::bed::*;
use crate::flow::{Moment, RelayEnd};
use crate::relay::{Control, CutReason, Ending};

const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);

fn cut_for(report: &Report) -> CutReason {
    match report.outcome.as_ref().unwrap().ending {
        Ending::Cut(reason) => reason,
        ref other => panic!("expected a cut, not {other:?}"),
    }
}

#[test]
fn a_cut_resets_both_sides() {
    let (client, upstream, relay) = connection();
    write_pattern(&client, 1, 0..10, || 10);
    read_pattern(&upstream, 1, 0..10);
    assert!(relay.order(Order::Cut));
    read_reset(&client);
    read_reset(&upstream);
    let report = relay.end();
    assert_eq!(cut_for(&report), CutReason::Stopping);
    assert_eq!(report.outcome.unwrap().for_line(), RelayEnd::Neutral);
}

#[test]
fn a_dropped_relay_resets_both_sides() {
    let (client, upstream, relay) = connection();
    write_pattern(&client, 1, 0..10, || 10);
    read_pattern(&upstream, 1, 0..10);
    assert!(relay.order(Order::Abandon));
    read_reset(&client);
    read_reset(&upstream);
    assert!(relay.end().outcome.is_none());
}

#[test]
fn a_frozen_connection_that_cannot_go_on_is_reset() {
    use crate::net::testing::accepted_pair;
    use crate::relay::{Flow, Frozen};
    let ((client, near), (upstream, far)) = (accepted_pair(), accepted_pair());
    let empty = || Flow::new(Vec::new());
    Frozen { client: near, upstream: far, to_upstream: empty(), to_client: empty() }.reset();
    read_reset(&client);
    read_reset(&upstream);
}

#[test]
fn a_silent_connection_is_cut_when_its_time_is_over_and_not_before() {
    let (client, upstream, relay) = connection();
    assert!(relay.order(Order::Sweep(LIMIT - Duration::from_secs(1), LIMIT)));
    write_pattern(&client, 1, 0..10, || 10);
    read_pattern(&upstream, 1, 0..10);
    // Bytes moved, in one direction only: the time starts anew with this sweep.
    assert!(relay.order(Order::Sweep(LIMIT * 2, LIMIT)));
    write_pattern(&upstream, 2, 0..10, || 10);
    read_pattern(&client, 2, 0..10);
    assert!(relay.order(Order::Sweep(LIMIT * 4, LIMIT)));
    assert!(relay.order(Order::Sweep(LIMIT * 5, LIMIT)));
    read_reset(&client);
    read_reset(&upstream);
    assert_eq!(cut_for(&relay.end()), CutReason::Idle);
}

#[test]
fn the_quiet_time_is_counted_from_the_sweep_that_saw_the_last_mark() {
    let second = Duration::from_secs(1);
    let start = Moment(5);
    let control = Control::new(start);
    assert_eq!(control.quiet_for(start.after(second)), second);
    control.mark();
    assert_eq!(control.quiet_for(start.after(3 * second)), Duration::ZERO);
    assert_eq!(control.quiet_for(start.after(5 * second)), 2 * second);
}

#[test]
fn a_connection_in_full_flow_can_be_moved_at_any_moment() {
    let (client, upstream, relay) = connection();
    let total = 8 * MIB;
    let report = std::thread::scope(|scope| {
        let (client, upstream) = (&client, &upstream);
        for (from, seed) in [(client, 1), (upstream, 2)] {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                write_pattern(from, seed, 0..total, || random.usize(1..200_000));
                finish(from);
            });
        }
        for (to, seed) in [(client, 2), (upstream, 1)] {
            scope.spawn(move || {
                read_pattern(to, seed, 0..total);
                read_end(to);
            });
        }
        // One at a time: an order that finds the connection ended is refused.
        let mut ordered = 0;
        while relay.order(Order::Move) {
            ordered += 1;
            while relay.moves() < ordered && !relay.has_ended() {
                std::thread::yield_now();
            }
        }
        relay.end()
    });
    assert_eq!(report.tallied, (total, total));
    assert_eq!(report.outcome.as_ref().unwrap().to_client, total);
    assert_eq!(report.outcome.unwrap().for_line(), RelayEnd::Clean { carried: true });
    assert!(report.moves > 10, "only {} moves", report.moves);
    assert_eq!(report.pipes.0, 0);
}

#[test]
fn a_half_closed_connection_survives_a_move_in_every_phase() {
    let (client, upstream, relay) = connection();
    assert!(relay.order(Order::Move));
    write_pattern(&client, 1, 0..MIB, || 1 << 20);
    assert!(relay.order(Order::Move));
    finish(&client);
    assert!(relay.order(Order::Move));
    read_pattern(&upstream, 1, 0..MIB);
    read_end(&upstream);
    assert!(relay.order(Order::Move));
    write_pattern(&upstream, 2, 0..MIB, || 1 << 20);
    assert!(relay.order(Order::Move));
    read_pattern(&client, 2, 0..MIB);
    finish(&upstream);
    read_end(&client);
    let report = relay.end();
    assert_eq!(report.outcome.unwrap().for_line(), RelayEnd::Clean { carried: true });
}

#[test]
fn a_connection_that_lasts_is_kept_alive_and_a_new_one_needs_no_call() {
    use crate::net::testing::{accepted_pair, eventually};
    let ((client, near), (upstream, far)) = (accepted_pair(), accepted_pair());
    let watched = far.try_clone().unwrap();
    let kept = || socket2::SockRef::from(&watched).keepalive().unwrap();
    let relay = relay_between(near, far, Vec::new(), |_| {});
    write_pattern(&client, 1, 0..10, || 10);
    read_pattern(&upstream, 1, 0..10);
    assert!(!kept());
    assert!(relay.order(Order::Last));
    eventually("keep-alive", kept);
    finish(&client);
    finish(&upstream);
    read_end(&client);
    read_end(&upstream);
    relay.end();
}

#[test]
fn only_the_first_sweep_makes_a_connection_last() {
    let control = Control::new(Moment(5));
    assert!(!control.is_to_last());
    control.last();
    assert!(control.is_to_last());
    control.last();
    assert!(!control.is_to_last());
}
