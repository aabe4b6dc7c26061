//! One message of every type, with values that golden files can be read by eye.

use std::time::Duration;

use super::*;
use crate::table::{Busy, Endpoint, Identity, RuleKey, TargetKey, Track};

pub(crate) fn to_worker() -> Vec<ToWorker> {
    let generation = Generation(5);
    vec![
        ToWorker::Hello(HelloWorker { worker: WorkerId(3), version: "0.1.0".into() }),
        ToWorker::Prepare(Prepare {
            generation,
            source: "/etc/baton/setting.json".into(),
            config: br#"{"rules":[]}"#.to_vec(),
        }),
        ToWorker::Listeners(Listeners {
            generation,
            keys: vec![ListenerKey("127.0.0.1:8080".into()), ListenerKey("[::1]:8080".into())],
            last: true,
        }),
        ToWorker::Activate(generation),
        ToWorker::Abort(generation),
        ToWorker::Quiesce,
        ToWorker::Drain(Drain { timeout_ms: 10_000 }),
        ToWorker::Ping,
        ToWorker::Query(Query { id: 7, text: r#"{"ask":"status"}"#.into() }),
        ToWorker::AdoptionSocket,
        ToWorker::Adopt,
        ToWorker::Migrate(Migrate { side: Side::Give, other: WorkerId(4), timeout_ms: 60_000 }),
        ToWorker::Recover(Recover {
            dead: vec![
                Dead { worker: WorkerId(3), since_ms: 20 },
                Dead { worker: WorkerId(2), since_ms: 700 },
            ],
        }),
        ToWorker::Nak(nak()),
    ]
}

pub(crate) fn to_supervisor() -> Vec<ToSupervisor> {
    let generation = Generation(5);
    let wanted = |role, rule: &str, address: &str, dual_stack| ListenerWanted {
        key: ListenerKey(address.into()),
        role,
        rule: rule.into(),
        address: address.parse().unwrap(),
        dual_stack,
    };
    vec![
        ToSupervisor::Hello(HelloSupervisor { version: "0.1.0".into(), pid: 4711 }),
        ToSupervisor::Plan(Plan {
            generation,
            listeners: vec![
                wanted(ListenerRole::Rule, "web", "[::]:80", true),
                wanted(ListenerRole::Admin, "metrics", "127.0.0.1:9090", false),
            ],
            unchanged: false,
        }),
        ToSupervisor::Refused(Refused {
            generation,
            problems: vec!["setting.json:3:7: rules[0].mode: unknown mode".into()],
        }),
        ToSupervisor::Ready(generation),
        ToSupervisor::Active(generation),
        ToSupervisor::Quiesced,
        ToSupervisor::Drained { cut: 2 },
        ToSupervisor::Pong(Pulse { generation, connections: 70_000, retired_generations: 1 }),
        ToSupervisor::Answer(Answer { id: 7, text: r#"{"rules":[]}"#.into() }),
        ToSupervisor::Adopted(Adopted {
            standing: Standing::Standby,
            generation,
            source: "/etc/baton/setting.json".into(),
            config: br#"{"rules":[]}"#.to_vec(),
        }),
        ToSupervisor::Returned(Returned {
            listeners: vec![wanted(ListenerRole::Rule, "web", "[::]:80", true)],
            last: true,
        }),
        ToSupervisor::Lifeline,
        ToSupervisor::Migrated(Migrated {
            moved: 9874,
            waiting: 3,
            kept: 1,
            longest_pause_us: 12_345,
            over: true,
        }),
        ToSupervisor::Recovered(Recovered { resumed: 2000, lost: 2, failures: 1 }),
        ToSupervisor::Nak(nak()),
    ]
}

pub(crate) fn peer() -> Vec<Peer> {
    let nowhere = |cookie| Endpoint { number: NOWHERE, cookie };
    let identity = Identity {
        client: nowhere(0x1001),
        upstream: nowhere(0x1002),
        rule: RuleKey(0x2001),
        target: TargetKey(0x2002),
        target_index: 3,
        generation: 5,
        opened_at: 1_000_000_007,
        peer: "192.0.2.1:40000".parse().unwrap(),
        idle: Some(Duration::from_secs(300)),
        adoptions: 1,
        adopted_at: 1_000_000_009,
    };
    let track = Track {
        busy: Busy::No,
        splices: true,
        eof_seen: true,
        fin_sent: false,
        pipe: None,
        total: 4711,
    };
    let inline = [b"up".to_vec(), b"down".to_vec()];
    let offered = Offered::new(&identity, [track; 2], Duration::from_millis(250), inline);
    vec![
        Peer::Hello(HelloPeer { version: "0.1.0".into() }),
        Peer::Offer(Offer { connections: vec![offered] }),
        Peer::Answer(OfferAnswer { accepted: vec![true, false] }),
        Peer::Commit,
        Peer::Withdraw,
        Peer::Over,
        Peer::Nak(nak()),
    ]
}

fn nak() -> Nak {
    Nak { kind: 0x0142, reason: "type 0x0142 is mandatory and unknown here".into() }
}
