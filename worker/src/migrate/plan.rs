//! What to do with each connection of a dead worker, before any descriptor is fetched. Pure.

use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::time::Duration;

use baton_handoff::table::{Busy, Damage, Entry, Record, State};

use super::judge::Loss;
use crate::flow::Moment;

/// An owner that dies younger than this, after an adoption, makes the connection suspect.
pub const POISON_AGE: Duration = Duration::from_secs(5);
/// A connection suspected so often is given up.
pub const POISON_LIMIT: u16 = 2;

/// Whose a connection is that the dead worker had been offered, and had not opened yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offers {
    /// The dead worker's: whoever offered it has let go of it, or is dead too.
    Taken,
    /// Perhaps still the other's, who lives: not to be touched. Neither is any socket without a
    /// record, for it may have been offered a moment before.
    Pending,
}

/// What is known beside the table.
#[derive(Debug)]
pub struct Grounds<'a> {
    /// Cookies of the TCP connections that the keeper holds, by number.
    pub held: &'a HashMap<RawFd, u64>,
    /// Cookies of sockets that already have a living owner: never touched.
    pub owned: &'a HashSet<u64>,
    /// What the other tables say, by cookie: sockets without a record here are not reset if they
    /// are on their way from there.
    pub elsewhere: &'a HashMap<u64, State>,
    /// When the worker died.
    pub died_at: Moment,
    /// Whose its offered connections are.
    pub offers: Offers,
}

/// A connection worth fetching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its place in the table.
    pub slot: u32,
    /// What it says.
    pub record: Record,
    /// How often it was suspected.
    pub suspicion: u16,
}

impl Candidate {
    /// The cookies of its sockets.
    #[must_use]
    pub fn cookies(&self) -> [u64; 2] {
        [self.record.identity.client.cookie, self.record.identity.upstream.cookie]
    }

    /// The numbers of its descriptors: sockets first.
    pub fn numbers(&self) -> impl Iterator<Item = RawFd> + '_ {
        let Record { identity, to_upstream, to_client, .. } = &self.record;
        let pipes = [to_upstream.pipe, to_client.pipe].into_iter().flatten();
        [identity.client.number, identity.upstream.number]
            .into_iter()
            .chain(pipes.flat_map(|pipe| [pipe.read, pipe.write]))
    }
}

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be fetched and, if the kernel agrees, carried on.
    pub fetch: Vec<Candidate>,
    /// Sockets that only have to be closed in order: all their bytes are passed on.
    pub finish: Vec<RawFd>,
    /// Sockets to be reset.
    pub reset: Vec<RawFd>,
    /// Connections given up, one entry each.
    pub losses: Vec<Loss>,
}

enum Fate {
    Fetch(u16),
    Finish,
    Lost(Loss),
    NotOurs,
}

/// Decides about all records, and about sockets that no record names.
#[must_use]
pub fn plan(entries: &[Entry], grounds: &Grounds<'_>) -> Plan {
    let mut plan = Plan::default();
    // Cookies of sockets that are not to be reset, and of those that are.
    let mut spared = HashSet::new();
    let mut lost = HashSet::new();
    for Entry { slot, found } in entries {
        let record = match found {
            Ok(record) => record,
            // Its connection was not relayed yet, or it has an older record elsewhere.
            Err(Damage::Torn) => continue,
            Err(Damage::Checksum | Damage::Value(_)) => {
                plan.losses.push(Loss::Damaged);
                continue;
            }
        };
        let cookies = [record.identity.client.cookie, record.identity.upstream.cookie];
        match fate(record, grounds) {
            Fate::Fetch(suspicion) => {
                plan.fetch.push(Candidate { slot: *slot, record: *record, suspicion });
            }
            Fate::Finish => {
                for end in [record.identity.client, record.identity.upstream] {
                    if grounds.held.get(&end.number) == Some(&end.cookie) {
                        plan.finish.push(end.number);
                        spared.insert(end.cookie);
                    }
                }
            }
            Fate::Lost(loss) => {
                plan.losses.push(loss);
                lost.extend(cookies);
            }
            Fate::NotOurs => spared.extend(cookies),
        }
    }
    for dropped in drop_conflicts(&mut plan) {
        plan.losses.push(Loss::Conflict);
        lost.extend(dropped.cookies());
    }
    for candidate in &plan.fetch {
        spared.extend(candidate.cookies());
    }
    let is_stray =
        |cookie: &u64| grounds.offers == Offers::Taken && !grounds.elsewhere.contains_key(cookie);
    let resets = grounds.held.iter().filter(|(_, cookie)| {
        !spared.contains(*cookie)
            && !grounds.owned.contains(*cookie)
            && (lost.contains(*cookie) || is_stray(cookie))
    });
    plan.reset = resets.map(|(number, _)| *number).collect();
    plan.reset.sort_unstable();
    plan
}

fn fate(record: &Record, grounds: &Grounds<'_>) -> Fate {
    let Record { state, identity, to_upstream, to_client, .. } = record;
    let owned = |cookie| grounds.owned.contains(&cookie);
    if owned(identity.client.cookie) || owned(identity.upstream.cookie) {
        return Fate::NotOurs;
    }
    // Between an offer and its end the connection has a record on either side. As long as the
    // offerer's is there, the other's is not valid yet; once the other's is open, it alone is.
    match (state, grounds.elsewhere.get(&identity.client.cookie)) {
        (State::Doomed, _) => return Fate::Lost(Loss::Doomed),
        (State::Finishing, _) => return Fate::Finish,
        (State::Offered, _) if grounds.offers == Offers::Pending => return Fate::NotOurs,
        (State::Offered, Some(State::Open | State::Leaving)) => return Fate::NotOurs,
        (State::Leaving, Some(State::Open)) => return Fate::NotOurs,
        (State::Open | State::Offered | State::Leaving, _) => {}
    }
    let there =
        |end: &baton_handoff::table::Endpoint| grounds.held.get(&end.number) == Some(&end.cookie);
    if !there(&identity.client) || !there(&identity.upstream) {
        return Fate::Lost(Loss::Gone);
    }
    if to_upstream.busy == Busy::Memory || to_client.busy == Busy::Memory {
        return Fate::Lost(Loss::InFlight);
    }
    match suspicion(record, grounds.died_at) {
        count if count >= POISON_LIMIT => Fate::Lost(Loss::Poison),
        count => Fate::Fetch(count),
    }
}

/// How many owners may have died of this connection: those before the dead one, if that one was
/// young, and those that died while they adopted it.
fn suspicion(record: &Record, died_at: Moment) -> u16 {
    let identity = &record.identity;
    let adopted = identity.adopted_at != 0;
    let young = adopted && died_at.since(Moment(identity.adopted_at)) < POISON_AGE;
    let before = if young { u16::from(identity.adoptions) } else { 0 };
    before.saturating_add(record.attempts)
}

/// No two connections may share a socket or a pipe; those that do are all given up.
fn drop_conflicts(plan: &mut Plan) -> Vec<Candidate> {
    let mut numbers: HashMap<RawFd, u32> = HashMap::new();
    let mut cookies: HashMap<u64, u32> = HashMap::new();
    for candidate in &plan.fetch {
        for number in candidate.numbers() {
            *numbers.entry(number).or_default() += 1;
        }
        for cookie in candidate.cookies() {
            *cookies.entry(cookie).or_default() += 1;
        }
    }
    let sole = |candidate: &Candidate| {
        candidate.numbers().all(|number| numbers.get(&number) == Some(&1))
            && candidate.cookies().iter().all(|cookie| cookies.get(cookie) == Some(&1))
    };
    let (kept, dropped) = plan.fetch.drain(..).partition(sole);
    plan.fetch = kept;
    dropped
}
