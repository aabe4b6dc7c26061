use std::time::Duration;

use super::super::{Machine, State};
use baton_handoff::message::{Recovered, ToSupervisor, WorkerId};

use super::world::{Habit, World};
use crate::action::{Action, Kind, Outcome};
use crate::event::{Event, Millis, Request, Signal};

/// An upgrade whose worker has stood its test; the supervisor's part is about to begin.
fn about_to_replace() -> (World, crate::event::RequestId) {
    let mut world = World::serving();
    world.hold_replacement = true;
    let id = world.upgrade();
    world.pass(Duration::from_secs(12));
    assert_eq!(world.phase().as_deref(), Some("replace"));
    assert_eq!(world.unanswered(), [id]);
    (world, id)
}

#[test]
fn the_upgrade_is_answered_and_counted_once_by_the_new_image() {
    let (mut world, id) = about_to_replace();
    assert_eq!(world.count(|action| matches!(action, Action::CountUpgrade(_))), 0);
    world.handle(Event::Replaced { result: Ok(()) });
    world.handle(Event::Replaced { result: Ok(()) });
    let report = world.report(id);
    assert_eq!(report.outcome, Outcome::Success);
    assert!(report.summary.ends_with("the supervisor is version 1.1.0"), "{report:?}");
    assert_eq!(world.count(|action| matches!(action, Action::CountUpgrade(_))), 1);
    world.settle();
    world.check_quiet();
}

#[test]
fn a_new_image_that_gives_up_is_told_and_the_new_worker_serves_on() {
    let (mut world, id) = about_to_replace();
    world.handle(Event::Replaced { result: Err("it cannot read".into()) });
    let report = world.report(id);
    assert_eq!(
        (report.outcome, &report.problems[..]),
        (Outcome::Failed, &["it cannot read".into()][..])
    );
    assert!(report.summary.contains("the supervisor stays at version"), "{report:?}");
    assert_eq!((world.serving_id(), world.generation()), (Some(2), 2));
}

#[test]
fn what_is_asked_meanwhile_waits_and_is_done_by_the_new_image() {
    let (mut world, _) = about_to_replace();
    let reload = world.ask(Request::Reload);
    world.signal(Signal::Hangup);
    world.settle();
    assert_eq!(world.count(|action| matches!(action, Action::CountReload(_))), 0);
    world.handle(Event::Replaced { result: Ok(()) });
    world.settle();
    assert_eq!(world.report(reload).outcome, Outcome::Success);
}

#[test]
fn a_replacement_goes_before_reloads_however_many_are_asked_for() {
    let mut world = World::serving();
    world.hold_replacement = true;
    world.signal(Signal::Hangup);
    let upgrade = world.upgrade();
    // One more reload at every step there is, until the replacement is all that is left to do.
    let mut steps = 0;
    while world.phase().as_deref() != Some("replace") {
        world.signal(Signal::Hangup);
        match world.pending.pop_front() {
            Some(event) => world.handle(event),
            None => world.pass(Duration::from_secs(1)),
        }
        steps += 1;
        assert!(steps < 100, "the upgrade does not get on: {:?}", world.phase());
    }
    let reloads = |world: &World| world.count(|action| matches!(action, Action::CountReload(_)));
    let before = reloads(&world);
    for _ in 0..100 {
        world.signal(Signal::Hangup);
        world.ask(Request::Reload);
        world.settle();
    }
    assert_eq!(world.phase().as_deref(), Some("replace"));
    assert_eq!(reloads(&world), before);
    world.handle(Event::Replaced { result: Ok(()) });
    assert_eq!(world.report(upgrade).outcome, Outcome::Success);
    world.settle();
    assert_eq!(reloads(&world), before + 1, "all of them are one");
    world.check_quiet();
}

#[test]
fn a_worker_that_dies_meanwhile_is_replaced_afterwards() {
    let (mut world, _) = about_to_replace();
    world.kill(2);
    world.settle();
    assert_eq!(world.serving_id(), None);
    world.handle(Event::Replaced { result: Ok(()) });
    world.pass(Duration::from_secs(1));
    assert_eq!(world.serving_id(), Some(3));
}

#[test]
fn a_recovery_that_is_going_on_is_answered_to_the_new_image() {
    let mut world = World::serving();
    world.hold_replacement = true;
    world.habits(1).drain = Habit::Ignores;
    world.upgrade();
    world.pass(Duration::from_secs(12));
    assert_eq!(world.phase().as_deref(), Some("replace"));
    world.habits(2).recover = Habit::Ignores;
    world.kill(1);
    world.settle();
    let told = |world: &World| world.count(|action| matches!(action, Action::Recover { .. }));
    assert_eq!(told(&world), 1);
    world.handle(Event::Replaced { result: Ok(()) });
    world.settle();
    assert_eq!(told(&world), 1, "it is with somebody");
    assert!(!world.did(&Action::LetGo { worker: WorkerId(1) }));
    world.say(2, ToSupervisor::Recovered(Recovered { resumed: 9, lost: 0, failures: 0 }));
    assert!(world.did(&Action::LetGo { worker: WorkerId(1) }));
    world.check_quiet();
}

#[test]
fn what_a_worker_leaves_meanwhile_waits_for_the_one_that_serves_afterwards() {
    let (mut world, _) = about_to_replace();
    world.kill(2);
    world.settle();
    let told = |world: &World| world.count(|action| matches!(action, Action::Recover { .. }));
    assert_eq!(told(&world), 0);
    world.handle(Event::Replaced { result: Ok(()) });
    world.pass(Duration::from_secs(1));
    assert_eq!((world.serving_id(), told(&world)), (Some(3), 1));
    world.check_quiet();
}

#[test]
fn the_end_comes_before_a_replacement() {
    let (mut world, id) = about_to_replace();
    world.signal(Signal::Terminate);
    assert!(!world.state.is_replacing());
    assert_eq!(world.report(id).problems, ["the instance is stopping"]);
    world.pass(Duration::from_secs(30));
    assert!(world.exit.is_some());
    let upgrades = world.actions.iter().filter(
        |action| matches!(action, Action::Reply { report, .. } if report.kind == Kind::Upgrade),
    );
    assert_eq!(upgrades.count(), 1);
}

#[test]
fn the_next_image_knows_how_old_the_last_transition_is() {
    let (mut world, _) = about_to_replace();
    let last = |state: &State, now| state.view(now).last_transition.unwrap();
    world.pass(Duration::from_secs(2));
    let machine = world.state.save().unwrap();
    let restored = State::restore(machine, "1.1.0".into(), world.now).unwrap();
    assert_eq!(last(&restored, world.now), last(&world.state, world.now));
    assert!(last(&restored, world.now).age_ms >= Some(2000));
}

#[test]
fn a_memory_that_contradicts_itself_is_refused() {
    let (world, _) = about_to_replace();
    let words = serde_json::to_value(world.state.save().unwrap()).unwrap();
    let restore = |words: &serde_json::Value| {
        let machine: Machine = serde_json::from_value(words.clone()).unwrap();
        State::restore(machine, "1.1.0".into(), Millis(0)).map(drop)
    };
    assert_eq!(restore(&words), Ok(()));
    for (field, value) in [
        ("serving", serde_json::json!(99)),
        ("next_worker", serde_json::json!(2)),
        ("next_generation", serde_json::json!(2)),
    ] {
        let mut wrong = words.clone();
        wrong[field] = value;
        assert!(restore(&wrong).is_err(), "{field}");
    }
    let mut wrong = words;
    let first = wrong["workers"][0].clone();
    wrong["workers"].as_array_mut().unwrap().push(first);
    assert!(restore(&wrong).is_err());
}

#[test]
fn only_a_machine_that_is_about_to_be_replaced_can_be_saved() {
    assert!(World::serving().state.save().is_err());
}
