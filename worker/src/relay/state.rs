//! All there is to know about a connection between two polls.

use std::os::fd::{AsRawFd, OwnedFd};

use baton_handoff::table::{Busy, PipeNumbers, Slot, Track, Way};

use crate::net::{self, Pipe};

/// A pipe with bytes in it.
#[derive(Debug)]
pub struct HeldPipe {
    /// The pipe.
    pub pipe: Pipe,
    /// How many bytes are in it.
    pub held: usize,
}

/// How the source of a direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceEnd {
    /// In order, by a FIN.
    Fin,
    /// It broke; every byte that arrived before has been read.
    Broken,
}

/// How a direction moves its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Through the thread's buffer; so many reads in a row filled it.
    Copy { full: u8 },
    /// Through a pipe; so many splices in a row moved little.
    Splice { small: u8 },
}

/// The state of one direction.
///
/// Bytes held are older than all that the source socket still has; those in the pipe are older
/// than those in memory.
#[derive(Debug)]
pub struct Flow {
    /// Bytes taken from the source and not yet by the destination, from `written` on. Neither
    /// grows, so neither is larger than it must be: there are two in every idle connection.
    bytes: Box<[u8]>,
    written: u32,
    pub(super) pipe: Option<HeldPipe>,
    pub(super) mode: Mode,
    pub(super) end: Option<SourceEnd>,
    /// The end has been passed on to the destination.
    pub(super) fin_sent: bool,
    /// Bytes handed to the destination so far.
    pub(super) total: u64,
}

impl Flow {
    /// A direction that owes the destination `bytes` before anything the source still sends.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: bytes.into(),
            written: 0,
            pipe: None,
            mode: Mode::Copy { full: 0 },
            end: None,
            fin_sent: false,
            total: 0,
        }
    }

    /// A direction as another process left it.
    #[must_use]
    pub fn resumed(
        pipe: Option<HeldPipe>,
        bytes: Vec<u8>,
        eof_seen: bool,
        fin_sent: bool,
        total: u64,
    ) -> Self {
        let end = eof_seen.then_some(SourceEnd::Fin);
        Self { pipe, end, fin_sent, total, ..Self::new(bytes) }
    }

    /// The same, going on by splicing if it did so before.
    #[must_use]
    pub fn splicing(mut self, splices: bool) -> Self {
        if splices {
            self.mode = Mode::Splice { small: 0 };
        }
        self
    }

    /// Whether it moves bytes through a pipe.
    #[must_use]
    pub fn splices(&self) -> bool {
        matches!(self.mode, Mode::Splice { .. })
    }

    /// Bytes in memory that the destination has not taken yet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        rest(&self.bytes, self.written)
    }

    /// The pipe and what is in it; bytes there come before [`Flow::bytes`].
    #[must_use]
    pub fn pipe(&self) -> Option<&HeldPipe> {
        self.pipe.as_ref()
    }

    /// The pipe, when the rest of the state has been noted.
    #[must_use]
    pub fn into_pipe(self) -> Option<HeldPipe> {
        self.pipe
    }

    /// The pipe and the bytes in memory, when the rest of the state has been noted.
    #[must_use]
    pub fn into_parts(self) -> (Option<HeldPipe>, Vec<u8>) {
        let Self { bytes, written, pipe, .. } = self;
        let mut bytes = bytes.into_vec();
        bytes.drain(..bytes.len() - rest(&bytes, written).len());
        (pipe, bytes)
    }

    /// Appends the bytes in memory to those in the pipe, as far as there is one with room.
    pub fn stow(&mut self) {
        let Some(held) = &mut self.pipe else { return };
        let rest = rest(&self.bytes, self.written);
        // An error is a full pipe: they stay where they are.
        let stowed = if rest.is_empty() { 0 } else { net::fill(&held.pipe, rest).unwrap_or(0) };
        held.held += stowed;
        self.take(stowed);
    }

    /// What a record of the connection table says about it.
    #[must_use]
    pub fn track(&self) -> Track {
        let pipe = self.pipe.as_ref().map(|held| PipeNumbers {
            read: held.pipe.read_end().as_raw_fd(),
            write: held.pipe.write_end().as_raw_fd(),
        });
        Track {
            busy: if self.bytes().is_empty() { Busy::No } else { Busy::Memory },
            splices: self.splices(),
            eof_seen: self.eof_seen(),
            fin_sent: self.fin_sent,
            pipe,
            total: self.total,
        }
    }

    /// The source's FIN has been read.
    #[must_use]
    pub fn eof_seen(&self) -> bool {
        self.end.is_some()
    }

    /// The FIN has been passed on.
    #[must_use]
    pub fn fin_sent(&self) -> bool {
        self.fin_sent
    }

    /// Bytes handed to the destination so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Keeps what the destination did not take. Nothing may be held yet.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        debug_assert!(self.bytes().is_empty(), "held bytes would be lost");
        self.bytes = bytes.into();
        self.written = 0;
    }

    /// The destination took `count` of [`Flow::bytes`]; the memory goes when all are taken.
    pub(super) fn take(&mut self, count: usize) {
        // What does not fit is beyond the end of any bytes that are kept.
        self.written = self.written.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.bytes().is_empty() {
            self.drop_bytes();
        }
    }

    /// Forgets all bytes held in memory.
    pub(super) fn drop_bytes(&mut self) {
        self.bytes = Box::default();
        self.written = 0;
    }

    /// Neither memory nor pipe holds a byte.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.pipe.is_none()
    }

    /// The source ended and all it sent has been handed over.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_some() && self.is_empty()
    }
}

/// What is left of `bytes` when so many are gone.
fn rest(bytes: &[u8], written: u32) -> &[u8] {
    usize::try_from(written).ok().and_then(|written| bytes.get(written..)).unwrap_or_default()
}

/// A connection that nobody serves: not registered with epoll, not one byte in user memory but
/// those in the two flows.
///
/// Dropping it would look like an orderly end to both peers; what cannot go on must be
/// [`reset`](Frozen::reset).
#[derive(Debug)]
pub struct Frozen {
    /// The client's socket.
    pub client: OwnedFd,
    /// The upstream's socket.
    pub upstream: OwnedFd,
    /// The direction from client to upstream.
    pub to_upstream: Flow,
    /// The direction from upstream to client.
    pub to_client: Flow,
}

impl Frozen {
    /// Writes into `slot` how far the connection has come; its state in the table stays.
    pub fn note(&self, slot: &Slot) {
        slot.track(Way::ToUpstream, &self.to_upstream.track());
        slot.track(Way::ToClient, &self.to_client.track());
    }

    /// Ends the connection: both peers see a reset.
    pub fn reset(self) {
        net::reset(self.client);
        net::reset(self.upstream);
    }
}
