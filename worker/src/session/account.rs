//! What is counted and said about one connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use baton_handoff::table::{Endpoint, Identity, TargetKey};
use socket2::SockRef;

use super::seat::Seat;
use crate::flow::{ClientAddr, Moment, RelayEnd};
use crate::generation::{Permit, Rule, RuleSeries};
use crate::net;
use crate::process::Process;
use crate::relay::{Direction, Ending, Outcome, Tally};
use crate::select::Winner;
use crate::session::Unserved;

/// A connection's books; shared by its session, its relay and its shard, on one thread.
///
/// Bytes are gathered here and entered in the rule's counters by the shard's sweep and at the
/// end, so that relaying a message touches no memory that another thread writes.
#[derive(Debug)]
pub(crate) struct Account {
    seat: Seat,
    shard: usize,
    /// The client as policy sees it; before a PROXY header has told, who connected.
    client: Cell<SocketAddr>,
    /// When it was accepted, by whichever process.
    opened: Moment,
    /// What other processes know its target by, and the target's place in its rule.
    target: Cell<(TargetKey, u16)>,
    /// How often it was adopted, and when: see [`Identity`].
    adoptions: u8,
    adopted_at: u64,
    /// When it got its upstream.
    chosen: Cell<Moment>,
    to_upstream: Cell<u64>,
    to_client: Cell<u64>,
    /// The line that serves it.
    winner: RefCell<Option<Winner>>,
    prewarmed: Cell<bool>,
    first_byte: Cell<FirstByte>,
    admitted: Cell<bool>,
}

/// The measuring of an upstream's answer.
#[derive(Debug, Clone, Copy)]
enum FirstByte {
    /// Not wanted, done, or the upstream spoke first.
    Over,
    /// Nobody has said anything.
    Silence,
    /// The client's first byte was forwarded then.
    Asked(Moment),
}

impl Account {
    /// The books of a connection that has its slots, on `shard`.
    pub(super) fn new(permit: Permit, shard: usize, peer: SocketAddr, now: Moment) -> Self {
        Self {
            seat: Seat::Rule(permit),
            shard,
            client: Cell::new(ClientAddr::folded(peer).0),
            opened: now,
            target: Cell::default(),
            adoptions: 0,
            adopted_at: 0,
            chosen: Cell::new(now),
            to_upstream: Cell::new(0),
            to_client: Cell::new(0),
            winner: RefCell::new(None),
            prewarmed: Cell::new(false),
            first_byte: Cell::new(FirstByte::Over),
            admitted: Cell::new(false),
        }
    }

    /// The books of a connection that another process has served before. It takes every slot,
    /// whatever the limits, and is not counted as accepted once more.
    pub(super) fn adopted(
        process: &Process,
        shard: usize,
        identity: &Identity,
        upstream: BorrowedFd<'_>,
    ) -> Self {
        let opened = Moment(identity.opened_at);
        let account = Self {
            seat: Seat::adopted(process, identity),
            shard,
            client: Cell::new(identity.peer),
            opened,
            target: Cell::new((identity.target, identity.target_index)),
            adoptions: identity.adoptions,
            adopted_at: identity.adopted_at,
            chosen: Cell::new(opened),
            to_upstream: Cell::new(0),
            to_client: Cell::new(0),
            winner: RefCell::new(None),
            prewarmed: Cell::new(false),
            first_byte: Cell::new(FirstByte::Over),
            admitted: Cell::new(true),
        };
        let address = SockRef::from(&upstream).peer_addr().ok().and_then(|at| at.as_socket());
        if let (Some(rule), Some(address)) = (account.rule(), address) {
            let address = ClientAddr::folded(address).0;
            account.winner.replace(rule.adopt(identity.target, identity.target_index, address));
        }
        if let Some(series) = account.series() {
            series.active.inc();
        }
        account
    }

    /// What it is, for a record and for other processes.
    ///
    /// # Errors
    /// When one of the descriptors is no socket.
    pub(super) fn identity(
        &self,
        client: BorrowedFd<'_>,
        upstream: BorrowedFd<'_>,
        idle: Option<Duration>,
    ) -> io::Result<Identity> {
        let end = |socket: BorrowedFd<'_>| {
            Ok::<_, io::Error>(Endpoint {
                number: socket.as_raw_fd(),
                cookie: net::cookie(socket)?,
            })
        };
        let (rule, generation) = self.seat.origin();
        let (target, target_index) = self.target.get();
        Ok(Identity {
            client: end(client)?,
            upstream: end(upstream)?,
            rule,
            target,
            target_index,
            generation,
            opened_at: self.opened.0,
            peer: self.client.get(),
            idle,
            adoptions: self.adoptions,
            adopted_at: self.adopted_at,
        })
    }

    /// Another process serves it from here on.
    pub(super) fn moved_away(&self) {
        self.finish(RelayEnd::Neutral, net::now());
        self.enter();
    }

    /// Every question of admission is answered: it is in service.
    pub(super) fn admitted(&self) {
        if let Some(series) = self.series() {
            series.accepted.inc();
            series.active.inc();
        }
        self.admitted.set(true);
    }

    /// Its slots, if it belongs to a rule.
    pub(super) fn permit(&self) -> Option<&Permit> {
        self.seat.permit()
    }

    /// The rule it came in through, or belongs to.
    pub(crate) fn rule(&self) -> Option<&Rule> {
        self.permit().map(Permit::rule)
    }

    /// Where it is counted.
    fn series(&self) -> Option<&RuleSeries> {
        self.rule().map(|rule| rule.series(self.shard))
    }

    fn rule_name(&self) -> &str {
        self.rule().map_or("", |rule| &*rule.name)
    }

    /// A PROXY header has told who the client is.
    pub(super) fn introduced(&self, client: ClientAddr) {
        self.client.set(client.0);
    }

    /// It has got an upstream, over this target of its rule; `prewarmed` when the socket was made
    /// ahead of need.
    pub(super) fn paired(&self, winner: Winner, target: u16, prewarmed: bool, now: Moment) {
        let key = self.rule().map(|rule| rule.target_key(target));
        self.target.set((key.unwrap_or_default(), target));
        self.chosen.set(now);
        self.winner.replace(Some(winner));
        self.prewarmed.set(prewarmed);
        self.first_byte.set(FirstByte::Silence);
    }

    /// Enters what has been gathered in the rule's counters.
    pub(crate) fn enter(&self) {
        if let Some(series) = self.series() {
            series.moved(self.to_upstream.take(), self.to_client.take());
        }
    }

    /// It ended before it had an upstream.
    pub(super) fn unserved(&self, why: Unserved) {
        match why {
            Unserved::Refused(refusal) => {
                if let (Some(series), Some(rule)) = (self.series(), self.rule()) {
                    series.rejected(refusal);
                    rule.tell_refused(refusal, Some(self.client.get()), net::now());
                }
            }
            Unserved::NoRoute(_) | Unserved::GaveUp(_) | Unserved::Defect => {
                self.tell_failed(why);
            }
            Unserved::ClientLeft => {
                tracing::debug!(
                    ruleName = self.rule_name(),
                    remoteAddr = %self.client.get(),
                    "the client left before it had an upstream"
                );
            }
        }
    }

    /// Says at most once a second for its rule that a client found no upstream.
    fn tell_failed(&self, why: Unserved) {
        let Some(rule) = self.rule() else { return };
        if let Some(left_out) = rule.failures().pass(net::now()) {
            tracing::warn!(
                ruleName = &*rule.name,
                remoteAddr = %self.client.get(),
                reason = why.as_str(),
                left_out,
                "connection failed"
            );
        }
    }

    /// Its relay has ended: the line and the counters learn how.
    pub(super) fn ended(&self, outcome: &Outcome) {
        let now = net::now();
        self.finish(outcome.for_line(), now);
        self.enter();
        if let Some(series) = self.series() {
            series.ended(outcome, now.since(self.chosen.get()));
        }
        match &outcome.ending {
            Ending::Clean => {}
            Ending::Failed(failure) => {
                tracing::debug!(
                    ruleName = self.rule_name(),
                    remoteAddr = %self.client.get(),
                    side = ?failure.side,
                    operation = ?failure.operation,
                    error = %failure.error,
                    "relay broken"
                );
            }
            Ending::Cut(reason) => {
                tracing::debug!(
                    ruleName = self.rule_name(),
                    remoteAddr = %self.client.get(),
                    ?reason,
                    "connection cut"
                );
            }
        }
    }

    fn finish(&self, end: RelayEnd, now: Moment) {
        if let Some(winner) = self.winner.take() {
            // A server may close an idle connection at any moment, also at that of its first use.
            let end = match end {
                RelayEnd::AtOnce if self.prewarmed.get() => RelayEnd::Broken,
                RelayEnd::AtOnce
                | RelayEnd::Clean { .. }
                | RelayEnd::Broken
                | RelayEnd::Neutral => end,
            };
            winner.finish(end, now);
        }
    }

    /// Times the upstream's answer to a client that spoke first.
    fn time_first_byte(&self, direction: Direction) {
        match (self.first_byte.get(), direction) {
            (FirstByte::Over, _) | (FirstByte::Asked(_), Direction::ToUpstream) => {}
            (FirstByte::Silence, Direction::ToUpstream) => {
                self.first_byte.set(FirstByte::Asked(net::now()));
            }
            (FirstByte::Silence, Direction::ToClient) => self.first_byte.set(FirstByte::Over),
            (FirstByte::Asked(since), Direction::ToClient) => {
                self.first_byte.set(FirstByte::Over);
                let now = net::now();
                if let Some(winner) = &*self.winner.borrow() {
                    winner.first_byte(now.since(since), now);
                }
            }
        }
    }
}

impl Tally for Account {
    fn moved(&self, direction: Direction, bytes: u64) {
        let gathered = match direction {
            Direction::ToUpstream => &self.to_upstream,
            Direction::ToClient => &self.to_client,
        };
        gathered.set(gathered.get() + bytes);
        self.time_first_byte(direction);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.admitted.get()
            && let Some(series) = self.series()
        {
            series.active.dec();
        }
    }
}
