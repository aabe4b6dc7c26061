//! The relay: carries bytes between a client and its upstream until both directions end.
//!
//! One hand-written future a connection serves both directions; each socket is registered with
//! epoll once. Every direction starts by copying through a buffer that belongs to the *thread*:
//! bytes are read and written on at once, and only what the destination does not take is kept
//! (and freed when it does), so an idle or chatty connection owns no buffer. A direction that
//! keeps filling whole buffers borrows a pipe from the thread's pool and splices until it falls
//! quiet. Why not `copy_bidirectional`: it owns two buffers a connection for life, hides what
//! is in them (a connection could never move to another process) and ends a reset connection
//! like an orderly one.
//!
//! # Invariants
//! * A direction holds bytes in memory or in a pipe, and reads nothing while it holds any.
//! * The end of one side's stream is passed on as a FIN after all of its bytes, and only then.
//! * A side that breaks (reset, time-out) makes the other side see a reset, after the bytes that
//!   arrived before. A connection that is cut, or whose future is dropped, is reset on both
//!   sides: no peer ever sees a FIN that the other did not send.
//! * Between two polls the whole state is [`Flow`] twice and two sockets, so it can be frozen
//!   there and resumed elsewhere.
//!
//! # Limits
//! [`COPY_BUFFER`] bytes of memory a blocked copying direction, one pipe a blocked splicing one;
//! [`TURN`] bytes a direction a turn (one splice may exceed it), then other connections run.

mod closing;
mod conduit;
mod connection;
mod context;
mod control;
mod journal;
mod outcome;
mod pipes;
mod pump;
mod state;

pub use connection::Relay;
pub use context::{COPY_BUFFER, RelayContext};
pub use control::{Control, CutReason};
pub use outcome::{End, Ending, Failure, Operation, Outcome, Side};
pub use pump::TURN;
pub use state::{Flow, Frozen, HeldPipe};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the upstream.
    ToUpstream,
    /// From the upstream to the client.
    ToClient,
}

/// Is told of every byte when it has been handed to the destination's kernel, while the
/// connection lives. Called on the connection's thread, once a write.
pub trait Tally {
    /// `bytes` (never 0) more have gone this way.
    fn moved(&self, direction: Direction, bytes: u64);
}

impl<T: Tally + ?Sized> Tally for std::rc::Rc<T> {
    fn moved(&self, direction: Direction, bytes: u64) {
        (**self).moved(direction, bytes);
    }
}

/// Counts nothing.
impl Tally for () {
    fn moved(&self, _: Direction, _: u64) {}
}

#[cfg(test)]
mod tests;
