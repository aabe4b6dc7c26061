//! From a selection to an open upstream socket.
//!
//! [`drive`] executes what a selection machine says: several attempts may run at once, each
//! first takes its place in the [`Bulkhead`], then connects to one of the target's addresses
//! ([`connect`], RFC 8305), then writes what prepares the connection (a PROXY header). The
//! machine learns what happened as [`Event`](crate::flow::Event)s and decides; nothing is
//! decided here.
//!
//! The common case costs no task, timer, lock or allocation: one free place, one known address,
//! a connect that is over when asked a second time. Whatever must be waited for becomes a boxed
//! future then and only then.
//!
//! # Invariants
//! * Dropping a drive cancels everything it began: sockets close, places are given back.
//! * A socket that lost a race has carried no byte of the client's.
//! * The permit is held during the TCP connect only.

mod attempt;
mod bulkhead;
mod client;
mod connect;
mod drive;

pub use bulkhead::{Bulkhead, Full, Limits, Permit, TargetSlots};
pub use client::Client;
pub use connect::{ATTEMPT_DELAY, Connected, DialError, connect};
pub use drive::{Stopped, Upstream, drive};

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::flow::LineIndex;

/// What the driver must know of the lines of a rule; implemented by who owns the generation.
pub trait Lines {
    /// The places of the line's target in the bulkhead.
    fn slots(&self, line: LineIndex) -> &Arc<TargetSlots>;

    /// The addresses to try, best first.
    fn addresses(&self, line: LineIndex) -> Addresses;

    /// What to write before the client's first byte.
    fn preparation(&self, _line: LineIndex) -> &[u8] {
        &[]
    }

    /// Whether the client's first bytes are in hand, to be sent right after the preparation.
    fn followed(&self) -> bool {
        false
    }

    /// A connected socket that was made ahead of need and is known to be alive.
    fn prewarmed(&self, _line: LineIndex) -> Option<OwnedFd> {
        None
    }
}

/// The addresses of a line, now or soon.
pub enum Addresses {
    /// Numeric, or resolved before.
    Known(SmallVec<[SocketAddr; 1]>),
    /// A name without any usable answer yet.
    Pending(Resolving),
}

/// A resolution under way.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<SmallVec<[SocketAddr; 1]>>>>>;

impl From<SocketAddr> for Addresses {
    fn from(address: SocketAddr) -> Self {
        Self::Known(SmallVec::from_buf([address]))
    }
}

#[cfg(test)]
mod tests;
