//! What is counted and said about one connection.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use crate::flow::{ClientAddr, Moment, RelayEnd};
use crate::generation::{Permit, Rule, RuleSeries};
use crate::net;
use crate::relay::{Direction, Ending, Outcome, Tally};
use crate::select::Winner;
use crate::session::Unserved;

/// A connection's books; shared by its session, its relay and its shard, on one thread.
///
/// Bytes are gathered here and entered in the rule's counters by the shard's sweep and at the
/// end, so that relaying a message touches no memory that another thread writes.
#[derive(Debug)]
pub(crate) struct Account {
    permit: Permit,
    shard: usize,
    /// For the log, folded.
    peer: SocketAddr,
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
            permit,
            shard,
            peer: ClientAddr::folded(peer).0,
            chosen: Cell::new(now),
            to_upstream: Cell::new(0),
            to_client: Cell::new(0),
            winner: RefCell::new(None),
            prewarmed: Cell::new(false),
            first_byte: Cell::new(FirstByte::Over),
            admitted: Cell::new(false),
        }
    }

    /// Every question of admission is answered: it is in service.
    pub(super) fn admitted(&self) {
        self.series().accepted.inc();
        self.series().active.inc();
        self.admitted.set(true);
    }

    /// Its slots.
    pub(super) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// The rule it came in through.
    pub(crate) fn rule(&self) -> &Rule {
        self.permit.rule()
    }

    /// Where it is counted.
    pub(super) fn series(&self) -> &RuleSeries {
        self.rule().series(self.shard)
    }

    /// It has got an upstream; `prewarmed` when the socket was made ahead of need.
    pub(super) fn paired(&self, winner: Winner, prewarmed: bool, now: Moment) {
        self.chosen.set(now);
        self.winner.replace(Some(winner));
        self.prewarmed.set(prewarmed);
        self.first_byte.set(FirstByte::Silence);
    }

    /// Enters what has been gathered in the rule's counters.
    pub(crate) fn enter(&self) {
        self.series().moved(self.to_upstream.take(), self.to_client.take());
    }

    /// It ended before it had an upstream.
    pub(super) fn unserved(&self, why: Unserved) {
        match why {
            Unserved::Refused(refusal) => {
                self.series().rejected(refusal);
                self.rule().tell_refused(refusal, Some(self.peer), net::now());
            }
            Unserved::NoRoute(_) | Unserved::GaveUp(_) | Unserved::Defect => {
                self.tell_failed(why);
            }
            Unserved::ClientLeft => {
                tracing::debug!(
                    ruleName = &*self.rule().name,
                    remoteAddr = %self.peer,
                    "the client left before it had an upstream"
                );
            }
        }
    }

    /// Says at most once a second for its rule that a client found no upstream.
    fn tell_failed(&self, why: Unserved) {
        let rule = self.rule();
        if let Some(left_out) = rule.failures().pass(net::now()) {
            tracing::warn!(
                ruleName = &*rule.name,
                remoteAddr = %self.peer,
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
        self.series().ended(outcome, now.since(self.chosen.get()));
        match &outcome.ending {
            Ending::Clean => {}
            Ending::Failed(failure) => {
                tracing::debug!(
                    ruleName = &*self.rule().name,
                    remoteAddr = %self.peer,
                    side = ?failure.side,
                    operation = ?failure.operation,
                    error = %failure.error,
                    "relay broken"
                );
            }
            Ending::Cut(reason) => {
                tracing::debug!(
                    ruleName = &*self.rule().name,
                    remoteAddr = %self.peer,
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
        if self.admitted.get() {
            self.series().active.dec();
        }
    }
}
