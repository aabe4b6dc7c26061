//! The PROXY protocol, both versions, in and out.
//!
//! Own code on the way in: the `proxy-header` crate reads headers that are not legal (a `+` or
//! leading zeros in a port, anything after `UNKNOWN`, over-long lines, TLVs beyond their end),
//! refuses a LOCAL header for its address family, which must be ignored, and takes garbage for a
//! header that is still too short. On the way out a v1 line must spell an IPv4-mapped address in
//! the grammar of the specification, which the standard formatting does not. The crate serves
//! as the second opinion of the tests.
//!
//! A header is asked of trusted hops only, and then it must be there, complete and legal.
//! Everything that is not is [`Header::Malformed`], told as soon as it shows. Both versions may
//! be cut anywhere; a v1 line is at most 108 bytes and read again from its start, a v2 header is
//! looked at again only when it is complete, so one byte at a time costs no more than it weighs.

mod encode;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

use crate::flow::{ClientAddr, OriginalDst};

pub use encode::{Encoded, encode, encode_probe, encode_unknown};

/// Most bytes of a header that is accepted: 16 and a v2 payload of 4 KiB.
pub const LIMIT: usize = v2::FIXED + v2::MAX_PAYLOAD;

/// What stands at the beginning of a connection from a trusted hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// So far it is one, but it is not complete.
    NeedMore,
    /// A proxied connection.
    Proxied {
        /// The client, IPv4-mapped folded to IPv4.
        source: ClientAddr,
        /// Where it had connected, IPv4-mapped folded to IPv4.
        destination: OriginalDst,
        /// Bytes of the header; what follows is the client's.
        consumed: usize,
    },
    /// The hop speaks for itself or names no address: the TCP peer is the client.
    Local {
        /// Bytes of the header; what follows is the client's.
        consumed: usize,
    },
    /// No legal header: the connection is to be refused.
    Malformed,
}

/// Reads the header at the start of `window`, everything that has come so far.
#[must_use]
pub fn parse(window: &[u8]) -> Header {
    match window.first() {
        None => Header::NeedMore,
        Some(b'P') => v1::parse(window),
        Some(b'\r') => v2::parse(window),
        Some(_) => Header::Malformed,
    }
}
