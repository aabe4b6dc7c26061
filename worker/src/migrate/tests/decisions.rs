//! What may go on, and what must not.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use baton_handoff::table::{
    Busy, Damage, Endpoint, Entry, Identity, PipeNumbers, Record, RuleKey, State, TargetKey, Track,
};
use proptest::prelude::*;

use crate::flow::Moment;
use crate::migrate::{Grounds, Loss, Offers, POISON_AGE, Plan, SideFacts, judge, plan};
use crate::net::TcpState;

const DIED: Moment = Moment(100_000_000_000);

fn track() -> Track {
    Track { busy: Busy::No, splices: false, eof_seen: false, fin_sent: false, pipe: None, total: 0 }
}

/// The connection of sockets 10n and 10n + 1, with cookies of 1000 more.
fn record(n: i32) -> Record {
    let end = |number: i32| Endpoint { number, cookie: cookie(number) };
    Record {
        state: State::Open,
        identity: Identity {
            client: end(10 * n),
            upstream: end(10 * n + 1),
            rule: RuleKey(1),
            target: TargetKey(2),
            target_index: 0,
            generation: 1,
            opened_at: 1,
            peer: "127.0.0.1:1".parse().unwrap(),
            idle: None,
            adoptions: 0,
            adopted_at: 0,
        },
        to_upstream: track(),
        to_client: track(),
        attempts: 0,
        attempted_at_ms: 0,
    }
}

fn cookie(number: i32) -> u64 {
    u64::try_from(number).unwrap() + 1000
}

fn facts(record: &Record, state: TcpState) -> (SideFacts, SideFacts) {
    let side = |cookie| SideFacts { cookie, state, error_pending: false };
    (side(record.identity.client.cookie), side(record.identity.upstream.cookie))
}

/// The verdict on a connection whose client side is as given and whose upstream is well.
fn client_side(record: &Record, state: TcpState, error_pending: bool) -> Result<(), Loss> {
    let (client, mut upstream) = facts(record, state);
    upstream.state = match (record.to_client.eof_seen, record.to_upstream.eof_seen) {
        (false, false) => TcpState::Established,
        (true, false) => TcpState::CloseWait,
        (false, true) => TcpState::FinSent,
        (true, true) => TcpState::Closing,
    };
    judge(record, &SideFacts { error_pending, ..client }, &upstream)
}

#[test]
fn an_open_connection_with_its_own_sockets_goes_on() {
    assert_eq!(client_side(&record(1), TcpState::Established, false), Ok(()));
    assert_eq!(client_side(&record(1), TcpState::CloseWait, false), Ok(()));
    assert_eq!(client_side(&record(1), TcpState::Established, true), Ok(()), "it will be told");
}

#[test]
fn another_socket_under_the_same_number_is_not_taken() {
    let record = record(1);
    let (mut client, upstream) = facts(&record, TcpState::Established);
    client.cookie += 1;
    assert_eq!(judge(&record, &client, &upstream), Err(Loss::Gone));
}

#[test]
fn bytes_in_memory_end_a_connection_whatever_its_sockets_say() {
    let mut record = record(1);
    record.to_client.busy = Busy::Memory;
    assert_eq!(client_side(&record, TcpState::Established, false), Err(Loss::InFlight));
}

#[test]
fn a_half_closed_connection_goes_on() {
    let mut record = record(1);
    record.to_upstream.eof_seen = true;
    assert_eq!(client_side(&record, TcpState::CloseWait, false), Ok(()));
    record.to_upstream.fin_sent = true;
    assert_eq!(client_side(&record, TcpState::CloseWait, false), Ok(()));
    assert_eq!(
        client_side(&record, TcpState::Established, false),
        Err(Loss::Contradiction),
        "the FIN that was read is not there"
    );
}

#[test]
fn a_fin_that_was_sent_but_not_noted_is_no_contradiction() {
    let mut record = record(1);
    record.to_client.eof_seen = true;
    assert_eq!(client_side(&record, TcpState::FinSent, false), Ok(()));
    record.to_client.eof_seen = false;
    assert_eq!(client_side(&record, TcpState::FinSent, false), Err(Loss::Contradiction));
}

#[test]
fn a_reset_that_nobody_has_seen_goes_on_to_be_seen() {
    assert_eq!(client_side(&record(1), TcpState::Closed, true), Ok(()));
}

#[test]
fn a_reset_that_somebody_saw_before_it_died_is_not_taken_for_an_end() {
    let mut one = record(1);
    assert_eq!(client_side(&one, TcpState::Closed, false), Err(Loss::Contradiction));
    // We had sent our FIN, so it may be an orderly end: unless a call was under way.
    one.to_client.eof_seen = true;
    one.to_client.fin_sent = true;
    assert_eq!(client_side(&one, TcpState::Closed, false), Ok(()));
    one.to_upstream.busy = Busy::Kernel;
    assert_eq!(client_side(&one, TcpState::Closed, false), Err(Loss::Contradiction));
}

#[test]
fn what_is_not_a_connection_is_a_contradiction() {
    for state in [TcpState::Connecting, TcpState::Listening, TcpState::Unknown(13)] {
        assert_eq!(client_side(&record(1), state, false), Err(Loss::Contradiction));
    }
}

fn entry(slot: u32, record: Record) -> Entry {
    Entry { slot, found: Ok(record) }
}

fn held(numbers: impl IntoIterator<Item = i32>) -> HashMap<i32, u64> {
    numbers.into_iter().map(|number| (number, cookie(number))).collect()
}

fn decide(entries: &[Entry], held: &HashMap<i32, u64>, owned: &[u64], offers: Offers) -> Plan {
    let owned: HashSet<u64> = owned.iter().copied().collect();
    let elsewhere = HashMap::from([(cookie(55), State::Open)]);
    plan(entries, &Grounds { held, owned: &owned, elsewhere: &elsewhere, died_at: DIED, offers })
}

fn one(record: Record) -> Plan {
    decide(&[entry(0, record)], &held([10, 11]), &[], Offers::Taken)
}

#[test]
fn sockets_without_a_record_are_reset_and_the_others_are_not() {
    let plan = decide(&[entry(3, record(1))], &held([10, 11, 50]), &[], Offers::Taken);
    assert_eq!((plan.fetch.len(), plan.fetch[0].slot, plan.reset), (1, 3, vec![50]));
}

#[test]
fn a_socket_without_a_record_that_may_be_somebody_elses_is_left_alone() {
    let plan = decide(&[], &held([50, 55]), &[], Offers::Taken);
    assert_eq!(plan.reset, [50], "the other is named by another table");
    let mut doomed = record(1);
    doomed.state = State::Doomed;
    let plan = decide(&[entry(0, doomed)], &held([10, 11, 50]), &[], Offers::Pending);
    assert_eq!(plan.reset, [10, 11], "the other may have been offered a moment before");
}

#[test]
fn what_is_lost_is_reset_without_being_fetched() {
    let mut in_flight = record(1);
    in_flight.to_upstream.busy = Busy::Memory;
    let mut doomed = record(1);
    doomed.state = State::Doomed;
    for (record, loss) in [(in_flight, Loss::InFlight), (doomed, Loss::Doomed)] {
        let plan = one(record);
        assert_eq!((plan.fetch, plan.reset, plan.losses), (vec![], vec![10, 11], vec![loss]));
    }
}

#[test]
fn a_socket_that_is_gone_takes_its_connection_with_it() {
    let plan = decide(&[entry(0, record(1))], &held([10]), &[], Offers::Taken);
    assert_eq!((plan.losses, plan.reset), (vec![Loss::Gone], vec![10]));
    let mut other = held([10, 11]);
    other.insert(11, 5);
    let plan = decide(&[entry(0, record(1))], &other, &[], Offers::Taken);
    assert_eq!((plan.losses, plan.reset), (vec![Loss::Gone], vec![10, 11]));
}

#[test]
fn a_connection_that_had_ended_is_closed_in_order() {
    let mut record = record(1);
    record.state = State::Finishing;
    let plan = one(record);
    assert_eq!((plan.finish, plan.reset), (vec![10, 11], vec![]));
    // The first close was made already, and the number is somebody else's now.
    let mut reused = held([10, 11]);
    reused.insert(10, 7);
    let plan = decide(&[entry(0, record)], &reused, &[], Offers::Taken);
    assert_eq!((plan.finish, plan.reset), (vec![11], vec![10]));
}

#[test]
fn what_others_own_is_left_alone() {
    let plan =
        decide(&[entry(0, record(1))], &held([10, 11]), &[cookie(10), cookie(11)], Offers::Taken);
    assert_eq!(plan, Plan::default());
    let mut offered = record(1);
    offered.state = State::Offered;
    let plan = decide(&[entry(0, offered)], &held([10, 11]), &[], Offers::Pending);
    assert_eq!(plan, Plan::default());
    assert_eq!(one(offered).fetch.len(), 1, "with the offerer gone it is ours");
}

#[test]
fn between_an_offer_and_its_end_exactly_one_of_two_dead_workers_records_counts() {
    let both = held([10, 11]);
    let counts = |here, there: Option<State>| {
        let record = Record { state: here, ..record(1) };
        let elsewhere =
            there.map(|state| HashMap::from([(cookie(10), state), (cookie(11), state)]));
        let grounds = Grounds {
            held: &both,
            owned: &HashSet::new(),
            elsewhere: &elsewhere.unwrap_or_default(),
            died_at: DIED,
            offers: Offers::Taken,
        };
        let plan = plan(&[entry(0, record)], &grounds);
        assert!(plan.reset.is_empty(), "whichever counts, the sockets are needed");
        plan.fetch.len()
    };
    use State::{Leaving, Offered, Open};
    // The offerer's state, and the other's.
    for (from, to) in [
        (Some(Open), Some(Offered)),
        (Some(Leaving), Some(Offered)),
        (Some(Leaving), None),
        (Some(Leaving), Some(Open)),
        (None, Some(Offered)),
        (None, Some(Open)),
    ] {
        let count = |here: Option<State>, there| here.map_or(0, |here| counts(here, there));
        assert_eq!(count(from, to) + count(to, from), 1, "{from:?} {to:?}");
    }
}

#[test]
fn records_that_claim_the_same_descriptor_are_all_lost() {
    let mut other = record(2);
    other.identity.upstream = record(1).identity.upstream;
    let entries = [entry(0, record(1)), entry(1, other), entry(2, record(3))];
    let plan = decide(&entries, &held([10, 11, 20, 30, 31]), &[], Offers::Taken);
    assert_eq!(plan.losses, [Loss::Conflict, Loss::Conflict]);
    assert_eq!((plan.fetch.len(), plan.reset), (1, vec![10, 11, 20]));

    let pipe = Some(PipeNumbers { read: 70, write: 71 });
    let (mut one, mut two) = (record(1), record(2));
    (one.to_client.pipe, two.to_upstream.pipe) = (pipe, pipe);
    let plan = decide(&[entry(0, one), entry(1, two)], &held([10, 11, 20, 21]), &[], Offers::Taken);
    assert_eq!(plan.losses, [Loss::Conflict, Loss::Conflict], "bytes of one would reach the other");
}

#[test]
fn a_connection_whose_owners_die_young_is_given_up_after_two() {
    let adopted = |adoptions, age: Duration| {
        let mut record = record(1);
        record.identity.adoptions = adoptions;
        record.identity.adopted_at = DIED.0 - u64::try_from(age.as_nanos()).unwrap();
        record
    };
    let young = POISON_AGE - Duration::from_millis(1);
    assert_eq!(one(adopted(1, young)).fetch[0].suspicion, 1);
    assert_eq!(one(adopted(2, young)).losses, [Loss::Poison]);
    assert_eq!(one(adopted(2, POISON_AGE)).fetch[0].suspicion, 0, "it lived long enough");
    let mut tried = record(1);
    tried.attempts = 1;
    assert_eq!(one(tried).fetch[0].suspicion, 1);
    tried.attempts = 2;
    assert_eq!(one(tried).losses, [Loss::Poison], "it killed whoever looked at it");
}

fn any_record() -> impl Strategy<Value = Record> {
    let track = (0..3usize, any::<bool>(), any::<bool>(), prop::option::of((60..70i32, 70..80i32)))
        .prop_map(|(busy, eof_seen, fin_sent, pipe)| Track {
            busy: [Busy::No, Busy::Memory, Busy::Kernel][busy],
            eof_seen,
            fin_sent,
            pipe: pipe.map(|(read, write)| PipeNumbers { read, write }),
            ..track()
        });
    let state =
        prop::sample::select(vec![State::Open, State::Finishing, State::Doomed, State::Offered]);
    ((0..6, 0..6i32), state, track.clone(), track, 0..3u16).prop_map(
        |((client, upstream), state, to_upstream, to_client, attempts)| {
            let mut found = record(client);
            found.identity.upstream = record(upstream).identity.upstream;
            Record { state, to_upstream, to_client, attempts, ..found }
        },
    )
}

proptest! {
    #[test]
    fn no_socket_is_both_kept_and_reset_and_no_descriptor_used_twice(
        records in prop::collection::vec(prop::result::maybe_ok(any_record(), Just(Damage::Torn)), 0..8),
        numbers in prop::collection::hash_set(0..60i32, 0..60),
        owned in prop::collection::vec(0..60i32, 0..4),
        pending in any::<bool>(),
    ) {
        let entries: Vec<_> =
            (0..).zip(&records).map(|(slot, found)| Entry { slot, found: *found }).collect();
        let held = held(numbers);
        let owned: Vec<u64> = owned.into_iter().map(cookie).collect();
        let offers = if pending { Offers::Pending } else { Offers::Taken };
        let plan = decide(&entries, &held, &owned, offers);
        let mut seen = HashSet::new();
        for candidate in &plan.fetch {
            for number in candidate.numbers() {
                prop_assert!(seen.insert(number), "{number} twice");
            }
            prop_assert_ne!(candidate.record.to_client.busy, Busy::Memory);
        }
        for number in &plan.reset {
            prop_assert!(held.contains_key(number) && !owned.contains(&cookie(*number)));
            prop_assert!(!seen.contains(number));
            prop_assert!(!plan.finish.contains(number));
        }
    }
}
