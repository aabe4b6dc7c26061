//! Connections that outlive their worker.

use std::time::Duration;

use baton_handoff::message::{Dead, Migrated, Nak, Recover, Recovered, ToSupervisor, WorkerId};

use super::world::{Habit, Habits, MIGRATE, World};
use crate::action::{Action, Force, Kind, Order, Outcome};
use crate::event::{Event, Exit, Signal};

const SECOND: Duration = Duration::from_secs(1);

/// Who was told to carry on whom, in order.
fn recoveries(world: &World) -> Vec<(u32, Vec<u32>)> {
    let mut told = Vec::new();
    for action in &world.actions {
        if let Action::Recover { worker, dead } = action {
            told.push((worker.0, dead.iter().map(|dead| dead.worker.0).collect()));
        }
    }
    told
}

fn logged(world: &World, wanted: &str) -> bool {
    world.count(|action| matches!(action, Action::Log { text, .. } if text == wanted)) == 1
}

fn moves(world: &World) -> usize {
    world.count(|action| matches!(action, Action::Migrate { .. }))
}

#[test]
fn what_a_killed_worker_left_goes_to_its_replacement_as_soon_as_that_serves() {
    let mut world = World::serving();
    world.kill(1);
    world.settle();
    assert_eq!(world.serving_id(), Some(2));
    assert_eq!(recoveries(&world), [(2, vec![1])]);
    assert!(world.did(&Action::LetGo { worker: WorkerId(1) }));
    assert!(logged(&world, "worker 2 carried on 1 connections of worker 1, 0 were reset"));
    world.check_quiet();
}

#[test]
fn a_worker_that_ends_in_order_or_has_no_lifeline_leaves_nothing() {
    let mut world = World::serving();
    world.upgrade();
    world.pass(12 * SECOND);
    assert_eq!(world.serving_id(), Some(2));
    assert!(world.did(&Action::Forget { worker: WorkerId(1), remains: false }));
    world.next.push_back(Habits { protocol: 1, ..Habits::default() });
    world.upgrade();
    world.pass(12 * SECOND);
    world.kill(3);
    world.settle();
    assert!(world.did(&Action::Forget { worker: WorkerId(3), remains: false }));
    assert_eq!(recoveries(&world), []);
}

#[test]
fn a_worker_that_never_accepted_leaves_nothing() {
    let mut world = World::serving();
    world.next.push_back(Habits { activate: Habit::Dies, ..Habits::default() });
    world.upgrade();
    world.settle();
    assert_eq!(recoveries(&world), [(1, vec![2])], "this one may have accepted");
    world.next.push_back(Habits { listeners: Habit::Ignores, ..Habits::default() });
    world.upgrade();
    world.settle();
    world.say(3, ToSupervisor::Lifeline);
    world.kill(3);
    world.settle();
    assert!(world.did(&Action::Forget { worker: WorkerId(3), remains: false }));
}

#[test]
fn an_adopter_that_dies_before_it_answers_leaves_its_own_first() {
    let mut world = World::serving();
    world.next.push_back(Habits { recover: Habit::Dies, ..Habits::default() });
    world.kill(1);
    world.pass(SECOND);
    assert_eq!(recoveries(&world), [(2, vec![1]), (3, vec![2, 1])]);
    world.check_quiet();
}

#[test]
fn more_dead_workers_than_a_message_names_cost_the_oldest_ones_connections() {
    let mut world = World::serving();
    for _ in 0..9 {
        world.next.push_back(Habits { recover: Habit::Ignores, ..Habits::default() });
    }
    for worker in 1..=9 {
        world.kill(worker);
        world.pass(6 * SECOND);
    }
    let (adopter, whose) = recoveries(&world).pop().unwrap();
    assert_eq!((adopter, whose), (10, vec![9, 8, 7, 6, 5, 4, 3, 2]));
    assert!(logged(&world, "too many dead workers: what worker 1 left is given up"));
}

#[test]
fn an_adopter_that_does_not_answer_or_does_not_understand_ends_the_matter() {
    let mut world = World::serving();
    world.next.push_back(Habits { recover: Habit::Ignores, ..Habits::default() });
    world.kill(1);
    world.pass(29 * SECOND);
    assert!(!world.did(&Action::LetGo { worker: WorkerId(1) }));
    world.pass(2 * SECOND);
    assert!(world.did(&Action::LetGo { worker: WorkerId(1) }));
    assert!(logged(&world, "what worker 1 left is given up: no answer within 30s"));
    world.say(2, ToSupervisor::Recovered(Recovered::default()));

    world.next.push_back(Habits { recover: Habit::Ignores, ..Habits::default() });
    world.kill(2);
    world.pass(SECOND);
    let reason = "wrong descriptors".to_owned();
    world.say(3, ToSupervisor::Nak(Nak { kind: Recover::KIND, reason }));
    assert!(world.did(&Action::LetGo { worker: WorkerId(2) }));
    assert_eq!(world.serving_id(), Some(3), "it serves all the same");
    world.check_quiet();
}

#[test]
fn a_retiring_worker_that_is_killed_is_carried_on_by_the_one_that_serves_already() {
    let mut world = World::serving();
    world.habits(1).drain = Habit::Ignores;
    world.upgrade();
    world.pass(11 * SECOND);
    assert_eq!(world.state.retiring(), 1);
    world.kill(1);
    world.settle();
    assert_eq!(recoveries(&world), [(2, vec![1])]);
}

#[test]
fn what_is_left_after_the_drain_time_is_not_carried_on() {
    let mut world = World::serving();
    world.habits(1).drain = Habit::Ignores;
    world.habits(1).term = Habit::Ignores;
    world.upgrade();
    world.pass(30 * SECOND);
    assert!(world.did(&Action::Signal { worker: WorkerId(1), force: Force::Kill }));
    assert!(world.did(&Action::Forget { worker: WorkerId(1), remains: false }));
    assert_eq!(recoveries(&world), []);
}

#[test]
fn a_hung_worker_is_killed_and_what_it_left_is_carried_on() {
    let mut world = World::serving();
    world.habits(1).ping = Habit::Ignores;
    world.pass(11 * SECOND);
    assert!(world.did(&Action::Signal { worker: WorkerId(1), force: Force::Kill }));
    assert_eq!(world.serving_id(), Some(2));
    assert_eq!(recoveries(&world), [(2, vec![1])]);
}

#[test]
fn how_long_a_worker_has_been_dead_is_told() {
    let mut world = World::serving();
    world.next.push_back(Habits { hello: Habit::Ignores, ..Habits::default() });
    world.kill(1);
    world.pass(31 * SECOND);
    let dead = vec![Dead { worker: WorkerId(1), since_ms: 30_100 }];
    assert!(world.did(&Action::Recover { worker: WorkerId(3), dead }));
}

#[test]
fn only_a_worker_that_knows_how_is_asked() {
    let mut world = World::serving();
    world.next.push_back(Habits { protocol: 1, ..Habits::default() });
    world.kill(1);
    world.settle();
    assert_eq!(recoveries(&world), []);
    assert!(logged(&world, "what worker 1 left is given up: worker 2 speaks protocol 1 only"));
    world.check_quiet();
}

#[test]
fn the_end_lets_everything_go() {
    let mut world = World::serving();
    world.next.push_back(Habits { recover: Habit::Ignores, ..Habits::default() });
    world.kill(1);
    world.settle();
    world.signal(Signal::Terminate);
    assert!(world.did(&Action::LetGo { worker: WorkerId(1) }));
    world.pass(15 * SECOND);
    assert!(world.exit.is_some());
    world.check_quiet();
}

#[test]
fn connections_move_and_the_report_says_how_many_and_how_long_they_stood_still() {
    let mut world = World::serving();
    world.habits(1).migrate = Habit::Ignores;
    let id = world.upgrade();
    world.settle();
    assert_eq!((world.phase().as_deref(), moves(&world)), (Some("migrate"), 1));
    let begun = Migrated { moved: 9874, waiting: 3, ..Migrated::default() };
    world.say(1, ToSupervisor::Migrated(begun));
    let text = "moved 9874, still dialling 3, kept 0";
    let told = |action: &Action| matches!(action, Action::Progress { text: of, .. } if of == text);
    assert_eq!(world.count(told), 1);
    let migration = world.state.view(world.now).transition.unwrap().migration.unwrap();
    assert_eq!((migration.moved, migration.waiting, migration.kept), (9874, 3, 0));
    let over = Migrated { moved: 9876, waiting: 0, kept: 1, longest_pause_us: 1250, over: true };
    world.say(1, ToSupervisor::Migrated(over));
    assert_eq!(world.phase().as_deref(), Some("watch"));
    world.pass(12 * SECOND);
    let summary = "; 9876 connections moved, 1 stayed and drain, longest pause 1.25ms";
    assert!(world.report(id).summary.contains(summary), "{:?}", world.report(id));
}

#[test]
fn a_giver_that_comes_to_no_end_does_not_hold_the_upgrade_up_for_ever() {
    let mut world = World::serving();
    world.habits(1).migrate = Habit::Ignores;
    let id = world.upgrade();
    world.pass(MIGRATE + 4 * SECOND);
    assert_eq!(world.phase().as_deref(), Some("migrate"));
    world.pass(12 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
    world.check_quiet();
}

#[test]
fn a_giver_that_hangs_is_killed_and_the_new_worker_carries_on() {
    let mut world = World::serving();
    world.habits(1).migrate = Habit::Ignores;
    world.habits(1).ping = Habit::Ignores;
    let id = world.upgrade();
    world.pass(11 * SECOND);
    assert_eq!(world.phase().as_deref(), Some("watch"));
    assert_eq!(recoveries(&world), [(2, vec![1])]);
    world.pass(12 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
}

#[test]
fn an_old_worker_that_dies_while_it_gives_is_carried_on() {
    let mut world = World::serving();
    world.habits(1).migrate = Habit::Dies;
    let id = world.upgrade();
    world.settle();
    assert_eq!(world.phase().as_deref(), Some("watch"));
    assert_eq!(recoveries(&world), [(2, vec![1])]);
    world.pass(12 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
}

#[test]
fn connections_come_back_from_a_new_worker_that_dies_while_they_move_or_after() {
    for after in [0, 5] {
        let mut world = World::serving();
        if after == 0 {
            world.habits(1).migrate = Habit::Ignores;
        }
        let id = world.upgrade();
        world.pass(after * SECOND);
        world.kill(2);
        world.settle();
        assert_eq!(world.report(id).outcome, Outcome::Reverted);
        assert_eq!(world.serving_id(), Some(1));
        assert_eq!(recoveries(&world), [(1, vec![2])]);
        world.check_quiet();
    }
}

#[test]
fn connections_come_back_from_a_new_worker_only_after_its_death() {
    let mut world = World::serving();
    let id = world.upgrade();
    world.pass(5 * SECOND);
    world.handle(Event::Broken { worker: WorkerId(2), problem: "nonsense".into() });
    // The old one says that it serves before the killed one was reaped.
    let exited = |event: &Event| matches!(event, Event::Exited { .. });
    let at = world.pending.iter().position(exited).unwrap();
    let exit = world.pending.remove(at).unwrap();
    world.settle();
    assert_eq!(world.report(id).outcome, Outcome::Reverted);
    assert_eq!((world.serving_id(), recoveries(&world)), (Some(1), vec![]));
    world.handle(exit);
    assert_eq!(recoveries(&world), [(1, vec![2])]);
    world.settle();
    world.check_quiet();
}

#[test]
fn connections_move_only_after_a_recovery_that_is_going_on() {
    let mut world = World::serving();
    world.next.push_back(Habits { recover: Habit::Ignores, ..Habits::default() });
    world.kill(1);
    world.settle();
    let id = world.upgrade();
    world.settle();
    assert_eq!((world.phase().as_deref(), moves(&world)), (Some("migrate"), 0));
    world.say(2, ToSupervisor::Recovered(Recovered { resumed: 5, lost: 0, failures: 0 }));
    assert_eq!(moves(&world), 1);
    world.pass(12 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
    world.check_quiet();
}

#[test]
fn connections_stay_where_one_side_does_not_know_how_or_nobody_wants_it() {
    let mut world = World::serving();
    world.next.push_back(Habits { protocol: 1, ..Habits::default() });
    world.upgrade();
    world.pass(12 * SECOND);
    assert_eq!((world.serving_id(), moves(&world)), (Some(2), 0));
    let phases = ["check", "spawn", "prepare", "shift", "watch", "replace"];
    assert_eq!(world.progress(Kind::Upgrade), phases);
    assert_eq!(world.sent(1).first(), Some(&Order::Quiesce));

    let mut world = World::serving();
    world.state.settings.migrate = Duration::ZERO;
    world.upgrade();
    world.pass(12 * SECOND);
    assert_eq!((world.serving_id(), moves(&world)), (Some(2), 0));
}

#[test]
fn a_channel_that_cannot_be_made_leaves_connections_where_they_are() {
    let mut world = World::serving();
    world.pair_error = Some("too many open files".into());
    let id = world.upgrade();
    world.settle();
    assert_eq!(world.phase().as_deref(), Some("watch"));
    world.pass(12 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
}

#[test]
fn an_exit_without_a_failure_is_in_order_also_when_nobody_asked_for_it() {
    let mut world = World::serving();
    world.kill(1);
    world.pending.clear();
    let exit = Exit { how: "exit status: 0".into(), orderly: true };
    world.handle(Event::Exited { worker: WorkerId(1), exit });
    world.settle();
    assert_eq!((world.serving_id(), recoveries(&world)), (Some(2), vec![]));
}
