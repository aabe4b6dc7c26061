//! The fixed header before every message, and every check that needs no body.
//!
//! Hand-written little endian and frozen: two releases must be able to read each other's header
//! before they have agreed on anything, so no codec library has a say in it.
//!
//! ```text
//!  0  4  magic "BATN"            12  4  body length, bytes
//!  4  2  oldest protocol spoken  16  8  transaction id, 0 = none
//!  6  2  newest protocol spoken  24  2  descriptors, a body's memfd included
//!  8  2  message type            26  2  zero
//! 10  2  flags
//! ```
//!
//! One SEQPACKET packet is one message. A body of up to 64 KiB follows the header in the same
//! packet; a longer one travels in a sealed memfd, the last descriptor of the message.

use crate::version::{Version, VersionRange};
use std::fmt;

/// First bytes of every message.
pub const MAGIC: [u8; 4] = *b"BATN";
/// Header size in bytes.
pub const HEADER_LEN: usize = 28;
/// Longest body inside a packet, in bytes: fits the default socket buffer several times over.
pub const MAX_INLINE: usize = 64 * 1024;
/// Longest body at all, in bytes: a configuration (at most 16 MiB) and room beside it.
pub const MAX_BODY: usize = 32 * 1024 * 1024;
/// Most descriptors a message carries for its receiver. The kernel's own limit is 253.
pub const MAX_FDS: usize = 200;
/// Longest packet, in bytes.
pub const MAX_PACKET: usize = HEADER_LEN + MAX_INLINE;

const FLAG_MANDATORY: u16 = 1;
const FLAG_MEMFD: u16 = 1 << 1;

/// A message's type: the direction in the high byte, the number within it in the low byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind(pub u16);

impl Kind {
    /// Type number `number` of `direction`.
    pub(crate) const fn new(direction: Direction, number: u8) -> Self {
        Self(u16::from_be_bytes([direction as u8, number]))
    }

    /// Whether the type belongs to `direction` (known or not).
    pub(crate) fn belongs_to(self, direction: Direction) -> bool {
        self.0.to_be_bytes()[0] == direction as u8
    }

    fn number(self) -> u8 {
        self.0.to_be_bytes()[1]
    }

    /// The greeting of its direction, frozen over all versions.
    pub(crate) fn is_hello(self) -> bool {
        self.number() == HELLO
    }

    /// The refusal of its direction, frozen over all versions.
    pub(crate) fn is_nak(self) -> bool {
        self.number() == NAK
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match crate::message::name(*self) {
            Some(name) => f.write_str(name),
            None => write!(f, "type {:#06x}", self.0),
        }
    }
}

/// Number of `Hello` in every direction.
pub(crate) const HELLO: u8 = 0x01;
/// Number of `Nak` in every direction.
pub(crate) const NAK: u8 = 0xff;

/// Who speaks to whom; the high byte of a [`Kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Direction {
    ToWorker = 1,
    ToSupervisor = 2,
    /// Between two workers, either way.
    Peer = 3,
}

/// Ties an answer to its request. The side that asks counts up from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transaction(pub u64);

impl Transaction {
    /// Of a message that was not asked for.
    pub const NONE: Self = Self(0);
}

/// Where the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind the header, at most [`MAX_INLINE`] bytes.
    Inline,
    /// In the message's last descriptor, more than [`MAX_INLINE`] bytes.
    Memfd,
}

/// A decoded header: every value is within its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the sender speaks; exactly one version once that is agreed.
    pub versions: VersionRange,
    /// The message's type.
    pub kind: Kind,
    /// A receiver that does not know the type must say so with a `Nak` instead of skipping it.
    pub mandatory: bool,
    /// Where the body is.
    pub place: Place,
    /// Length of the body in bytes.
    pub body_len: usize,
    /// The conversation it belongs to.
    pub transaction: Transaction,
    /// Descriptors that travel with the packet, a body's memfd included.
    pub fds: usize,
}

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than a header.
    #[error("{0} bytes are no message header")]
    Short(usize),
    /// Not the magic.
    #[error("does not start with the protocol's magic")]
    Magic,
    /// An empty version range or version 0.
    #[error("protocol range {0} to {1} is empty")]
    Versions(u16, u16),
    /// A flag or reserved bit that no version defines.
    #[error("undefined header bits are set")]
    Reserved,
    /// The body's length is beyond the bounds of the place it is in.
    #[error("a body of {0} bytes is outside its bounds")]
    BodyLength(u32),
    /// The packet does not end where the header says.
    #[error("the packet holds {found} body bytes, its header says {declared}")]
    PacketLength {
        /// Bytes the header promises behind itself.
        declared: usize,
        /// Bytes behind the header.
        found: usize,
    },
    /// More descriptors than allowed, or none although the body is in one.
    #[error("{0} descriptors are outside the bounds")]
    Fds(u16),
}

impl Header {
    /// The header as it travels.
    ///
    /// Lengths and counts beyond the protocol's bounds are written saturated, so that a receiver
    /// refuses them; the channel checks them before.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut flags = 0;
        if self.mandatory {
            flags |= FLAG_MANDATORY;
        }
        if self.place == Place::Memfd {
            flags |= FLAG_MEMFD;
        }
        let body_len = u32::try_from(self.body_len).unwrap_or(u32::MAX);
        let fds = u16::try_from(self.fds).unwrap_or(u16::MAX);
        let mut out = [0; HEADER_LEN];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&self.versions.min().0.to_le_bytes());
        out[6..8].copy_from_slice(&self.versions.max().0.to_le_bytes());
        out[8..10].copy_from_slice(&self.kind.0.to_le_bytes());
        out[10..12].copy_from_slice(&flags.to_le_bytes());
        out[12..16].copy_from_slice(&body_len.to_le_bytes());
        out[16..24].copy_from_slice(&self.transaction.0.to_le_bytes());
        out[24..26].copy_from_slice(&fds.to_le_bytes());
        out
    }

    /// Splits a packet into its checked header and the bytes behind it: the whole body when it is
    /// inline, nothing when it is in a memfd.
    ///
    /// # Errors
    /// [`FrameError`] names the first check that failed.
    pub fn decode(packet: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let Some((head, rest)) = packet.split_first_chunk::<HEADER_LEN>() else {
            return Err(FrameError::Short(packet.len()));
        };
        let [m0, m1, m2, m3, head @ ..] = *head;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(FrameError::Magic);
        }
        let [n0, n1, x0, x1, k0, k1, f0, f1, b0, b1, b2, b3, t @ .., c0, c1, r0, r1] = head;
        let (min, max) = (u16::from_le_bytes([n0, n1]), u16::from_le_bytes([x0, x1]));
        let versions =
            VersionRange::new(Version(min), Version(max)).ok_or(FrameError::Versions(min, max))?;
        let flags = u16::from_le_bytes([f0, f1]);
        if flags & !(FLAG_MANDATORY | FLAG_MEMFD) != 0 || [r0, r1] != [0, 0] {
            return Err(FrameError::Reserved);
        }
        let place = if flags & FLAG_MEMFD == 0 { Place::Inline } else { Place::Memfd };
        let declared = u32::from_le_bytes([b0, b1, b2, b3]);
        let body_len = declared as usize;
        let (lengths, in_packet, body_fds) = match place {
            Place::Inline => (0..=MAX_INLINE, body_len, 0),
            Place::Memfd => (MAX_INLINE + 1..=MAX_BODY, 0, 1),
        };
        if !lengths.contains(&body_len) {
            return Err(FrameError::BodyLength(declared));
        }
        if rest.len() != in_packet {
            return Err(FrameError::PacketLength { declared: in_packet, found: rest.len() });
        }
        let count = u16::from_le_bytes([c0, c1]);
        let fds = usize::from(count);
        if !(body_fds..=MAX_FDS + body_fds).contains(&fds) {
            return Err(FrameError::Fds(count));
        }
        let header = Self {
            versions,
            kind: Kind(u16::from_le_bytes([k0, k1])),
            mandatory: flags & FLAG_MANDATORY != 0,
            place,
            body_len,
            transaction: Transaction(u64::from_le_bytes(t)),
            fds,
        };
        Ok((header, rest))
    }
}

#[cfg(test)]
mod tests;
