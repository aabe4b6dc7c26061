use std::time::Duration;

use baton_handoff::message::{Drain, Generation};

use super::world::{Habit, Habits, Opinion, World};
use crate::action::{Action, Force, Kind, Order, Outcome};
use crate::event::Request;
use baton_handoff::message::WorkerId;

const SECOND: Duration = Duration::from_secs(1);

fn failing(habits: Habits, wait: u64) -> (World, String) {
    let mut world = World::serving();
    world.next.push_back(habits);
    let id = world.upgrade();
    world.pass(Duration::from_secs(wait));
    let report = world.report(id).clone();
    assert!(!report.outcome.is_ok(), "{report:?}");
    assert_eq!((world.serving_id(), world.generation(), world.word()), (Some(1), 1, "running"));
    assert_eq!(report.problems.len(), 1, "{report:?}");
    world.check_quiet();
    (world, report.problems[0].clone())
}

#[test]
fn an_upgrade_passes_every_phase_and_answers_after_the_watch() {
    let mut world = World::serving();
    world.config = ["b", "c"].into();
    let id = world.upgrade();
    world.pass(9 * SECOND);
    assert_eq!(world.phase().as_deref(), Some("watch"));
    assert_eq!(world.sent(1), [Order::Quiesce]);
    assert_eq!(world.closed().len(), 0, "the old worker may still be called back");
    world.pass(2 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
    assert_eq!((world.serving_id(), world.generation()), (Some(2), 2));
    assert_eq!(
        world.progress(Kind::Upgrade),
        ["check", "spawn", "prepare", "shift", "migrate", "watch", "replace"]
    );
    assert_eq!(world.sent(1), [Order::Quiesce, Order::Drain(Drain { timeout_ms: 10_000 })]);
    assert_eq!(world.closed(), ["a".to_owned()].into());
    assert!(world.did(&Action::CountUpgrade(Outcome::Success)));
    world.check_quiet();
}

#[test]
fn a_new_worker_that_says_nothing_exits_or_hangs_changes_nothing() {
    let (_, why) = failing(Habits { hello: Habit::Ignores, ..Habits::default() }, 11);
    assert_eq!(why, "worker 2 did not say hello in time");
    let (_, why) = failing(Habits { hello: Habit::Dies, ..Habits::default() }, 1);
    assert_eq!(why, "worker 2 (pid 102) ended: exit status 1");
    let (_, why) = failing(Habits { prepare: Opinion::Ignores, ..Habits::default() }, 31);
    assert_eq!(why, "worker 2 was not ready within 30s");
    let (_, why) = failing(Habits { prepare: Opinion::Dies, ..Habits::default() }, 1);
    assert_eq!(why, "worker 2 (pid 102) ended: exit status 1");
    let (_, why) = failing(Habits { listeners: Habit::Ignores, ..Habits::default() }, 31);
    assert_eq!(why, "worker 2 was not ready within 30s");
    let (world, why) = failing(Habits { activate: Habit::Ignores, ..Habits::default() }, 11);
    assert_eq!(why, "worker 2 did not begin to accept in time");
    assert_eq!(world.sent(1), [], "the old worker never heard of it");
}

#[test]
fn a_binary_that_cannot_be_opened_or_fails_its_self_check_is_not_started() {
    let mut world = World::serving();
    world.open_error = Some("/usr/bin/baton: not executable".into());
    let id = world.upgrade();
    world.settle();
    assert_eq!(world.report(id).problems, ["/usr/bin/baton: not executable"]);
    world.open_error = None;
    world.check_error = Some("its self-check failed (exit status: 1)".into());
    let id = world.upgrade();
    world.settle();
    assert_eq!(world.report(id).problems, ["its self-check failed (exit status: 1)"]);
    world.check_hangs = true;
    let id = world.upgrade();
    world.pass(31 * SECOND);
    assert_eq!(
        world.report(id).problems,
        ["the new binary did not answer its self-check within 30s"]
    );
    assert_eq!(world.count(|a| matches!(a, Action::CancelCheck { .. })), 3);
    assert_eq!(world.count(|a| matches!(a, Action::Spawn { .. })), 0);
    world.check_quiet();
}

#[test]
fn a_new_worker_that_dies_inside_the_watch_calls_the_old_one_back() {
    let mut world = World::serving();
    world.config = ["a", "b", "c"].into();
    let id = world.upgrade();
    world.pass(5 * SECOND);
    world.kill(2);
    world.settle();
    let report = world.report(id);
    assert_eq!(report.outcome, Outcome::Reverted);
    assert_eq!(report.problems, ["worker 2 (pid 102) ended: signal 9"]);
    assert_eq!((world.serving_id(), world.generation(), world.word()), (Some(1), 1, "running"));
    assert_eq!(world.sent(1), [Order::Quiesce, Order::Activate(Generation(1))]);
    assert_eq!(world.closed(), ["c".to_owned()].into());
    assert!(world.did(&Action::CountUpgrade(Outcome::Reverted)));
    world.check_quiet();
}

#[test]
fn a_new_worker_that_falls_silent_inside_the_watch_is_killed_and_reverted() {
    let mut world = World::serving();
    world.next.push_back(Habits { ping: Habit::Ignores, ..Habits::default() });
    let id = world.upgrade();
    world.pass(8 * SECOND);
    let report = world.report(id);
    assert_eq!(report.outcome, Outcome::Reverted);
    assert_eq!(report.problems, ["worker 2 was killed: no sign of life for 6s"]);
    assert_eq!(world.serving_id(), Some(1));
}

#[test]
fn a_watch_shorter_than_our_patience_still_ends_with_a_sign_of_life() {
    let mut world = World::with_watch(Duration::ZERO);
    world.handle(crate::event::Event::Start);
    world.settle();
    let id = world.upgrade();
    world.settle();
    assert_eq!(world.report(id).outcome, Outcome::Success);
    world.next.push_back(Habits { ping: Habit::Ignores, ..Habits::default() });
    let id = world.upgrade();
    world.pass(8 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Reverted);
    assert_eq!(world.serving_id(), Some(2));
}

#[test]
fn when_neither_side_is_left_a_replacement_of_the_old_build_starts() {
    let mut world = World::serving();
    let id = world.upgrade();
    world.pass(5 * SECOND);
    world.kill(1);
    world.settle();
    assert_eq!(world.phase().as_deref(), Some("watch"));
    world.kill(2);
    world.settle();
    assert_eq!(world.report(id).outcome, Outcome::Failed);
    assert_eq!((world.serving_id(), world.generation()), (Some(3), 1));
    world.check_quiet();
}

#[test]
fn an_old_worker_that_does_not_come_back_is_replaced() {
    let mut world = World::serving();
    let id = world.upgrade();
    world.pass(5 * SECOND);
    world.habits(1).activate = Habit::Ignores;
    world.kill(2);
    world.pass(11 * SECOND);
    assert_eq!(
        world.report(id).problems,
        [
            "worker 2 (pid 102) ended: signal 9",
            "the old worker did not begin to accept again in time"
        ]
    );
    assert_eq!(world.serving_id(), Some(3));
    world.check_quiet();
}

#[test]
fn the_upgrade_goes_on_when_the_old_worker_dies_before_the_shift() {
    let mut world = World::serving();
    world.next.push_back(Habits { hello: Habit::Ignores, ..Habits::default() });
    let id = world.upgrade();
    world.settle();
    world.kill(1);
    world.settle();
    assert_eq!(world.phase().as_deref(), Some("spawn"));
    world.say(
        2,
        baton_handoff::message::ToSupervisor::Hello(baton_handoff::message::HelloSupervisor {
            version: "2.0.0".into(),
            pid: 102,
        }),
    );
    world.pass(11 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
    assert_eq!(world.serving_id(), Some(2));
}

#[test]
fn an_upgrade_that_fails_after_the_old_worker_died_is_followed_by_a_replacement() {
    let mut world = World::serving();
    world.next.push_back(Habits { hello: Habit::Ignores, ..Habits::default() });
    let id = world.upgrade();
    world.settle();
    world.kill(1);
    world.pass(11 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Failed);
    assert_eq!((world.serving_id(), world.word()), (Some(3), "running"));
}

#[test]
fn an_old_worker_that_does_not_confirm_does_not_hold_the_upgrade_up() {
    let mut world = World::serving();
    world.habits(1).quiesce = Habit::Ignores;
    let id = world.upgrade();
    world.pass(13 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
}

#[test]
fn an_old_worker_that_dies_when_told_to_stop_accepting_does_not_hold_the_upgrade_up() {
    let mut world = World::serving();
    world.habits(1).quiesce = Habit::Dies;
    let id = world.upgrade();
    world.settle();
    assert_eq!(world.phase().as_deref(), Some("watch"));
    world.pass(11 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
}

#[test]
fn a_retiring_worker_that_does_not_leave_climbs_the_ladder() {
    let mut world = World::serving();
    world.habits(1).drain = Habit::Ignores;
    world.habits(1).term = Habit::Ignores;
    world.upgrade();
    world.pass(11 * SECOND);
    world.actions.clear();
    let signal = |force| Action::Signal { worker: WorkerId(1), force };
    world.pass(10 * SECOND);
    assert!(!world.did(&signal(Force::Terminate)));
    world.pass(2 * SECOND);
    assert!(world.did(&signal(Force::Terminate)) && !world.did(&signal(Force::Kill)));
    world.pass(2 * SECOND);
    assert!(world.did(&signal(Force::Kill)));
    assert_eq!(world.serving_id(), Some(2), "a retiring worker's end is nobody's loss");
}

#[test]
fn the_ninth_retiring_worker_is_refused() {
    let mut world = World::with_watch(Duration::ZERO);
    world.handle(crate::event::Event::Start);
    world.settle();
    for worker in 1..=8 {
        world.habits(worker).drain = Habit::Ignores;
        let id = world.upgrade();
        world.settle();
        assert!(world.report(id).outcome.is_ok());
    }
    let id = world.upgrade();
    world.settle();
    assert_eq!(world.report(id).problems, ["upgrade refused: 8 workers are still draining"]);
}

#[test]
fn a_build_that_failed_three_times_is_quarantined_until_forced() {
    let mut world = World::serving();
    for _ in 0..3 {
        world.next.push_back(Habits { hello: Habit::Dies, ..Habits::default() });
        world.upgrade();
        world.settle();
    }
    world.actions.clear();
    let id = world.upgrade();
    world.settle();
    assert_eq!(
        world.report(id).problems,
        ["/usr/bin/baton: this build failed repeatedly and is not tried again without --force"]
    );
    assert_eq!(world.count(|a| matches!(a, Action::SelfCheck { .. })), 0);

    world.build = 2;
    let other = world.upgrade();
    world.pass(11 * SECOND);
    assert!(world.report(other).outcome.is_ok(), "another build is another matter");
    world.build = 1;
    let forced = world.ask(Request::Upgrade { binary: None, force: true });
    world.pass(11 * SECOND);
    assert!(world.report(forced).outcome.is_ok());
    let again = world.upgrade();
    world.pass(11 * SECOND);
    assert!(world.report(again).outcome.is_ok(), "a success clears its name");
    world.check_quiet();
}

#[test]
fn a_broken_configuration_is_not_the_builds_fault() {
    let mut world = World::serving();
    for _ in 0..4 {
        let prepare = Opinion::Refuses(vec!["broken".into()]);
        world.next.push_back(Habits { prepare, ..Habits::default() });
        let id = world.upgrade();
        world.settle();
        assert_eq!(world.report(id).problems, ["broken"]);
    }
}

#[test]
fn a_different_upgrade_is_refused_while_one_waits() {
    let mut world = World::serving();
    world.upgrade();
    let to = |path: &str| Request::Upgrade { binary: Some(path.into()), force: false };
    let second = world.ask(to("/b"));
    let third = world.ask(to("/c"));
    assert_eq!(world.report(third).problems, ["a different upgrade is waiting already"]);
    world.pass(30 * SECOND);
    assert!(world.report(second).outcome.is_ok());
    assert_eq!(world.serving_id(), Some(3));
    world.check_quiet();
}
