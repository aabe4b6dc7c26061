//! Carrying on the connections of a worker that was killed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use baton_handoff::faults;
use baton_handoff::keeper::{KeeperClient, KeeperError, MAX_NUMBERS};
use baton_handoff::table::{Endpoint, Entry, Identity, PipeNumbers, Remains, State, TableError};
use tokio::time::timeout;

use super::judge::Loss;
use super::plan::{Candidate, Grounds, Offers, Plan, plan};
use super::rebuild::{Parts, rebuild};
use crate::flow::Moment;
use crate::net::{self, Pipe};
use crate::relay::Frozen;

/// How long a keeper may take to answer one question.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What a dead worker left.
#[derive(Debug)]
pub struct Source {
    /// Its connection table.
    pub table: OwnedFd,
    /// The other end of its keeper's socket.
    pub keeper: OwnedFd,
    /// When it died.
    pub died_at: Moment,
    /// Whose the connections are that it had been offered and not yet opened.
    pub offers: Offers,
}

/// A connection that can go on: to be relayed as if it had been frozen here.
#[derive(Debug)]
pub struct Rescued {
    /// The connection.
    pub frozen: Frozen,
    /// What it is, with the numbers of this process: to be written into a record of its own.
    pub identity: Identity,
}

/// How a recovery went.
#[derive(Debug, Default)]
pub struct Report {
    /// Connections that go on.
    pub resumed: u64,
    /// Sockets of connections that had ended and were closed in order.
    pub finished: u64,
    /// Sockets that the keeper reset.
    pub reset: u64,
    /// Connections given up, by reason. Those that were not relayed yet have no record and
    /// count in `reset` only.
    pub lost: BTreeMap<Loss, u64>,
    /// Sources that could not be dealt with, or not to their end.
    pub failures: Vec<RecoverError>,
}

/// Why nothing (or nothing more) could be recovered from a source. What is left in its keeper is
/// reset by it, in the end. That the keeper of an earlier source is gone is no harm: whoever died
/// later had already taken all.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The keeper is of no help.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// It does not answer.
    #[error("the keeper does not answer")]
    Silent,
    /// The table cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// This process lacks something.
    #[error("cannot take over the keeper's socket: {0}")]
    Local(#[source] std::io::Error),
}

/// Takes over what can go on, resets the rest and ends the keepers.
///
/// `sources` is what the dead workers left, the one that died last first: it may have died while
/// it did this very thing for the others. `owned` has the cookies of all sockets that this
/// process serves already; those of the rescued connections are added. `deliver` gets
/// connections in batches and returns once each of them has a record of its own (or has been
/// given up): only then is the old one freed, so that a connection is never without a record.
///
/// A source that fails keeps nothing from the others; see [`Report::failures`]. When a table is
/// of no use, all its connections are reset.
pub async fn recover(
    sources: Vec<Source>,
    owned: &mut HashSet<u64>,
    mut deliver: impl AsyncFnMut(Vec<Rescued>),
) -> Report {
    let mut report = Report::default();
    let mut estates: Vec<Estate> = Vec::with_capacity(sources.len());
    // Connections that a later process took further and then lost with its keeper: what earlier
    // tables say about them is out of date.
    let mut superseded = HashSet::new();
    for source in sources {
        match Estate::open(source, &superseded).await {
            Ok(estate) => estates.push(estate),
            Err((error, lost)) => {
                superseded.extend(lost);
                report.failures.push(error);
            }
        }
    }
    faults::point("recover.opened");
    for number in 0..estates.len() {
        let others = estates.iter().enumerate().filter(|(other, _)| *other != number);
        let mut elsewhere = HashMap::new();
        for (cookie, state) in others.flat_map(|(_, estate)| claims(&estate.entries)) {
            // Open is the strongest claim.
            if state == State::Open || !elsewhere.contains_key(&cookie) {
                elsewhere.insert(cookie, state);
            }
        }
        let settled = estates[number].settle(owned, &elsewhere, &mut report, &mut deliver).await;
        if let Err(error) = settled {
            report.failures.push(error);
        }
    }
    faults::point("recover.settled");
    for estate in estates {
        if let Err(error) = answered(estate.keeper.exit()).await {
            report.failures.push(error);
        }
    }
    report
}

/// All sockets that records name, and what they say.
fn claims(entries: &[Entry]) -> impl Iterator<Item = (u64, State)> {
    let records = entries.iter().filter_map(|entry| entry.found.ok());
    records.flat_map(|record| {
        let Identity { client, upstream, .. } = record.identity;
        [(client.cookie, record.state), (upstream.cookie, record.state)]
    })
}

/// One dead worker's table and keeper, opened.
struct Estate {
    keeper: KeeperClient,
    held: HashMap<RawFd, u64>,
    remains: Option<Remains>,
    /// Why there are none.
    damage: Option<TableError>,
    entries: Vec<Entry>,
    died_at: Moment,
    offers: Offers,
    now: Moment,
}

impl Estate {
    /// Without its keeper a source is lost; then also the cookies of what it had.
    async fn open(
        source: Source,
        superseded: &HashSet<u64>,
    ) -> Result<Self, (RecoverError, Vec<u64>)> {
        let Source { table, keeper, died_at, offers } = source;
        let table = Remains::open(table).and_then(|remains| Ok((remains.entries()?, remains)));
        let (mut entries, remains, damage) = match table {
            Ok((entries, remains)) => (entries, Some(remains), None),
            Err(error) => (Vec::new(), None, Some(error)),
        };
        let held = async {
            let mut keeper = KeeperClient::new(keeper).map_err(RecoverError::Local)?;
            let held = answered(keeper.list()).await?;
            Ok((keeper, held))
        };
        let (keeper, held) = match held.await {
            Ok(held) => held,
            Err(error) => {
                // What it had only been offered may still be the offerer's.
                let own = claims(&entries).filter(|(_, state)| *state != State::Offered);
                return Err((error, own.map(|(cookie, _)| cookie).collect()));
            }
        };
        let held = held.into_iter().map(|held| (held.number, held.cookie)).collect();
        for entry in &mut entries {
            let stale = claims(&[*entry]).any(|(cookie, _)| superseded.contains(&cookie));
            if let Ok(record) = &mut entry.found
                && stale
            {
                record.state = State::Doomed;
            }
        }
        Ok(Self { keeper, held, remains, damage, entries, died_at, offers, now: net::now() })
    }

    async fn settle(
        &mut self,
        owned: &mut HashSet<u64>,
        elsewhere: &HashMap<u64, State>,
        report: &mut Report,
        deliver: &mut impl AsyncFnMut(Vec<Rescued>),
    ) -> Result<(), RecoverError> {
        let none = HashMap::new();
        // With the table lost nothing is known about what its keeper holds, and what earlier
        // tables say may be out of date.
        let elsewhere = if self.remains.is_some() { elsewhere } else { &none };
        let Self { held, died_at, offers, .. } = self;
        let grounds = Grounds { held, owned, elsewhere, died_at: *died_at, offers: *offers };
        let Plan { fetch, finish, reset, losses } = plan(&self.entries, &grounds);
        losses.into_iter().for_each(|loss| report.lose(loss));
        self.reset(&reset, owned, report).await?;
        for batch in finish.chunks(MAX_NUMBERS) {
            for (_, socket) in answered(self.keeper.fetch(batch)).await? {
                // Fails only when the connection is gone, and then nothing is due any more.
                let _gone = net::shut_write(socket.as_fd());
                report.finished += 1;
            }
        }
        if let Some(remains) = self.remains.take() {
            for batch in batches(&fetch) {
                self.adopt(&remains, batch, owned, report, deliver).await?;
            }
        }
        match self.damage.take() {
            Some(damage) => Err(damage.into()),
            None => Ok(()),
        }
    }

    async fn adopt(
        &mut self,
        remains: &Remains,
        batch: &[Candidate],
        owned: &mut HashSet<u64>,
        report: &mut Report,
        deliver: &mut impl AsyncFnMut(Vec<Rescued>),
    ) -> Result<(), RecoverError> {
        for candidate in batch {
            let count = candidate.record.attempts.saturating_add(1);
            remains.note_attempt(candidate.slot, count, self.now.0 / 1_000_000)?;
        }
        let numbers: Vec<RawFd> = batch.iter().flat_map(Candidate::numbers).collect();
        let mut arrived: HashMap<RawFd, OwnedFd> =
            answered(self.keeper.fetch(&numbers)).await?.into_iter().collect();
        faults::point("recover.fetched");
        let mut rescued = Vec::with_capacity(batch.len());
        let mut lost = Vec::new();
        for candidate in batch {
            match assemble(candidate, &mut arrived) {
                Ok(frozen) => {
                    let identity = self.renewed(candidate, &frozen);
                    owned.extend(candidate.cookies());
                    rescued.push(Rescued { frozen, identity });
                }
                Err(loss) => {
                    report.lose(loss);
                    let identity = &candidate.record.identity;
                    lost.extend([identity.client.number, identity.upstream.number]);
                }
            }
        }
        // Whatever part of them did not arrive is still there.
        self.reset(&lost, owned, report).await?;
        report.resumed += u64::try_from(rescued.len()).unwrap_or(u64::MAX);
        deliver(rescued).await;
        faults::point("recover.delivered");
        for candidate in batch {
            remains.release(candidate.slot)?;
        }
        Ok(())
    }

    /// Resets connections, and keeps older sources from carrying them on.
    async fn reset(
        &mut self,
        numbers: &[RawFd],
        owned: &mut HashSet<u64>,
        report: &mut Report,
    ) -> Result<(), RecoverError> {
        if !numbers.is_empty() {
            report.reset += u64::from(answered(self.keeper.reset(numbers)).await?);
            owned.extend(numbers.iter().filter_map(|number| self.held.get(number)));
        }
        Ok(())
    }

    /// The identity as it is to be recorded here.
    fn renewed(&self, candidate: &Candidate, frozen: &Frozen) -> Identity {
        let identity = candidate.record.identity;
        let here = |end: Endpoint, fd: &OwnedFd| Endpoint { number: fd.as_raw_fd(), ..end };
        Identity {
            client: here(identity.client, &frozen.client),
            upstream: here(identity.upstream, &frozen.upstream),
            adoptions: u8::try_from(candidate.suspicion.saturating_add(1)).unwrap_or(u8::MAX),
            adopted_at: self.now.0,
            ..identity
        }
    }
}

impl Report {
    fn lose(&mut self, loss: Loss) {
        *self.lost.entry(loss).or_default() += 1;
    }
}

/// As many candidates at a time as fit one question.
fn batches(mut candidates: &[Candidate]) -> impl Iterator<Item = &[Candidate]> {
    std::iter::from_fn(move || {
        let mut numbers = 0;
        let fits = candidates.iter().take_while(|candidate| {
            numbers += candidate.numbers().count();
            numbers <= MAX_NUMBERS
        });
        // One has six at most, so a batch is never empty but at the end.
        let (batch, rest) = candidates.split_at(fits.count());
        candidates = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

fn assemble(candidate: &Candidate, arrived: &mut HashMap<RawFd, OwnedFd>) -> Result<Frozen, Loss> {
    let record = &candidate.record;
    let mut take = |number| arrived.remove(&number).ok_or(Loss::Unfetched);
    let client = take(record.identity.client.number);
    let upstream = take(record.identity.upstream.number);
    let mut pipe = |numbers: Option<PipeNumbers>| match numbers {
        None => Ok(None),
        Some(PipeNumbers { read, write }) => {
            let ends = (take(read)?, take(write)?);
            Pipe::from_ends(ends.0, ends.1).map(Some).map_err(|_| Loss::Contradiction)
        }
    };
    let pipes = (pipe(record.to_upstream.pipe), pipe(record.to_client.pipe));
    let (up, down) = (pipes.0?, pipes.1?);
    let parts =
        Parts { client: client?, upstream: upstream?, up, down, inline: [Vec::new(), Vec::new()] };
    rebuild(record, parts)
}

async fn answered<T>(
    answer: impl Future<Output = Result<T, KeeperError>>,
) -> Result<T, RecoverError> {
    match timeout(ANSWER_LIMIT, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(RecoverError::Silent),
    }
}
