//! What two workers say to each other while connections move.
//!
//! ```text
//! old worker                          new worker
//!   Hello              ───────────▶
//!                      ◀───────────   Hello
//!   Offer + FDs        ───────────▶     checks, writes records, touches nothing
//!                      ◀───────────   Answer
//!   Commit             ───────────▶     the accepted ones are the new worker's from here on
//!   …
//!   Over               ───────────▶
//! ```
//!
//! `Withdraw` instead of `Commit` takes an offer back. One offer at a time.

use std::os::fd::RawFd;
use std::time::Duration;

use super::Nak;
use crate::table::{Busy, Endpoint, Identity, PipeNumbers, Record, State, Track};

/// Most connections in one offer.
pub const MAX_OFFERED: usize = 64;
/// Most bytes of one direction that travel inside an offer.
pub const MAX_INLINE_BYTES: usize = 64 * 1024;
/// The number of a descriptor that has none yet, on this side of the channel.
pub const NOWHERE: RawFd = -1;

/// Between two workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// First message of both.
    Hello(HelloPeer),
    /// Take these? Carries, for each connection in order, the client's and the upstream's socket,
    /// and both ends of the pipe to the upstream and of the pipe to the client where there are
    /// such.
    Offer(Offer),
    /// Which of them are taken.
    Answer(OfferAnswer),
    /// The accepted ones of the offer with this transaction have changed their owner.
    Commit,
    /// The offer with this transaction is void: let go of it.
    Withdraw,
    /// There is nothing more to come.
    Over,
    /// A mandatory message was not taken.
    Nak(Nak),
}

/// Body of [`Peer::Hello`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelloPeer {
    /// The worker's version, for logs.
    pub version: String,
}

/// Body of [`Peer::Offer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// At most [`MAX_OFFERED`].
    pub connections: Vec<Offered>,
}

/// One connection, frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// What it is and how far it has come. Every descriptor number in it is [`NOWHERE`]; a pipe
    /// that is there travels with the message.
    pub record: Record,
    /// How long no byte had moved; in milliseconds on the way.
    pub quiet: Duration,
    /// Bytes to the upstream and to the client that come behind those in the pipes; at most
    /// [`MAX_INLINE_BYTES`] each.
    pub inline: [Vec<u8>; 2],
}

/// Body of [`Peer::Answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferAnswer {
    /// One a connection, in the order of the offer.
    pub accepted: Vec<bool>,
}

impl Offered {
    /// A connection as it travels: without what means nothing elsewhere.
    #[must_use]
    pub fn new(
        identity: &Identity,
        tracks: [Track; 2],
        quiet: Duration,
        inline: [Vec<u8>; 2],
    ) -> Self {
        let nowhere = |end: Endpoint| Endpoint { number: NOWHERE, ..end };
        let [to_upstream, to_client] = tracks.map(|track| Track {
            busy: Busy::No,
            pipe: track.pipe.map(|_| PipeNumbers { read: NOWHERE, write: NOWHERE }),
            ..track
        });
        let identity = Identity {
            client: nowhere(identity.client),
            upstream: nowhere(identity.upstream),
            ..*identity
        };
        let record = Record {
            state: State::Offered,
            identity,
            to_upstream,
            to_client,
            attempts: 0,
            attempted_at_ms: 0,
        };
        Self { record, quiet, inline }
    }

    /// How many descriptors travel with it.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        let pipes = [self.record.to_upstream.pipe, self.record.to_client.pipe];
        2 + 2 * pipes.iter().flatten().count()
    }
}
