//! What is counted and said about one connection.

use std::cell::Cell;
use std::net::SocketAddr;

use crate::flow::Moment;
use crate::generation::{Permit, Rule};
use crate::relay::{Direction, Ending, Outcome, Tally};
use crate::session::Unserved;

/// A connection's books; shared by its session and its relay, on one thread.
///
/// Bytes are gathered here and entered in the rule's counters by the shard's sweep and at the
/// end, so that relaying a message touches no memory that another thread writes.
#[derive(Debug)]
pub(crate) struct Account {
    permit: Permit,
    at: Moment,
    to_upstream: Cell<u64>,
    to_client: Cell<u64>,
}

impl Account {
    /// Books of a connection accepted at `at`.
    pub(super) fn new(permit: Permit, at: Moment) -> Self {
        Self { permit, at, to_upstream: Cell::new(0), to_client: Cell::new(0) }
    }

    /// Its slots.
    pub(super) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// The rule it came in through.
    pub(crate) fn rule(&self) -> &Rule {
        self.permit.rule()
    }

    /// Enters what has been gathered in the rule's counters.
    pub(crate) fn enter(&self) {
        let (up, down) = (self.to_upstream.take(), self.to_client.take());
        self.rule().moved(up, down);
    }

    /// It ended before it had an upstream.
    pub(super) fn unserved(&self, why: Unserved, peer: SocketAddr, now: Moment) {
        match why {
            Unserved::Refused(refusal) => self.rule().refused(refusal, Some(peer), now),
            Unserved::NoRoute | Unserved::GaveUp(_) => self.rule().failed(why, peer, now),
            Unserved::ClientLeft => {
                tracing::debug!(
                    ruleName = &*self.rule().name,
                    remoteAddr = %peer,
                    "the client left before it had an upstream"
                );
            }
        }
    }

    /// Its relay has ended.
    pub(super) fn ended(&self, outcome: &Outcome, peer: SocketAddr, now: Moment) {
        self.enter();
        let lasted = now.since(self.at);
        match &outcome.ending {
            Ending::Clean => {}
            Ending::Failed(failure) => {
                tracing::debug!(
                    ruleName = &*self.rule().name,
                    remoteAddr = %peer,
                    side = ?failure.side,
                    operation = ?failure.operation,
                    error = %failure.error,
                    "relay broken"
                );
            }
            Ending::Cut(reason) => {
                tracing::debug!(
                    ruleName = &*self.rule().name,
                    remoteAddr = %peer,
                    ?reason,
                    "connection cut"
                );
            }
        }
        self.rule().ended(outcome, lasted);
    }
}

impl Tally for Account {
    fn moved(&self, direction: Direction, bytes: u64) {
        let gathered = match direction {
            Direction::ToUpstream => &self.to_upstream,
            Direction::ToClient => &self.to_client,
        };
        gathered.set(gathered.get() + bytes);
    }
}
