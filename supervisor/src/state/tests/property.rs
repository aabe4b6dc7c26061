//! Random events, most of them unkind. What must hold at every moment is checked by the world
//! after each event; here, that everything comes to rest once the world turns kind again.

use std::time::Duration;

use baton_handoff::message::{
    Generation, HelloSupervisor, Migrate, Migrated, Nak, Plan, Recover, Recovered, Refused,
    ToSupervisor, WorkerId,
};
use proptest::prelude::*;

use super::world::{Habit, Habits, Opinion, World, pong, wanted};
use crate::event::{Event, Request, Signal};

#[derive(Debug, Clone)]
enum Op {
    Ask(Request),
    Signal(Signal),
    /// Deliver the n-th of the events under way: answers arrive in any order.
    Deliver(usize),
    DeliverAll,
    /// Events get lost, but for the exits, which the kernel guarantees.
    Lose(usize),
    Kill(usize),
    Close(usize),
    Break(usize),
    /// A message nobody asked for.
    Lie(usize, Lie, u64),
    Pass(u64),
    /// The character of the next worker.
    Next(Habits),
    /// A living worker changes its character.
    Change(usize, Habits),
    Config(u8),
    Trouble(u8),
}

#[derive(Debug, Clone, Copy)]
enum Lie {
    Hello,
    Plan,
    Unchanged,
    Doubled,
    Refused,
    Ready,
    Active,
    Quiesced,
    Drained,
    Pong,
    Lifeline,
    Migrated,
    Recovered,
    Nak,
}

fn habit() -> impl Strategy<Value = Habit> {
    prop_oneof![6 => Just(Habit::Answers), 1 => Just(Habit::Ignores), 1 => Just(Habit::Dies)]
}

fn opinion() -> impl Strategy<Value = Opinion> {
    prop_oneof![
        6 => Just(Opinion::Wants),
        1 => Just(Opinion::Unchanged),
        1 => Just(Opinion::Refuses(vec!["no".into()])),
        1 => Just(Opinion::Doubles),
        1 => Just(Opinion::Ignores),
        1 => Just(Opinion::Dies),
    ]
}

fn habits() -> impl Strategy<Value = Habits> {
    let before = (habit(), opinion(), habit(), habit(), habit());
    let after = (habit(), habit(), habit(), habit(), habit());
    let protocol = prop_oneof![5 => Just(2), 1 => Just(1)];
    (before, after, protocol).prop_map(|(before, after, protocol)| {
        let (hello, prepare, listeners, activate, quiesce) = before;
        let (drain, ping, term, migrate, recover) = after;
        Habits {
            hello,
            prepare,
            listeners,
            activate,
            quiesce,
            drain,
            ping,
            term,
            migrate,
            recover,
            protocol,
        }
    })
}

fn lie() -> impl Strategy<Value = Lie> {
    prop_oneof![
        Just(Lie::Hello),
        Just(Lie::Plan),
        Just(Lie::Unchanged),
        Just(Lie::Doubled),
        Just(Lie::Refused),
        Just(Lie::Ready),
        Just(Lie::Active),
        Just(Lie::Quiesced),
        Just(Lie::Drained),
        Just(Lie::Pong),
        Just(Lie::Lifeline),
        Just(Lie::Migrated),
        Just(Lie::Recovered),
        Just(Lie::Nak),
    ]
}

fn op_or_stop() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => op(),
        1 => Just(Op::Ask(Request::Stop)),
        1 => Just(Op::Signal(Signal::Terminate)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let request = prop_oneof![
        3 => Just(Request::Reload),
        3 => Just(Request::Upgrade { binary: None, force: false }),
        1 => Just(Request::Upgrade { binary: Some("/b".into()), force: true }),
    ];
    let signal = prop_oneof![Just(Signal::Hangup), Just(Signal::User2)];
    prop_oneof![
        6 => request.prop_map(Op::Ask),
        1 => signal.prop_map(Op::Signal),
        10 => (0..8_usize).prop_map(Op::Deliver),
        6 => Just(Op::DeliverAll),
        1 => (0..8_usize).prop_map(Op::Lose),
        2 => (0..4_usize).prop_map(Op::Kill),
        1 => (0..4_usize).prop_map(Op::Close),
        1 => (0..4_usize).prop_map(Op::Break),
        4 => (0..4_usize, lie(), 0..6_u64).prop_map(|(who, lie, n)| Op::Lie(who, lie, n)),
        6 => (0..15_000_u64).prop_map(Op::Pass),
        3 => habits().prop_map(Op::Next),
        1 => (0..4_usize, habits()).prop_map(|(who, habits)| Op::Change(who, habits)),
        2 => any::<u8>().prop_map(Op::Config),
        1 => any::<u8>().prop_map(Op::Trouble),
    ]
}

fn nth_worker(world: &World, n: usize) -> Option<WorkerId> {
    world.processes.keys().copied().nth(n % world.processes.len().max(1))
}

fn tell_lie(world: &mut World, worker: WorkerId, lie: Lie, n: u64) {
    let generation = Generation(n);
    let listeners = vec![wanted("a"), wanted("d")];
    let message = match lie {
        Lie::Hello => ToSupervisor::Hello(HelloSupervisor { version: "9".into(), pid: u32::MAX }),
        Lie::Plan => ToSupervisor::Plan(Plan { generation, listeners, unchanged: false }),
        Lie::Unchanged => ToSupervisor::Plan(Plan { generation, listeners, unchanged: true }),
        Lie::Doubled => {
            let listeners = [listeners.clone(), listeners].concat();
            ToSupervisor::Plan(Plan { generation, listeners, unchanged: false })
        }
        Lie::Refused => ToSupervisor::Refused(Refused { generation, problems: Vec::new() }),
        Lie::Ready => ToSupervisor::Ready(generation),
        Lie::Active => ToSupervisor::Active(generation),
        Lie::Quiesced => ToSupervisor::Quiesced,
        Lie::Drained => ToSupervisor::Drained { cut: n },
        Lie::Pong => pong(),
        Lie::Lifeline => ToSupervisor::Lifeline,
        Lie::Migrated => ToSupervisor::Migrated(Migrated {
            moved: n,
            over: n.is_multiple_of(2),
            ..Migrated::default()
        }),
        Lie::Recovered => ToSupervisor::Recovered(Recovered { resumed: n, ..Recovered::default() }),
        Lie::Nak => {
            let kind = [9, Migrate::KIND, Recover::KIND][usize::try_from(n % 3).unwrap_or(0)];
            ToSupervisor::Nak(Nak { kind, reason: "no".into() })
        }
    };
    world.handle(Event::Message { worker, message });
}

fn apply(world: &mut World, op: Op) {
    match op {
        Op::Ask(request) => {
            world.ask(request);
        }
        Op::Signal(signal) => world.signal(signal),
        Op::Deliver(n) if !world.pending.is_empty() => {
            let n = n % world.pending.len();
            if let Some(event) = world.pending.remove(n) {
                world.handle(event);
            }
        }
        Op::DeliverAll => world.settle(),
        Op::Lose(n) if !world.pending.is_empty() => {
            let n = n % world.pending.len();
            let certain = matches!(
                world.pending.get(n),
                Some(
                    Event::Exited { .. }
                        | Event::Opened { .. }
                        | Event::Bound { .. }
                        | Event::SpawnFailed { .. }
                        | Event::NotMigrating { .. }
                        | Event::Replaced { .. }
                )
            );
            if !certain {
                world.pending.remove(n);
            }
        }
        Op::Deliver(_) | Op::Lose(_) => {}
        Op::Kill(n) => {
            if let Some(worker) = nth_worker(world, n) {
                world.kill(worker.0);
            }
        }
        Op::Close(n) => {
            if let Some(worker) = nth_worker(world, n) {
                world.handle(Event::Closed { worker });
            }
        }
        Op::Break(n) => {
            if let Some(worker) = nth_worker(world, n) {
                world.handle(Event::Broken { worker, problem: "nonsense".into() });
            }
        }
        Op::Lie(n, lie, generation) => {
            if let Some(worker) = nth_worker(world, n) {
                tell_lie(world, worker, lie, generation);
            }
        }
        Op::Pass(ms) => world.pass(Duration::from_millis(ms)),
        Op::Next(habits) => world.next.push_back(habits),
        Op::Change(n, habits) => {
            if let Some(worker) = nth_worker(world, n) {
                let protocol = world.habits(worker.0).protocol;
                *world.habits(worker.0) = Habits { protocol, ..habits };
            }
        }
        Op::Config(bits) => {
            let all = ["a", "b", "c", "d"];
            world.config = all
                .into_iter()
                .enumerate()
                .filter(|(bit, key)| *key == "a" || bits & (1 << bit) != 0)
                .map(|(_, key)| key)
                .collect();
        }
        Op::Trouble(bits) => {
            let trouble = |bit: u8| (bits & (1 << bit) != 0).then(|| format!("trouble {bit}"));
            world.config_error = trouble(0);
            world.bind_error = trouble(1);
            world.open_error = trouble(2);
            world.check_error = trouble(3);
            world.spawn_error = trouble(4);
            world.replace_error = trouble(6);
            world.pair_error = trouble(7);
            world.check_hangs = bits & 32 != 0;
            world.build = u64::from(bits);
        }
    }
}

/// The world turns kind: whoever lives behaves, whatever is tried works.
fn make_peace(world: &mut World) {
    world.next.clear();
    for process in world.processes.values_mut() {
        process.habits = Habits { protocol: process.habits.protocol, ..Habits::default() };
    }
    world.config_error = None;
    world.bind_error = None;
    world.open_error = None;
    world.check_error = None;
    world.spawn_error = None;
    world.replace_error = None;
    world.pair_error = None;
    world.check_hangs = false;
}

fn run(ops: Vec<Op>) -> World {
    let mut world = World::new();
    world.handle(Event::Start);
    for op in ops {
        if world.exit.is_some() {
            break;
        }
        apply(&mut world, op);
    }
    make_peace(&mut world);
    world.pass(Duration::from_secs(300));
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_trouble_something_serves_and_everybody_was_answered(
        ops in proptest::collection::vec(op(), 0..80)
    ) {
        let world = run(ops);
        match &world.exit {
            // Only a start that never succeeded may end by itself.
            Some((code, _)) => prop_assert_eq!(*code, 1),
            None => {
                prop_assert_eq!(world.word(), "running");
                prop_assert_eq!(world.phase(), None);
                prop_assert!(world.serving_id().is_some());
                prop_assert_eq!(world.processes.len(), 1, "somebody was forgotten");
                prop_assert!(world.state.is_quiet());
            }
        }
        world.check_quiet();
    }

    #[test]
    fn a_stop_always_ends_the_process(
        ops in proptest::collection::vec(op_or_stop(), 0..60)
    ) {
        let mut world = run(ops);
        if world.exit.is_none() {
            world.signal(Signal::Terminate);
            world.pass(Duration::from_secs(30));
        }
        prop_assert!(world.exit.is_some());
        world.check_quiet();
    }
}
