use super::*;
use crate::message::{MAX_INLINE_BYTES, NOWHERE, Offer, Peer, Standing, WorkerId, samples};
use crate::table::PipeNumbers;
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::SocketAddrV6;

#[test]
fn there_is_a_sample_of_every_type_and_each_number_is_used_once() {
    let kinds = |names: &[(Kind, &str)]| names.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
    let samples: Vec<_> = samples::to_worker().iter().map(Message::kind).collect();
    assert_eq!(samples, kinds(to_worker::NAMES));
    let samples: Vec<_> = samples::to_supervisor().iter().map(Message::kind).collect();
    assert_eq!(samples, kinds(to_supervisor::NAMES));
    let samples: Vec<_> = samples::peer().iter().map(Message::kind).collect();
    assert_eq!(samples, kinds(peer::NAMES));
    let mut all =
        [kinds(to_worker::NAMES), kinds(to_supervisor::NAMES), kinds(peer::NAMES)].concat();
    let count = all.len();
    all.sort_by_key(|kind| kind.0);
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn the_documentation_lists_every_type() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/handoff.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `0x0")).collect();
    let known: Vec<_> =
        to_worker::NAMES.iter().chain(to_supervisor::NAMES).chain(peer::NAMES).collect();
    assert_eq!(rows.len(), known.len());
    for (row, (kind, name)) in rows.iter().zip(known) {
        assert!(row.starts_with(&format!("| `{:#06x}` | `{name}` |", kind.0)), "{row}");
    }
}

#[test]
fn every_type_belongs_to_its_direction_only() {
    for message in samples::to_worker() {
        assert!(message.kind().belongs_to(Direction::ToWorker));
        assert!(ToSupervisor::decode(message.kind(), &message.encode().unwrap()).is_none());
    }
    for message in samples::to_supervisor() {
        assert!(message.kind().belongs_to(Direction::ToSupervisor));
        assert!(ToWorker::decode(message.kind(), &message.encode().unwrap()).is_none());
    }
    for message in samples::peer() {
        assert!(message.kind().belongs_to(Direction::Peer));
        assert!(ToWorker::decode(message.kind(), &message.encode().unwrap()).is_none());
    }
}

#[test]
fn only_signs_of_life_questions_and_refusals_may_be_skipped() {
    let skipped: Vec<_> = samples::to_worker().into_iter().filter(|m| !m.mandatory()).collect();
    assert!(
        matches!(
            skipped[..],
            [ToWorker::Ping, ToWorker::Query(_), ToWorker::AdoptionSocket, ToWorker::Nak(_)]
        ),
        "{skipped:?}"
    );
    let skipped: Vec<_> = samples::to_supervisor().into_iter().filter(|m| !m.mandatory()).collect();
    assert!(
        matches!(
            skipped[..],
            [ToSupervisor::Pong(_), ToSupervisor::Answer(_), ToSupervisor::Nak(_)]
        ),
        "{skipped:?}"
    );
    let skipped: Vec<_> = samples::peer().into_iter().filter(|m| !m.mandatory()).collect();
    assert!(matches!(skipped[..], [Peer::Nak(_)]), "{skipped:?}");
}

#[test]
fn an_unknown_type_is_unknown_however_its_body_looks() {
    for body in [&b""[..], b"no fields"] {
        assert!(ToWorker::decode(Kind(0x0142), body).is_none());
        assert!(ToSupervisor::decode(Kind(0x0242), body).is_none());
    }
}

#[test]
fn a_plan_with_the_same_key_twice_or_too_many_is_refused() {
    let plan = |listeners| {
        ToSupervisor::Plan(Plan { generation: Generation(1), listeners, unchanged: false })
    };
    let wanted = |key: usize| ListenerWanted {
        key: ListenerKey(key.to_string()),
        role: ListenerRole::Rule,
        rule: String::new(),
        address: SocketAddr::from(([127, 0, 0, 1], 80)),
        dual_stack: false,
    };
    let refusal = |listeners| {
        let plan = plan(listeners);
        let decoded = ToSupervisor::decode(plan.kind(), &plan.encode().unwrap()).unwrap();
        decoded.unwrap_err().to_string()
    };
    let twice = vec![wanted(1), wanted(2), wanted(1)];
    assert_eq!(refusal(twice), "two listeners have the same key");
    let many = (0..=MAX_LISTENERS).map(wanted).collect();
    assert_eq!(refusal(many), "more listeners than any configuration has");
}

#[test]
fn a_question_or_answer_beyond_its_bound_is_neither_written_nor_read() {
    let query = |length| ToWorker::Query(Query { id: 1, text: "x".repeat(length) });
    let most = query(QUERY_MAX);
    let body = most.encode().unwrap();
    assert_eq!(ToWorker::decode(most.kind(), &body).unwrap().unwrap(), most);
    assert!(query(QUERY_MAX + 1).encode().is_err());
    let mut out = Writer::default();
    out.field(1, 1u64).unwrap();
    out.field(2, "x".repeat(QUERY_MAX + 1)).unwrap();
    assert!(ToWorker::decode(most.kind(), &out.finish()).unwrap().is_err());
    let answer = ToSupervisor::Answer(Answer { id: 1, text: "x".repeat(ANSWER_MAX + 1) });
    assert!(answer.encode().is_err());
}

#[test]
fn the_scope_of_a_link_local_address_travels() {
    let address = SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, 3).into();
    let key = ListenerKey("[fe80::1%3]:80".into());
    let wanted = ListenerWanted {
        key,
        role: ListenerRole::Rule,
        rule: "r".into(),
        address,
        dual_stack: false,
    };
    let again = ListenerWanted::from(WantedOnTheWire::from(&wanted));
    assert_eq!(again, wanted);
}

#[test]
fn an_offer_beyond_its_bounds_is_refused() {
    let Peer::Offer(sample) = samples::peer().remove(1) else { panic!("the second is an offer") };
    let refusal = |connections| {
        let offer = Peer::Offer(Offer { connections });
        let decoded = Peer::decode(offer.kind(), &offer.encode().unwrap()).unwrap();
        decoded.unwrap_err().to_string()
    };
    let one = &sample.connections[0];
    assert_eq!(refusal(vec![one.clone(); 65]), "more connections than one offer may have");
    let mut piped = one.clone();
    piped.record.to_client.pipe = Some(PipeNumbers { read: NOWHERE, write: NOWHERE });
    assert_eq!(refusal(vec![piped; 51]), "more descriptors than one offer may have");
    let mut long = one.clone();
    long.inline[1] = vec![0; MAX_INLINE_BYTES + 1];
    assert_eq!(refusal(vec![long]), "more bytes than may travel inside an offer");
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..20).prop_map(String::from_iter)
}

fn wanted() -> impl Strategy<Value = ListenerWanted> {
    (text(), text(), any::<SocketAddr>(), any::<bool>(), any::<bool>()).prop_map(
        |(key, rule, mut address, admin, dual_stack)| {
            if let SocketAddr::V6(address) = &mut address {
                address.set_flowinfo(0);
            }
            ListenerWanted {
                key: ListenerKey(key),
                role: if admin { ListenerRole::Admin } else { ListenerRole::Rule },
                rule,
                address,
                dual_stack,
            }
        },
    )
}

fn any_to_worker() -> impl Strategy<Value = ToWorker> {
    let generation = || any::<u64>().prop_map(Generation);
    prop_oneof![
        (any::<u32>(), text()).prop_map(|(worker, version)| {
            ToWorker::Hello(HelloWorker { worker: WorkerId(worker), version })
        }),
        (generation(), text(), vec(any::<u8>(), 0..300)).prop_map(
            |(generation, source, config)| {
                ToWorker::Prepare(Prepare { generation, source, config })
            }
        ),
        (generation(), vec(text().prop_map(ListenerKey), 0..9), any::<bool>()).prop_map(
            |(generation, keys, last)| ToWorker::Listeners(Listeners { generation, keys, last })
        ),
        generation().prop_map(ToWorker::Activate),
        generation().prop_map(ToWorker::Abort),
        any::<u64>().prop_map(|timeout_ms| ToWorker::Drain(Drain { timeout_ms })),
        (any::<u64>(), text()).prop_map(|(id, text)| ToWorker::Query(Query { id, text })),
        (any::<u16>(), text()).prop_map(|(kind, reason)| ToWorker::Nak(Nak { kind, reason })),
    ]
}

fn any_to_supervisor() -> impl Strategy<Value = ToSupervisor> {
    let generation = || any::<u64>().prop_map(Generation);
    prop_oneof![
        (text(), any::<u32>())
            .prop_map(|(version, pid)| { ToSupervisor::Hello(HelloSupervisor { version, pid }) }),
        (generation(), vec(wanted(), 0..6), any::<bool>()).prop_map(
            |(generation, mut listeners, unchanged)| {
                listeners.sort_by(|a, b| a.key.cmp(&b.key));
                listeners.dedup_by(|a, b| a.key == b.key);
                ToSupervisor::Plan(Plan { generation, listeners, unchanged })
            }
        ),
        (generation(), vec(text(), 0..9)).prop_map(|(generation, problems)| {
            ToSupervisor::Refused(Refused { generation, problems })
        }),
        generation().prop_map(ToSupervisor::Ready),
        generation().prop_map(ToSupervisor::Active),
        any::<u64>().prop_map(|cut| ToSupervisor::Drained { cut }),
        (generation(), any::<u64>(), any::<u32>()).prop_map(
            |(generation, connections, retired_generations)| {
                ToSupervisor::Pong(Pulse { generation, connections, retired_generations })
            }
        ),
        (any::<u64>(), text()).prop_map(|(id, text)| ToSupervisor::Answer(Answer { id, text })),
        (generation(), text(), vec(any::<u8>(), 0..300)).prop_map(
            |(generation, source, config)| {
                let standing = Standing::Serving;
                ToSupervisor::Adopted(Adopted { standing, generation, source, config })
            }
        ),
        (vec(wanted(), 0..6), any::<bool>()).prop_map(|(mut listeners, last)| {
            listeners.sort_by(|a, b| a.key.cmp(&b.key));
            listeners.dedup_by(|a, b| a.key == b.key);
            ToSupervisor::Returned(Returned { listeners, last })
        }),
        (any::<u16>(), text()).prop_map(|(kind, reason)| ToSupervisor::Nak(Nak { kind, reason })),
    ]
}

proptest! {
    #[test]
    fn messages_to_the_worker_survive_the_way(message in any_to_worker()) {
        let body = message.encode().unwrap();
        prop_assert_eq!(ToWorker::decode(message.kind(), &body).unwrap().unwrap(), message);
    }

    #[test]
    fn messages_to_the_supervisor_survive_the_way(message in any_to_supervisor()) {
        let body = message.encode().unwrap();
        prop_assert_eq!(ToSupervisor::decode(message.kind(), &body).unwrap().unwrap(), message);
    }

    #[test]
    fn a_damaged_message_is_refused_or_still_a_message(
        message in any_to_supervisor(),
        damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = message.encode().unwrap();
        for (at, value) in damage {
            *at.get_mut(&mut body) = value;
        }
        let bytes = [&message.kind().0.to_le_bytes()[..], &body].concat();
        crate::fuzz::body(&bytes);
    }

    #[test]
    fn arbitrary_bodies_never_panic(number in 0u16..24, high in 1u16..4, body: Vec<u8>) {
        let kind = (high << 8 | number).to_le_bytes();
        crate::fuzz::body(&[&kind[..], &body].concat());
    }
}
