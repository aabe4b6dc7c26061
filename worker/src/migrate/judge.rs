//! Whether a connection can go on, from its record and what the kernel says. Pure.

use baton_handoff::table::{Busy, Endpoint, Record, Track};

use crate::net::TcpState;

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Its record is damaged.
    Damaged,
    /// It was being reset anyway.
    Doomed,
    /// Bytes of it were in the dead process's memory.
    InFlight,
    /// Its sockets are not there any more.
    Gone,
    /// Another record claims the same socket or pipe.
    Conflict,
    /// Whoever adopted it died soon after, again and again.
    Poison,
    /// The kernel contradicts the record, or a side's error is lost.
    Contradiction,
    /// Its descriptors did not arrive.
    Unfetched,
}

impl Loss {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Damaged,
        Self::Doomed,
        Self::InFlight,
        Self::Gone,
        Self::Conflict,
        Self::Poison,
        Self::Contradiction,
        Self::Unfetched,
    ];

    /// One word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Doomed => "doomed",
            Self::InFlight => "in_flight",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Poison => "poison",
            Self::Contradiction => "contradiction",
            Self::Unfetched => "unfetched",
        }
    }
}

/// What the kernel says about a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideFacts {
    /// `SO_COOKIE`.
    pub cookie: u64,
    /// Its TCP state.
    pub state: TcpState,
    /// The next operation will report that it broke.
    pub error_pending: bool,
}

/// Whether the connection of `record` can go on with these sockets.
///
/// # Errors
/// The reason why not.
pub fn judge(record: &Record, client: &SideFacts, upstream: &SideFacts) -> Result<(), Loss> {
    let Record { identity, to_upstream, to_client, .. } = record;
    if to_upstream.busy == Busy::Memory || to_client.busy == Busy::Memory {
        return Err(Loss::InFlight);
    }
    side(&identity.client, client, to_upstream, to_client)?;
    side(&identity.upstream, upstream, to_client, to_upstream)
}

/// One side: `from` is the direction that reads it, `into` the one that writes it.
fn side(end: &Endpoint, facts: &SideFacts, from: &Track, into: &Track) -> Result<(), Loss> {
    if facts.cookie != end.cookie {
        return Err(Loss::Gone);
    }
    // Our FIN may have been sent without being noted: the kill can come between the two.
    let fin_due = into.eof_seen;
    let fits = match facts.state {
        TcpState::Established => !from.eof_seen && !into.fin_sent,
        TcpState::CloseWait => !into.fin_sent,
        TcpState::FinSent => fin_due && !from.eof_seen,
        TcpState::Closing => fin_due,
        // It broke, and whoever reads or writes it next will be told.
        TcpState::Closed if facts.error_pending => true,
        // Both FINs are through. Or it broke and the call that took the error was the dead
        // process's last: then its mark is still there.
        TcpState::Closed => fin_due && from.busy == Busy::No && into.busy == Busy::No,
        TcpState::Connecting | TcpState::Listening | TcpState::Unknown(_) => false,
    };
    if fits { Ok(()) } else { Err(Loss::Contradiction) }
}
