//! A build that cannot live gives way to the one before it.

use std::time::Duration;

use super::world::{Habit, Habits, World};
use crate::action::{Action, Kind, Outcome};
use crate::event::BinaryId;

const SECOND: Duration = Duration::from_secs(1);

/// An upgrade to another build a little while ago.
fn upgraded() -> World {
    let mut world = World::serving();
    world.build = 7;
    let id = world.upgrade();
    world.pass(15 * SECOND);
    assert_eq!(world.report(id).outcome, Outcome::Success);
    world.actions.clear();
    world
}

fn crash(world: &mut World, times: u32) {
    for _ in 0..times {
        world.kill(world.serving_id().unwrap());
        world.pass(2 * SECOND);
        assert!(world.serving_id().is_some());
    }
}

fn fallbacks(world: &World) -> usize {
    world.count(|action| {
        matches!(action, Action::Progress { kind: Kind::Fallback, phase: "spawn", .. })
    })
}

#[test]
fn the_fourth_crash_in_a_row_of_a_young_build_brings_the_former_one_back() {
    let mut world = upgraded();
    crash(&mut world, 3);
    assert_eq!(fallbacks(&world), 0);
    crash(&mut world, 1);
    assert_eq!(fallbacks(&world), 1);
    assert!(world.did(&Action::CountUpgrade(Outcome::Reverted)));
    assert!(world.did(&Action::ReleaseBinary { binary: BinaryId(1) }));
    assert_eq!(world.state.binary().id, BinaryId(0));
    let last = world.state.view(world.now).last_transition.unwrap();
    assert_eq!((last.kind.as_str(), last.result.as_str()), ("fallback", "ok"));
    assert_eq!(
        last.problems,
        ["/usr/bin/baton: workers of this build failed 4 times in a row; the build before it \
             serves again"]
    );
    assert_eq!(world.closed().len(), 0, "listeners stay");
    crash(&mut world, 5);
    assert_eq!(fallbacks(&world), 1, "there is only one build before");
    world.check_quiet();
}

#[test]
fn the_build_that_was_given_up_is_not_tried_again_without_force() {
    let mut world = upgraded();
    crash(&mut world, 4);
    let id = world.upgrade();
    world.pass(SECOND);
    assert_eq!(
        world.report(id).problems,
        ["/usr/bin/baton: this build failed repeatedly and is not tried again without --force"]
    );
}

#[test]
fn a_build_that_is_no_longer_young_is_replaced_by_its_like() {
    let mut world = upgraded();
    world.pass(600 * SECOND);
    assert!(world.did(&Action::ReleaseBinary { binary: BinaryId(0) }));
    crash(&mut world, 6);
    assert_eq!(fallbacks(&world), 0);
    world.check_quiet();
}

#[test]
fn failures_of_the_build_before_do_not_count_against_the_new_one() {
    let mut world = World::serving();
    for _ in 0..8 {
        world.next.push_back(Habits { hello: Habit::Dies, ..Habits::default() });
    }
    world.kill(1);
    world.pass(5 * SECOND);
    assert_eq!(world.word(), "crash-loop");
    world.next.clear();
    world.build = 7;
    world.upgrade();
    world.pass(15 * SECOND);
    crash(&mut world, 3);
    assert_eq!(fallbacks(&world), 0);
}

#[test]
fn an_upgrade_to_the_same_build_keeps_no_other_one() {
    let mut world = upgraded();
    world.upgrade();
    world.pass(15 * SECOND);
    crash(&mut world, 4);
    assert_eq!(fallbacks(&world), 1, "the one before the last change is still at hand");
    world.check_quiet();
}
