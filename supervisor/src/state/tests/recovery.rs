use std::time::Duration;

use baton_handoff::message::{Generation, ToSupervisor, WorkerId};

use super::world::{Habit, Habits, World};
use crate::action::{Action, Force, Order, Outcome};
use crate::event::{Event, Request};

const SECOND: Duration = Duration::from_secs(1);

fn spawns(world: &World) -> usize {
    world.count(|a| matches!(a, Action::Spawn { .. }))
}

#[test]
fn a_dead_worker_is_replaced_at_once_with_listeners_and_generation_kept() {
    let mut world = World::serving();
    world.kill(1);
    world.settle();
    assert_eq!((world.serving_id(), world.generation()), (Some(2), 1));
    assert_eq!(world.closed().len(), 0);
    assert!(world.did(&Action::CountRestart));
    assert!(world.did(&Action::Forget { worker: WorkerId(1), remains: true }));
    assert_eq!(world.count(|a| matches!(a, Action::Bind { .. })), 0);
}

#[test]
fn a_worker_that_cannot_live_is_retried_ever_more_slowly_and_said_so() {
    let mut world = World::serving();
    for _ in 0..200 {
        world.next.push_back(Habits { hello: Habit::Dies, ..Habits::default() });
    }
    world.kill(1);
    world.pass(60 * SECOND);
    assert_eq!(world.word(), "crash-loop");
    let in_a_minute = spawns(&world);
    assert!((14..=20).contains(&in_a_minute), "{in_a_minute} attempts in a minute");
    assert_eq!(world.closed().len(), 0, "clients wait in the queues");

    world.next.clear();
    world.pass(6 * SECOND);
    assert_eq!(world.word(), "running");
    world.check_quiet();
}

#[test]
fn a_minute_of_health_makes_the_next_replacement_immediate_again() {
    let mut world = World::serving();
    for _ in 0..5 {
        world.kill(world.serving_id().unwrap());
        world.pass(10 * SECOND);
        assert!(world.serving_id().is_some());
    }
    world.pass(60 * SECOND);
    world.kill(world.serving_id().unwrap());
    world.settle();
    assert_eq!(world.word(), "running");
}

#[test]
fn an_upgrade_in_a_crash_loop_goes_first_and_can_heal_it() {
    let mut world = World::serving();
    for _ in 0..8 {
        world.next.push_back(Habits { hello: Habit::Dies, ..Habits::default() });
    }
    world.kill(1);
    world.pass(5 * SECOND);
    assert_eq!(world.word(), "crash-loop");
    world.next.clear();
    let id = world.upgrade();
    world.pass(11 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
    assert_eq!((world.word(), world.generation()), ("running", 2));
}

#[test]
fn a_request_during_a_replacement_waits_for_it() {
    let mut world = World::serving();
    world.kill(1);
    while world.phase().is_none() {
        let event = world.pending.pop_front().unwrap();
        world.handle(event);
    }
    let id = world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.report(id).outcome, Outcome::Success);
    assert_eq!(world.generation(), 2);
}

#[test]
fn a_silent_worker_is_asked_before_it_is_killed() {
    let mut world = World::serving();
    world.habits(1).ping = Habit::Ignores;
    world.pass(4 * SECOND);
    assert_eq!(world.sent(1), [Order::Ping]);
    assert_eq!(world.serving_id(), Some(1));
    world.pass(7 * SECOND);
    assert!(world.did(&Action::Signal { worker: WorkerId(1), force: Force::Kill }));
    assert_eq!(world.serving_id(), Some(2));
}

#[test]
fn an_answer_to_the_question_saves_the_worker() {
    let mut world = World::serving();
    world.habits(1).ping = Habit::Ignores;
    world.pass(4 * SECOND);
    world.habits(1).ping = Habit::Answers;
    world.say(1, super::world::pong());
    world.pass(60 * SECOND);
    assert_eq!(world.serving_id(), Some(1));
}

#[test]
fn a_channel_that_ends_is_given_time_for_the_exit_status() {
    let mut world = World::serving();
    world.handle(Event::Closed { worker: WorkerId(1) });
    assert_eq!(world.serving_id(), Some(1));
    world.pass(Duration::from_millis(499));
    assert_eq!(world.serving_id(), Some(1));
    world.pass(Duration::from_millis(1));
    assert!(world.did(&Action::Signal { worker: WorkerId(1), force: Force::Kill }));
    assert_eq!(world.serving_id(), Some(2));
}

#[test]
fn a_worker_that_talks_nonsense_is_killed_and_never_listened_to_again() {
    let mut world = World::serving();
    world.handle(Event::Broken { worker: WorkerId(1), problem: "bad magic".into() });
    assert!(world.did(&Action::Signal { worker: WorkerId(1), force: Force::Kill }));
    world.say(1, ToSupervisor::Active(Generation(1)));
    world.settle();
    assert_eq!(world.serving_id(), Some(2));
    assert_eq!(world.count(|a| *a == Action::CountRestart), 1);
}

#[test]
fn status_names_workers_and_the_last_transition() {
    let mut world = World::serving();
    world.say(1, super::world::pong());
    let view = world.state.view(world.now);
    assert_eq!(view.workers.len(), 1);
    assert_eq!((view.workers[0].pid, view.workers[0].connections), (101, 7));
    assert_eq!(view.workers[0].version, "1.0.1");
    let last = view.last_transition.unwrap();
    assert_eq!((last.kind.as_str(), last.result.as_str()), ("start", "ok"));
}
