#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one action")]

use std::sync::Arc;
use std::time::Duration;

use baton_handoff::message::{Drain, Generation, ListenerKey, Standing, WorkerId};

use super::super::{Adoptee, Adoption, Settings, State, heir};
use crate::action::{Action, Kind, Notify, Order};
use baton_handoff::version::Version;

use crate::event::{Binary, BinaryId, ConfigText, Event, Exit, Millis, Request};
use crate::program::BuildId;

const DRAIN: Order = Order::Drain(Drain { timeout_ms: 10_000 });

fn binary(id: u32) -> Binary {
    Binary { id: BinaryId(id), build: BuildId::fake(id.into()), path: "/usr/bin/baton".into() }
}

fn fresh() -> State {
    let settings = Settings {
        version: "1.0.0".into(),
        ready_timeout: Duration::from_secs(30),
        watch: Duration::from_secs(10),
        migrate: Duration::ZERO,
        drain_timeout: Duration::from_secs(10),
        replaces: true,
    };
    let config = Arc::new(ConfigText { name: "a.json".into(), text: b"new".to_vec() });
    State::new(settings, binary(0), config)
}

fn adoptee(worker: u32, generation: u64, standing: Standing) -> Adoptee {
    let (worker, generation) = (WorkerId(worker), Generation(generation));
    let (protocol, version) = (Version(2), "0.9.0".into());
    let pid = 100 + worker.0;
    Adoptee { worker, pid, version, protocol, lifeline: true, generation, standing }
}

fn adopt(state: &mut State, workers: Vec<Adoptee>, outdated: bool) -> Vec<Action> {
    let heir = heir(&workers).unwrap().worker;
    let config = Arc::new(ConfigText { name: "a.json".into(), text: b"old".to_vec() });
    let listeners = vec![ListenerKey("a".into())];
    let binary = binary(if outdated { 1 } else { 0 });
    let adoption = Adoption { workers, heir, config, binary, outdated, listeners };
    state.handle(Event::Adopted(adoption), Millis(0))
}

fn sent(actions: &[Action], to: u32) -> Vec<Order> {
    let order = |action: &Action| match action {
        Action::Send { worker, order } if worker.0 == to => Some(order.clone()),
        _ => None,
    };
    actions.iter().filter_map(order).collect()
}

#[test]
fn the_newest_that_serves_is_the_heir_and_else_the_newest_that_could() {
    let all = [
        adoptee(1, 9, Standing::Standby),
        adoptee(2, 3, Standing::Serving),
        adoptee(3, 4, Standing::Serving),
        adoptee(4, 9, Standing::Retiring),
    ];
    assert_eq!(heir(&all).unwrap().worker, WorkerId(3));
    assert_eq!(heir(&all[..1]).unwrap().worker, WorkerId(1));
    assert_eq!(heir(&all[3..]), None);
    assert_eq!(heir(&[]), None);
}

#[test]
fn the_heir_serves_on_and_the_configuration_is_read_anew() {
    let mut state = fresh();
    let actions = adopt(&mut state, vec![adoptee(7, 5, Standing::Serving)], false);
    assert_eq!(sent(&actions, 7), [], "nothing is asked of it");
    assert!(actions.contains(&Action::Notify(Notify::Ready)));
    assert!(actions.iter().any(|action| matches!(action, Action::ReadConfig { .. })));
    let view = state.view(Millis(0));
    assert_eq!((view.state, view.transition.unwrap().kind), ("running", "reload".into()));
    assert!(!actions.iter().any(|action| matches!(action, Action::Spawn { .. })));
}

#[test]
fn an_heir_of_another_program_is_upgraded() {
    let mut state = fresh();
    let actions = adopt(&mut state, vec![adoptee(7, 5, Standing::Serving)], true);
    assert!(actions.contains(&Action::ReleaseBinary { binary: BinaryId(0) }));
    assert!(actions.iter().any(|action| matches!(action, Action::OpenBinary { path: None, .. })));
    assert_eq!(state.view(Millis(0)).transition.unwrap().kind, "upgrade");
}

#[test]
fn one_that_stood_by_is_called_back_and_the_others_retire() {
    let mut state = fresh();
    let workers = vec![adoptee(1, 1, Standing::Retiring), adoptee(2, 2, Standing::Standby)];
    let actions = adopt(&mut state, workers, false);
    assert_eq!(sent(&actions, 2), [Order::Activate(Generation(2))]);
    assert_eq!(sent(&actions, 1), [DRAIN]);
    let mut state = fresh();
    let workers = vec![adoptee(1, 1, Standing::Serving), adoptee(2, 2, Standing::Serving)];
    let actions = adopt(&mut state, workers, false);
    assert_eq!(sent(&actions, 1), [Order::Quiesce, DRAIN]);
    assert_eq!(sent(&actions, 2), []);
}

#[test]
fn numbers_go_on_where_they_were_and_a_dead_heir_is_replaced_by_its_like() {
    let mut state = fresh();
    adopt(&mut state, vec![adoptee(7, 5, Standing::Serving)], false);
    let ticket = crate::event::Ticket(1);
    state.handle(Event::ConfigRead { ticket, result: Err("unreadable".into()) }, Millis(1));
    let exit = Exit { how: "signal: 9".into(), orderly: false };
    let exited = Event::Exited { worker: WorkerId(7), exit };
    let actions = state.handle(exited, Millis(2));
    assert!(
        actions.contains(&Action::Spawn { worker: WorkerId(8), binary: BinaryId(0) }),
        "{actions:?}"
    );
    let kind = state.view(Millis(2)).transition.map(|transition| transition.kind);
    assert_eq!(kind.as_deref(), Some(Kind::Respawn.as_str()));
    let hello = baton_handoff::message::HelloSupervisor { version: "1.0.0".into(), pid: 108 };
    let message = baton_handoff::message::ToSupervisor::Hello(hello);
    let actions = state.handle(Event::Message { worker: WorkerId(8), message }, Millis(3));
    let offered = actions.iter().find_map(|action| match action {
        Action::Prepare { generation, config, .. } => Some((*generation, config.text.clone())),
        _ => None,
    });
    assert_eq!(offered, Some((Generation(5), b"old".to_vec())), "what it served");
}

#[test]
fn an_instance_that_runs_adopts_nobody() {
    let mut state = fresh();
    adopt(&mut state, vec![adoptee(7, 5, Standing::Serving)], false);
    assert_eq!(adopt(&mut state, vec![adoptee(9, 9, Standing::Serving)], false), []);
    let id = crate::event::RequestId(0);
    let actions = state.handle(Event::Requested { id, request: Request::Stop }, Millis(1));
    assert_eq!(sent(&actions, 7), [Order::Quiesce, DRAIN]);
}
