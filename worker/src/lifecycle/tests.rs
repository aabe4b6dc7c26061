#![allow(clippy::wildcard_enum_match_arm)]

use baton_handoff::message::{ListenerRole, ListenerWanted, Plan, Standing};
use proptest::prelude::*;

use super::*;

const G1: Generation = Generation(1);
const G2: Generation = Generation(2);
const START: Moment = Moment(1_000_000_000);

fn at(seconds: u64) -> Moment {
    START.after(Duration::from_secs(seconds))
}

fn prepare(generation: Generation) -> Event {
    Event::Prepare { prepare: config(generation), retired: 0 }
}

fn config(generation: Generation) -> Prepare {
    Prepare { generation, source: "f".to_owned(), config: b"{}".to_vec() }
}

fn key(text: &str) -> ListenerKey {
    ListenerKey(text.to_owned())
}

fn plan(generation: Generation, keys: &[&str]) -> Plan {
    let listeners = keys
        .iter()
        .map(|text| ListenerWanted {
            key: key(text),
            role: ListenerRole::Rule,
            rule: "r".to_owned(),
            address: ([127, 0, 0, 1], 1).into(),
            dual_stack: false,
        })
        .collect();
    Plan { generation, listeners, unchanged: false }
}

fn good(generation: Generation, keys: &[&str], held: &[&str]) -> Event {
    let held = held.iter().map(|text| key(text)).collect();
    Event::Compiled(generation, Compiled::Good { plan: plan(generation, keys), held })
}

fn listeners(generation: Generation, keys: &[&str], last: bool) -> Event {
    Event::Listeners { generation, keys: keys.iter().map(|text| key(text)).collect(), last }
}

fn problem(actions: &[Action]) -> String {
    actions
        .iter()
        .find_map(|action| match action {
            Action::Send(ToSupervisor::Refused(Refused { problems, .. })) => {
                Some(problems.join("\n"))
            }
            _ => None,
        })
        .expect("a refusal")
}

fn serving() -> Lifecycle {
    let mut machine = Lifecycle::new();
    machine.on(Event::Hello, START);
    machine.on(prepare(G1), START);
    machine.on(good(G1, &["a"], &[]), START);
    machine.on(listeners(G1, &["a"], true), START);
    machine.on(Event::Activate(G1), START);
    assert_eq!(machine.phase(), Phase::Serving(G1));
    machine
}

#[test]
fn a_fresh_worker_is_led_from_hello_to_active() {
    let mut machine = Lifecycle::new();
    assert_eq!(machine.on(Event::Hello, START), [Action::Greet]);
    assert_eq!(machine.on(prepare(G1), START), [Action::Compile(config(G1))]);
    let wanted = plan(G1, &["a", "b"]);
    assert_eq!(
        machine.on(good(G1, &["a", "b"], &[]), START),
        [Action::Send(ToSupervisor::Plan(wanted))]
    );
    assert_eq!(machine.on(listeners(G1, &["a"], false), START), [Action::TakeListeners]);
    assert_eq!(
        machine.on(listeners(G1, &["b"], true), START),
        [
            Action::TakeListeners,
            Action::Build(G1),
            Action::Lifeline,
            Action::Send(ToSupervisor::Ready(G1))
        ]
    );
    assert_eq!(
        machine.on(Event::Activate(G1), START),
        [Action::Serve(G1), Action::Send(ToSupervisor::Active(G1))]
    );
}

#[test]
fn a_socket_that_was_not_handed_over_refuses_the_generation() {
    let mut machine = Lifecycle::new();
    machine.on(Event::Hello, START);
    machine.on(prepare(G1), START);
    machine.on(good(G1, &["a", "b"], &[]), START);
    let actions = machine.on(listeners(G1, &["a"], true), START);
    assert_eq!(problem(&actions), "no socket was handed over for b");
    assert!(actions.contains(&Action::DropPending));
    assert_eq!(problem(&machine.on(Event::Activate(G1), START)), "this generation is not ready");
}

#[test]
fn a_reload_needs_no_second_copy_of_a_socket_it_holds() {
    let mut machine = serving();
    machine.on(prepare(G2), START);
    machine.on(good(G2, &["a", "b"], &["a"]), START);
    let actions = machine.on(listeners(G2, &["b"], true), START);
    assert_eq!(actions.last(), Some(&Action::Send(ToSupervisor::Ready(G2))));
}

#[test]
fn an_unready_generation_is_never_served() {
    let mut machine = serving();
    machine.on(prepare(G2), START);
    let actions = machine.on(Event::Activate(G2), START);
    assert_eq!(problem(&actions), "this generation is not ready");
    assert_eq!(machine.phase(), Phase::Serving(G1));
}

#[test]
fn a_refused_or_aborted_reload_leaves_the_serving_generation_alone() {
    let mut machine = serving();
    machine.on(prepare(G2), START);
    let actions =
        machine.on(Event::Compiled(G2, Compiled::Bad(vec!["x".to_owned(), "y".to_owned()])), START);
    assert_eq!(problem(&actions), "x\ny");
    machine.on(prepare(G2), START);
    machine.on(good(G2, &["a"], &["a"]), START);
    assert_eq!(machine.on(Event::Abort(G2), START), [Action::DropPending]);
    assert_eq!(machine.phase(), Phase::Serving(G1));
}

#[test]
fn a_compilation_that_was_aborted_is_not_answered() {
    let mut machine = serving();
    machine.on(prepare(G2), START);
    machine.on(Event::Abort(G2), START);
    assert!(machine.on(good(G2, &["a"], &["a"]), START).is_empty());
}

#[test]
fn an_equal_configuration_is_answered_and_forgotten() {
    let mut machine = serving();
    machine.on(prepare(G2), START);
    let answer = Plan { unchanged: true, ..plan(G2, &["a"]) };
    assert_eq!(
        machine.on(Event::Compiled(G2, Compiled::Unchanged(answer.clone())), START),
        [Action::DropPending, Action::Send(ToSupervisor::Plan(answer))]
    );
    assert_eq!(problem(&machine.on(Event::Activate(G2), START)), "this generation is not ready");
}

#[test]
fn a_ninth_draining_generation_is_refused() {
    let mut machine = serving();
    let actions = machine.on(Event::Prepare { prepare: config(G2), retired: MAX_RETIRED }, START);
    assert_eq!(problem(&actions), "reload refused: 8 generations are still draining");
    let actions =
        machine.on(Event::Prepare { prepare: config(G2), retired: MAX_RETIRED - 1 }, START);
    assert_eq!(actions, [Action::Compile(config(G2))]);
}

#[test]
fn a_quiesced_worker_can_be_taken_up_again() {
    let mut machine = serving();
    assert_eq!(
        machine.on(Event::Quiesce, START),
        [Action::StopAccepting, Action::Send(ToSupervisor::Quiesced)]
    );
    assert_eq!(
        machine.on(Event::Activate(G1), START),
        [Action::Resume(G1), Action::Send(ToSupervisor::Active(G1))]
    );
    assert_eq!(machine.phase(), Phase::Serving(G1));
}

#[test]
fn a_failed_switch_falls_back_to_what_served_before() {
    let mut machine = serving();
    machine.on(prepare(G2), START);
    machine.on(good(G2, &["a"], &["a"]), START);
    machine.on(listeners(G2, &[], true), START);
    machine.on(Event::Activate(G2), START);
    let actions = machine.on(Event::ServiceFailed(G2, "no memory".to_owned()), START);
    assert_eq!(problem(&actions), "no memory");
    assert_eq!(machine.phase(), Phase::Serving(G1));
}

#[test]
fn a_drain_waits_for_connections_and_then_exits() {
    let mut machine = serving();
    let drain = Event::Drain(Drain { timeout_ms: 10_000 });
    assert_eq!(
        machine.on(drain, START),
        [Action::StopAccepting, Action::CloseListeners, Action::WatchEmpty]
    );
    assert_eq!(machine.deadline(), Some(at(10)));
    assert_eq!(machine.on(Event::Tick, at(9)), [Action::Pulse]);
    assert_eq!(
        machine.on(Event::Empty, at(9)),
        [Action::Send(ToSupervisor::Drained { cut: 0 }), Action::Exit(0)]
    );
}

#[test]
fn the_drain_limit_cuts_and_the_count_is_reported() {
    let mut machine = serving();
    machine.on(Event::Drain(Drain { timeout_ms: 10_000 }), START);
    assert_eq!(machine.on(Event::Tick, at(10)), [Action::Cut]);
    machine.record_cut(7);
    assert_eq!(
        machine.on(Event::Empty, at(10)),
        [Action::Send(ToSupervisor::Drained { cut: 7 }), Action::Exit(0)]
    );
}

#[test]
fn a_second_drain_may_cut_at_once_and_never_waits_longer() {
    let mut machine = serving();
    machine.on(Event::Drain(Drain { timeout_ms: 10_000 }), START);
    machine.on(Event::Drain(Drain { timeout_ms: 60_000 }), at(1));
    assert_eq!(machine.deadline(), Some(at(10)));
    assert_eq!(machine.on(Event::Drain(Drain { timeout_ms: 0 }), at(2)), [Action::Cut]);
    assert!(machine.on(Event::Drain(Drain { timeout_ms: 0 }), at(3)).is_empty());
}

#[test]
fn an_orphan_serves_on_and_drains_after_its_grace() {
    let mut machine = serving();
    machine.set_orphan_drain(Duration::from_secs(20));
    machine.on(Event::ControlLost, START);
    assert_eq!(machine.phase(), Phase::Serving(G1));
    assert!(machine.on(Event::Tick, at(299)).is_empty());
    assert_eq!(
        machine.on(Event::Tick, at(300)),
        [Action::StopAccepting, Action::CloseListeners, Action::WatchEmpty]
    );
    assert_eq!(machine.deadline(), Some(at(320)));
}

fn orphan() -> Lifecycle {
    let mut machine = serving();
    machine.on(Event::ControlLost, START);
    machine
}

#[test]
fn an_orphan_is_adopted_and_has_no_deadline_any_more() {
    let mut machine = orphan();
    assert!(machine.on(Event::Called, at(10)).is_empty());
    assert_eq!(machine.on(Event::Hello, at(10)), [Action::Greet]);
    let actions = machine.on(Event::Adopt, at(10));
    assert_eq!(actions[..2], [Action::Account(Standing::Serving), Action::RenewLifeline]);
    assert_eq!(machine.deadline(), None);
    assert_eq!(machine.on(Event::Tick, at(400)), [Action::Pulse]);
    assert_eq!(machine.phase(), Phase::Serving(G1));
    // It may be orphaned again, with a whole grace.
    machine.on(Event::ControlLost, at(400));
    assert_eq!(machine.deadline(), Some(at(700)));
}

#[test]
fn an_orphan_tells_what_it_is() {
    let mut machine = serving();
    machine.on(Event::Quiesce, START);
    machine.on(Event::ControlLost, START);
    machine.on(Event::Called, START);
    assert_eq!(machine.on(Event::Adopt, START)[0], Action::Account(Standing::Standby));
    machine.on(Event::Drain(Drain { timeout_ms: 60_000 }), START);
    machine.on(Event::ControlLost, START);
    machine.on(Event::Called, START);
    assert_eq!(machine.on(Event::Adopt, START)[0], Action::Account(Standing::Retiring));
}

#[test]
fn a_guest_that_says_nothing_or_hangs_up_changes_nothing() {
    let mut machine = orphan();
    machine.on(Event::Called, at(10));
    assert_eq!(machine.deadline(), Some(at(15)));
    assert!(machine.on(Event::Tick, at(14)).is_empty());
    assert_eq!(machine.on(Event::Tick, at(15)), [Action::HangUp]);
    machine.on(Event::Called, at(20));
    assert!(machine.on(Event::ControlLost, at(21)).is_empty());
    assert_eq!(machine.deadline(), Some(at(300)), "the grace is what it was");
    assert_eq!(machine.phase(), Phase::Serving(G1));
}

#[test]
fn a_guest_that_cannot_be_talked_to_gets_the_listeners_by_our_going() {
    let mut machine = orphan();
    machine.set_orphan_drain(Duration::from_secs(20));
    machine.on(Event::Called, at(10));
    let actions = machine.on(Event::Stranger("no common protocol".to_owned()), at(10));
    assert_eq!(
        actions[1..],
        [Action::StopAccepting, Action::CloseListeners, Action::WatchEmpty, Action::HangUp]
    );
    assert_eq!(machine.deadline(), Some(at(30)));
}

#[test]
fn a_worker_with_a_supervisor_is_not_adopted() {
    let mut machine = serving();
    assert!(matches!(machine.on(Event::Adopt, START)[..], [Action::Warn(_)]));
    assert!(matches!(machine.on(Event::Hello, START)[..], [Action::Warn(_)]));
}

#[test]
fn a_worker_that_never_served_ends_with_its_supervisor() {
    let mut machine = Lifecycle::new();
    machine.on(Event::Hello, START);
    assert_eq!(machine.on(Event::ControlLost, START), [Action::Exit(1)]);
    assert!(machine.on(prepare(G1), START).is_empty());
}

#[test]
fn a_broken_worker_leaves_at_once_and_says_so() {
    let mut machine = serving();
    assert_eq!(machine.on(Event::Broken, START), [Action::Exit(1)]);
    assert_eq!(machine.phase(), Phase::Done);
}

#[test]
fn a_draining_worker_takes_no_new_configuration() {
    let mut machine = serving();
    machine.on(Event::Drain(Drain { timeout_ms: 10_000 }), START);
    assert_eq!(problem(&machine.on(prepare(G2), START)), "the worker is draining");
    assert_eq!(problem(&machine.on(Event::Activate(G1), START)), "this generation is not ready");
}

fn any_event() -> impl Strategy<Value = Event> {
    let generation = prop_oneof![Just(G1), Just(G2)];
    prop_oneof![
        Just(Event::Hello),
        (generation.clone(), 0..10u32)
            .prop_map(|(g, retired)| Event::Prepare { prepare: config(g), retired }),
        generation.clone().prop_map(|g| good(g, &["a", "b"], &["a"])),
        generation.clone().prop_map(|g| Event::Compiled(g, Compiled::Unchanged(plan(g, &["a"])))),
        generation.clone().prop_map(|g| Event::Compiled(g, Compiled::Bad(vec!["x".to_owned()]))),
        (generation.clone(), any::<bool>()).prop_map(|(g, last)| listeners(g, &["b"], last)),
        generation.clone().prop_map(Event::Activate),
        generation.clone().prop_map(Event::Abort),
        Just(Event::Quiesce),
        (0..3u64).prop_map(|s| Event::Drain(Drain { timeout_ms: s * 1000 })),
        Just(Event::Ping),
        Just(Event::Tick),
        Just(Event::ControlLost),
        Just(Event::Called),
        Just(Event::Adopt),
        Just(Event::Stranger("no common protocol".to_owned())),
        Just(Event::Empty),
        generation.prop_map(|g| Event::ServiceFailed(g, "x".to_owned())),
        Just(Event::Terminate),
        Just(Event::Broken),
    ]
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_the_promises(events in prop::collection::vec(any_event(), 0..60)) {
        let mut machine = Lifecycle::new();
        let mut ready: Option<Generation> = None;
        let mut retiring = false;
        let mut exited = false;
        for (second, event) in (0u64..).zip(events) {
            let failed = matches!(event, Event::ServiceFailed(..));
            for action in machine.on(event, at(second)) {
                prop_assert!(!exited, "nothing follows the exit");
                match action {
                    Action::Send(ToSupervisor::Ready(generation)) => ready = Some(generation),
                    Action::Serve(generation) => {
                        prop_assert_eq!(ready.take(), Some(generation), "served only when ready");
                        prop_assert!(!retiring, "retiring is one way");
                    }
                    Action::Resume(_) => prop_assert!(!retiring, "retiring is one way"),
                    Action::WatchEmpty | Action::Cut => retiring = true,
                    Action::Exit(_) => exited = true,
                    _ => {}
                }
            }
            if failed {
                // The driver reports this only right after `Serve` or `Resume`.
                continue;
            }
            if machine.phase() == Phase::Done {
                prop_assert!(exited);
            }
        }
    }
}
