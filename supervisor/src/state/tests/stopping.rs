use std::time::Duration;

use baton_handoff::message::{Drain, WorkerId};

use super::world::{Habit, Habits, World};
use crate::action::{Action, Force, Notify, Order, Outcome};
use crate::event::{Event, Request, Signal};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_stop_without_connections_ends_at_once_with_0() {
    let mut world = World::serving();
    world.signal(Signal::Terminate);
    assert_eq!(world.sent(1), [Order::Quiesce, Order::Drain(Drain { timeout_ms: 10_000 })]);
    assert!(world.open.is_empty(), "nothing listens from the first moment");
    world.settle();
    assert_eq!(world.exit, Some((0, Vec::new())));
    assert!(world.did(&Action::Notify(Notify::Stopping)));
}

#[test]
fn a_second_signal_cuts_and_a_third_kills() {
    let mut world = World::serving();
    world.habits(1).drain = Habit::Ignores;
    world.signal(Signal::Terminate);
    world.pass(SECOND);
    assert_eq!(world.exit, None);
    world.signal(Signal::Terminate);
    assert_eq!(world.sent(1).last(), Some(&Order::Drain(Drain { timeout_ms: 0 })));
    world.signal(Signal::Terminate);
    assert!(world.did(&Action::Signal { worker: WorkerId(1), force: Force::Kill }));
    world.settle();
    assert_eq!(world.exit, Some((0, Vec::new())));
}

#[test]
fn a_worker_that_does_not_cut_when_told_is_killed() {
    let mut world = World::serving();
    world.habits(1).drain = Habit::Ignores;
    world.signal(Signal::Terminate);
    world.signal(Signal::Terminate);
    world.pass(2 * SECOND);
    assert_eq!(world.exit, Some((0, Vec::new())));
}

#[test]
fn a_stop_ends_in_bounded_time_whatever_the_worker_does() {
    let mut world = World::serving();
    world.habits(1).drain = Habit::Ignores;
    world.habits(1).term = Habit::Ignores;
    let id = world.ask(Request::Stop);
    world.pass(14 * SECOND);
    assert_eq!(world.exit, Some((0, Vec::new())));
    assert_eq!(world.report(id).outcome, Outcome::Success);
}

#[test]
fn a_stop_overrides_a_transition_and_the_queue_and_everybody_is_told() {
    let mut world = World::serving();
    world.next.push_back(Habits { hello: Habit::Ignores, ..Habits::default() });
    let ids = [world.upgrade(), world.ask(Request::Reload)];
    world.settle();
    assert_eq!(world.phase().as_deref(), Some("spawn"));
    let stop = world.ask(Request::Stop);
    world.settle();
    for id in ids {
        assert_eq!(world.report(id).problems, ["the instance is stopping"]);
    }
    assert!(world.report(stop).outcome.is_ok());
    assert_eq!(world.exit, Some((0, Vec::new())));
    let late = world.ask(Request::Reload);
    assert!(!world.report(late).outcome.is_ok());
}

#[test]
fn a_stop_inside_the_watch_drains_both_workers() {
    let mut world = World::serving();
    world.habits(1).drain = Habit::Ignores;
    world.upgrade();
    world.pass(5 * SECOND);
    world.habits(2).drain = Habit::Ignores;
    world.signal(Signal::Terminate);
    world.settle();
    let drain = Order::Drain(Drain { timeout_ms: 10_000 });
    assert_eq!(world.sent(1).last(), Some(&drain));
    assert_eq!(world.sent(2).last(), Some(&drain));
    assert_eq!(world.exit, None);
    world.pass(15 * SECOND);
    assert_eq!(world.exit, Some((0, Vec::new())));
}

#[test]
fn a_stop_during_the_start_ends_with_0() {
    let mut world = World::new();
    world.next.push_back(Habits { hello: Habit::Ignores, ..Habits::default() });
    world.handle(Event::Start);
    world.settle();
    world.signal(Signal::Terminate);
    world.settle();
    assert_eq!(world.exit, Some((0, Vec::new())));
}

#[test]
fn a_stop_with_no_worker_alive_ends_at_once() {
    let mut world = World::serving();
    world.spawn_error = Some("no".into());
    world.kill(1);
    world.settle();
    assert_eq!(world.exit, None);
    let id = world.ask(Request::Stop);
    assert_eq!(world.exit, Some((0, Vec::new())));
    assert!(world.report(id).outcome.is_ok());
}
