//! What can go wrong on the way, apart by what the caller should do about it.

use crate::codec::CodecError;
use crate::frame::{FrameError, Kind};
use crate::memfd::MemfdError;
use crate::message::Nak;
use crate::version::{Refusal, Version, VersionRange};
use std::io;

/// A message that was not taken. Its descriptors are closed; the channel goes on, since the
/// kernel keeps message boundaries. Where the sender waits for an answer it has got a `Nak`.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The bytes are no message.
    #[error("not a message: {0}")]
    Frame(#[from] FrameError),
    /// More than the longest packet came in one.
    #[error("a packet longer than any message")]
    Oversized,
    /// No protocol version in common: this peer can never be understood.
    #[error(transparent)]
    Version(#[from] Refusal),
    /// After agreeing on a version the peer used another one.
    #[error("{kind} is written for protocol {found}, agreed was {agreed}")]
    OtherVersion {
        /// The message.
        kind: Kind,
        /// The version both sides settled on.
        agreed: Version,
        /// What the header says.
        found: VersionRange,
    },
    /// Something came before the greeting.
    #[error("{0} came before Hello")]
    HelloExpected(Kind),
    /// The type is of another direction.
    #[error("{0} does not travel in this direction")]
    Direction(Kind),
    /// The peer is newer and insists.
    #[error("{0} is mandatory and unknown here")]
    UnknownType(Kind),
    /// The body is malformed or has a mandatory field that is unknown here.
    #[error("{kind}: {source}")]
    Body {
        /// The message.
        kind: Kind,
        /// What is wrong with its body.
        source: CodecError,
    },
    /// The body's memfd is not one.
    #[error("{kind}: {source}")]
    Memfd {
        /// The message.
        kind: Kind,
        /// What is wrong with the memfd.
        source: MemfdError,
    },
    /// The kernel dropped descriptors: most likely this process has no free ones.
    #[error(
        "{kind}: only {received} of {declared} descriptors arrived (descriptor limit reached?)"
    )]
    Lost {
        /// The message.
        kind: Kind,
        /// What the header says.
        declared: usize,
        /// What came.
        received: usize,
    },
    /// The header lies about the number of descriptors.
    #[error("{kind}: {received} descriptors came, its header says {declared}")]
    Count {
        /// The message.
        kind: Kind,
        /// What the header says.
        declared: usize,
        /// What came.
        received: usize,
    },
    /// The message may not carry that many descriptors.
    #[error("{kind}: {received} descriptors came, its body asks for {least} to {most}")]
    Manifest {
        /// The message.
        kind: Kind,
        /// The least its body allows.
        least: usize,
        /// The most its body allows.
        most: usize,
        /// What came.
        received: usize,
    },
    /// A descriptor is not what the message says it is.
    #[error("{kind}: descriptor {index} is not {expected}")]
    Descriptor {
        /// The message.
        kind: Kind,
        /// Its place in the message, from 0.
        index: usize,
        /// What it should be.
        expected: &'static str,
    },
}

/// Why nothing was received.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The peer closed its end or is dead. Nothing will come any more.
    #[error("the other side has closed the channel")]
    Closed,
    /// One message was not taken; the channel can be used on.
    #[error("message refused: {0}")]
    Refused(#[from] Fault),
    /// The system call failed.
    #[error("cannot receive on the channel: {0}")]
    Io(#[source] io::Error),
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The peer closed its end or is dead.
    #[error("{0} not sent: the other side has closed the channel")]
    Closed(Kind),
    /// The peer has not greeted yet, so it is not known what it understands.
    #[error("{0} not sent: the other side has not said Hello yet")]
    HelloExpected(Kind),
    /// The peer is of a release that does not know the message.
    #[error("{kind} not sent: protocol {agreed} does not have it")]
    NotInProtocol {
        /// What was to be sent.
        kind: Kind,
        /// What was agreed on.
        agreed: Version,
    },
    /// The body is longer than [`crate::frame::MAX_BODY`].
    #[error("{kind} not sent: {len} bytes are too many")]
    TooLong {
        /// The message.
        kind: Kind,
        /// Its body's length in bytes.
        len: usize,
    },
    /// The message may not carry that many descriptors.
    #[error("{kind} not sent: {given} descriptors given, its body asks for {least} to {most}")]
    Manifest {
        /// The message.
        kind: Kind,
        /// The least its body allows.
        least: usize,
        /// The most its body allows.
        most: usize,
        /// What was given.
        given: usize,
    },
    /// The body cannot be encoded.
    #[error("{kind} not sent: {source}")]
    Body {
        /// The message.
        kind: Kind,
        /// What the encoder said.
        source: CodecError,
    },
    /// More descriptors are in flight than this process may have open (`ETOOMANYREFS`): wait for
    /// the peer to take some, then send again.
    #[error("{0} not sent: too many descriptors in flight")]
    TooManyInFlight(Kind),
    /// A system call failed.
    #[error("{kind} not sent: {source}")]
    Io {
        /// The message.
        kind: Kind,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The peer did not take a message of this side: [`Nak`] as an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the other side did not take {kind}: {reason}")]
pub struct NakError {
    /// The message that was not taken.
    pub kind: Kind,
    /// Why, in the peer's words.
    pub reason: String,
}

impl From<Nak> for NakError {
    fn from(nak: Nak) -> Self {
        Self { kind: Kind(nak.kind), reason: nak.reason }
    }
}
