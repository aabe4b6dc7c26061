use std::time::Duration;

use baton_handoff::message::{Generation, Nak, Refused, ToSupervisor};

use super::world::{Habit, Opinion, READY, World};
use crate::action::{Action, Kind, Notify, Order, Outcome};
use crate::event::{Event, Request, Signal};

#[test]
fn a_reload_switches_in_the_same_worker_and_closes_what_is_no_longer_wanted() {
    let mut world = World::serving();
    world.config = ["b", "c"].into();
    let id = world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.report(id).outcome, Outcome::Success);
    assert_eq!((world.serving_id(), world.generation()), (Some(1), 2));
    assert_eq!(world.closed(), ["a".to_owned()].into());
    assert_eq!(world.progress(Kind::Reload), ["check", "prepare", "shift"]);
    assert!(world.did(&Action::CountReload(Outcome::Success)));
    let manager: Vec<_> = world
        .actions
        .iter()
        .filter(|a| matches!(a, Action::Notify(Notify::Reloading | Notify::Ready)))
        .collect();
    assert_eq!(manager, [&Action::Notify(Notify::Reloading), &Action::Notify(Notify::Ready)]);
    world.check_quiet();
}

#[test]
fn the_age_of_the_last_transition_counts_from_its_end() {
    let mut world = World::serving();
    let age = |world: &World| world.state.view(world.now).last_transition.unwrap().age_ms;
    world.pass(Duration::from_secs(5));
    assert_eq!(age(&world), Some(5000));
    world.habits(1).prepare = Opinion::Ignores;
    world.ask(Request::Reload);
    world.pass(READY);
    assert_eq!(world.state.view(world.now).last_transition.unwrap().result, "failed");
    assert_eq!(age(&world), Some(0));
    world.pass(Duration::from_millis(1500));
    assert_eq!(age(&world), Some(1500));
}

#[test]
fn a_reload_that_changes_nothing_succeeds_and_keeps_the_generation() {
    let mut world = World::serving();
    world.habits(1).prepare = Opinion::Unchanged;
    let id = world.ask(Request::Reload);
    world.settle();
    let report = world.report(id);
    assert_eq!(report.outcome, Outcome::Unchanged);
    assert_eq!(report.summary, "nothing changed; generation 1 serves on");
    assert_eq!(world.generation(), 1);
    assert_eq!(world.sent(1), []);
}

#[test]
fn a_refused_reload_tells_every_problem_and_leaves_everything() {
    let mut world = World::serving();
    world.habits(1).prepare = Opinion::Refuses(vec!["one".into(), "two".into()]);
    let id = world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.report(id).problems, ["one", "two"]);
    assert_eq!((world.generation(), world.closed().len()), (1, 0));
    world.habits(1).prepare = Opinion::Wants;
    world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.generation(), 2);
}

#[test]
fn a_busy_port_aborts_the_reload() {
    let mut world = World::serving();
    world.config = ["a", "c"].into();
    world.bind_error = Some("listen c at c: Address already in use".into());
    let id = world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.report(id).problems, ["listen c at c: Address already in use"]);
    assert_eq!(world.sent(1), [Order::Abort(Generation(2))]);
    assert_eq!(world.closed().len(), 0);
    assert_eq!(world.word(), "running");
    world.check_quiet();
}

#[test]
fn an_unreadable_file_fails_the_reload_before_the_worker_hears_of_it() {
    let mut world = World::serving();
    world.config_error = Some("a.json: No such file or directory".into());
    let id = world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.report(id).problems, ["a.json: No such file or directory"]);
    assert_eq!(world.count(|a| matches!(a, Action::Prepare { .. })), 0);
}

#[test]
fn a_worker_that_hangs_over_a_reload_is_kept_and_its_late_ready_is_ignored() {
    let mut world = World::serving();
    world.config = ["a", "b", "c"].into();
    world.habits(1).listeners = Habit::Ignores;
    let id = world.ask(Request::Reload);
    world.pass(READY.saturating_add(Duration::from_secs(1)));
    assert_eq!(world.report(id).problems, ["worker 1 was not ready within 30s"]);
    assert_eq!(world.sent(1), [Order::Abort(Generation(2))]);
    assert_eq!(world.closed(), ["c".to_owned()].into());

    world.say(1, ToSupervisor::Ready(Generation(2)));
    world.settle();
    assert_eq!((world.serving_id(), world.phase(), world.generation()), (Some(1), None, 1));

    world.habits(1).listeners = Habit::Answers;
    world.ask(Request::Reload);
    world.say(1, ToSupervisor::Ready(Generation(2)));
    world.settle();
    assert_eq!(world.generation(), 3, "the number of the unanswered offer is not used again");
    world.check_quiet();
}

#[test]
fn a_worker_that_cannot_switch_and_says_so_serves_on() {
    let mut world = World::serving();
    world.config = ["a", "c"].into();
    world.habits(1).activate = Habit::Ignores;
    let id = world.ask(Request::Reload);
    world.pass(Duration::from_secs(1));
    let refused = Refused {
        generation: Generation(2),
        problems: vec!["cannot poll the listeners: Too many open files".into()],
    };
    world.say(1, ToSupervisor::Refused(refused));
    world.settle();
    assert_eq!(world.report(id).problems, ["cannot poll the listeners: Too many open files"]);
    assert_eq!((world.serving_id(), world.generation()), (Some(1), 1));
    assert_eq!(world.closed(), ["c".to_owned()].into());
    world.check_quiet();
}

#[test]
fn silence_while_an_offer_is_compiled_is_no_reason_to_kill() {
    let mut world = World::serving();
    world.habits(1).prepare = Opinion::Ignores;
    world.habits(1).ping = Habit::Ignores;
    world.ask(Request::Reload);
    world.pass(READY.saturating_sub(Duration::from_secs(1)));
    assert_eq!(world.serving_id(), Some(1));
    world.habits(1).ping = Habit::Answers;
    world.pass(Duration::from_secs(60));
    assert_eq!(world.serving_id(), Some(1));
}

#[test]
fn a_worker_that_dies_over_a_reload_fails_it_and_is_replaced_with_the_old_configuration() {
    let mut world = World::serving();
    world.config = ["a", "b", "c"].into();
    world.habits(1).listeners = Habit::Dies;
    let id = world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.report(id).outcome, Outcome::Failed);
    assert_eq!(world.report(id).problems, ["worker 1 (pid 101) ended: exit status 1"]);
    assert_eq!((world.serving_id(), world.generation()), (Some(2), 1));
    assert_eq!(world.closed(), ["c".to_owned()].into());
    world.check_quiet();
}

#[test]
fn a_worker_that_does_not_switch_cannot_be_trusted_to_be_on_either_side() {
    let mut world = World::serving();
    world.habits(1).activate = Habit::Ignores;
    let id = world.ask(Request::Reload);
    world.pass(READY.saturating_add(Duration::from_secs(1)));
    assert_eq!(world.report(id).problems, ["worker 1 did not begin to accept in time"]);
    assert_eq!((world.serving_id(), world.generation()), (Some(2), 1));
    world.check_quiet();
}

#[test]
fn a_hundred_hangups_are_two_reloads() {
    let mut world = World::serving();
    for _ in 0..100 {
        world.signal(Signal::Hangup);
    }
    let ids = [world.ask(Request::Reload), world.ask(Request::Reload)];
    world.settle();
    assert_eq!(world.count(|a| matches!(a, Action::CountReload(_))), 2);
    assert_eq!(world.generation(), 3);
    assert!(ids.iter().all(|id| world.report(*id).generation == Generation(3)));
}

#[test]
fn a_plan_that_asks_twice_for_a_listener_costs_the_worker_its_life() {
    let mut world = World::serving();
    world.habits(1).prepare = Opinion::Doubles;
    let id = world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.report(id).problems, ["worker 1 was killed: its plan asks twice for \"a\""]);
    assert_eq!(world.serving_id(), Some(2));
}

#[test]
fn a_reload_with_no_worker_alive_starts_one_with_the_new_configuration() {
    let mut world = World::serving();
    world.spawn_error = Some("no memory".into());
    world.kill(1);
    world.pass(Duration::from_secs(30));
    assert_eq!((world.serving_id(), world.word()), (None, "crash-loop"));

    world.spawn_error = None;
    world.config = ["a"].into();
    let id = world.ask(Request::Reload);
    world.settle();
    assert_eq!(world.report(id).outcome, Outcome::Success);
    assert_eq!((world.generation(), world.word()), (2, "running"));
    assert_eq!(world.closed(), ["b".to_owned()].into());
    world.check_quiet();
}

#[test]
fn a_worker_that_does_not_take_a_message_fails_the_reload_and_serves_on() {
    let mut world = World::serving();
    world.habits(1).prepare = Opinion::Ignores;
    let id = world.ask(Request::Reload);
    world.settle();
    world.say(1, ToSupervisor::Nak(Nak { kind: 77, reason: "unknown".into() }));
    assert_eq!(world.report(id).problems, ["worker 1 did not take message type 77: unknown"]);
    assert_eq!(world.serving_id(), Some(1));
}

#[test]
fn answers_of_a_former_attempt_are_dropped() {
    let mut world = World::serving();
    world.ask(Request::Reload);
    let late = world.pending.pop_front().expect("the configuration");
    world.pass(Duration::from_secs(31));
    assert_eq!(world.phase(), None);
    let Event::ConfigRead { .. } = late else { panic!("{late:?}") };
    world.handle(late);
    assert_eq!(world.phase(), None);
}
