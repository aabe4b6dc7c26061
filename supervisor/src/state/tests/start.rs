use std::time::Duration;

use super::world::{Habit, Habits, Opinion, READY, World};
use crate::action::{Action, Kind, Notify};
use crate::event::{Event, Request};

#[test]
fn the_first_worker_goes_through_spawn_prepare_shift_and_then_the_manager_hears_ready() {
    let mut world = World::new();
    world.handle(Event::Start);
    assert_eq!(world.word(), "starting");
    world.settle();
    assert_eq!(world.word(), "running");
    assert_eq!(world.progress(Kind::Start), ["spawn", "prepare", "shift"]);
    assert_eq!((world.serving_id(), world.generation()), (Some(1), 1));
    assert_eq!(world.open.len(), 2);
    assert_eq!(world.count(|a| matches!(a, Action::Notify(Notify::Ready))), 1);
}

#[test]
fn a_refused_configuration_at_start_ends_with_1_and_every_problem() {
    let mut world = World::new();
    let problems = vec!["a.json:1:1: $: wrong".to_owned(), "a.json:2:1: $: too".to_owned()];
    world
        .next
        .push_back(Habits { prepare: Opinion::Refuses(problems.clone()), ..Habits::default() });
    world.handle(Event::Start);
    world.settle();
    assert_eq!(world.exit, Some((1, problems)));
    assert_eq!(world.count(|a| matches!(a, Action::Notify(Notify::Ready))), 0);
}

#[test]
fn a_busy_port_at_start_ends_with_1_and_nothing_bound() {
    let mut world = World::new();
    world.bind_error = Some("listen web at 127.0.0.1:80: Address already in use".into());
    world.handle(Event::Start);
    world.settle();
    let (code, problems) = world.exit.clone().unwrap();
    assert_eq!((code, problems), (1, vec![world.bind_error.clone().unwrap()]));
    assert!(world.open.is_empty());
}

#[test]
fn a_first_worker_that_is_never_ready_ends_the_start_and_gives_the_sockets_back() {
    let mut world = World::new();
    world.next.push_back(Habits { listeners: Habit::Ignores, ..Habits::default() });
    world.handle(Event::Start);
    world.pass(READY.saturating_add(Duration::from_secs(1)));
    let (code, problems) = world.exit.clone().unwrap();
    assert_eq!((code, problems), (1, vec!["worker 1 was not ready within 30s".to_owned()]));
    assert!(world.open.is_empty());
}

#[test]
fn a_first_worker_is_given_longer_for_its_hello_than_one_with_another_beside_it() {
    let mut world = World::new();
    world.next.push_back(Habits { hello: Habit::Ignores, ..Habits::default() });
    world.handle(Event::Start);
    world.pass(READY.saturating_sub(Duration::from_secs(1)));
    assert_eq!((world.word(), world.exit.clone()), ("starting", None));
    world.pass(Duration::from_secs(2));
    let (code, problems) = world.exit.clone().unwrap();
    assert_eq!((code, problems), (1, vec!["worker 1 did not say hello in time".to_owned()]));
}

#[test]
fn a_first_worker_that_cannot_be_started_ends_the_start() {
    let mut world = World::new();
    world.spawn_error = Some("Permission denied".into());
    world.handle(Event::Start);
    world.settle();
    let (code, problems) = world.exit.clone().unwrap();
    assert_eq!(code, 1);
    assert_eq!(problems, ["worker 1 cannot be started: Permission denied"]);
}

#[test]
fn a_reload_asked_for_during_the_start_follows_it() {
    let mut world = World::new();
    world.handle(Event::Start);
    let id = world.ask(Request::Reload);
    world.settle();
    assert!(world.report(id).outcome.is_ok());
    assert_eq!(world.generation(), 2);
    world.check_quiet();
}
