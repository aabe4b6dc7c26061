//! Version 2: binary.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Header;
use crate::flow::{ClientAddr, OriginalDst};

pub(super) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes up to and with the length of the payload.
pub(super) const FIXED: usize = SIGNATURE.len() + 4;
/// Longest payload that is read: addresses and what is attached to them.
pub(super) const MAX_PAYLOAD: usize = 4096;
pub(super) const VERSION_LOCAL: u8 = 0x20;
pub(super) const VERSION_PROXY: u8 = 0x21;
pub(super) const FAMILY_UNSPECIFIED: u8 = 0x00;
pub(super) const FAMILY_TCP4: u8 = 0x11;
pub(super) const FAMILY_TCP6: u8 = 0x21;
const FAMILY_UNIX_STREAM: u8 = 0x31;
const UNIX_ADDRESSES: usize = 216;

pub(super) fn parse(window: &[u8]) -> Header {
    let begun = window.len().min(SIGNATURE.len());
    if window[..begun] != SIGNATURE[..begun] {
        return Header::Malformed;
    }
    let mut fixed = window[begun..].iter().copied();
    let local = match fixed.next() {
        None => return Header::NeedMore,
        Some(VERSION_LOCAL) => true,
        Some(VERSION_PROXY) => false,
        Some(_) => return Header::Malformed,
    };
    let Some(family) = fixed.next() else { return Header::NeedMore };
    // The family of a LOCAL header is to be ignored. Of the others the datagram ones, and what
    // the specification does not define, cannot be a TCP connection.
    let known =
        matches!(family, FAMILY_UNSPECIFIED | FAMILY_TCP4 | FAMILY_TCP6 | FAMILY_UNIX_STREAM);
    if !local && !known {
        return Header::Malformed;
    }
    let (Some(high), Some(low)) = (fixed.next(), fixed.next()) else { return Header::NeedMore };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_PAYLOAD {
        return Header::Malformed;
    }
    let consumed = FIXED + length;
    let Some(payload) = window.get(FIXED..consumed) else { return Header::NeedMore };
    if local {
        return Header::Local { consumed };
    }
    let header = match family {
        FAMILY_TCP4 => tcp4(payload, consumed),
        FAMILY_TCP6 => tcp6(payload, consumed),
        FAMILY_UNIX_STREAM => unix(payload, consumed),
        _ => Some(Header::Local { consumed }),
    };
    header.unwrap_or(Header::Malformed)
}

fn tcp4(payload: &[u8], consumed: usize) -> Option<Header> {
    let (source, rest) = payload.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    proxied(Ipv4Addr::from(*source).into(), Ipv4Addr::from(*destination).into(), rest, consumed)
}

fn tcp6(payload: &[u8], consumed: usize) -> Option<Header> {
    let (source, rest) = payload.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    proxied(Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), rest, consumed)
}

fn proxied(
    source: IpAddr,
    destination: IpAddr,
    ports_and_more: &[u8],
    consumed: usize,
) -> Option<Header> {
    let (source_port, rest) = ports_and_more.split_first_chunk::<2>()?;
    let (destination_port, rest) = rest.split_first_chunk::<2>()?;
    attachments_are_whole(rest).then(|| Header::Proxied {
        source: ClientAddr::folded(SocketAddr::new(source, u16::from_be_bytes(*source_port))),
        destination: OriginalDst::folded(SocketAddr::new(
            destination,
            u16::from_be_bytes(*destination_port),
        )),
        consumed,
    })
}

/// Unix socket names say nothing a TCP gateway could use.
fn unix(payload: &[u8], consumed: usize) -> Option<Header> {
    attachments_are_whole(payload.get(UNIX_ADDRESSES..)?).then_some(Header::Local { consumed })
}

/// Whether type-length-value fields fill `rest` exactly; their content is not used.
fn attachments_are_whole(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some(([_, high, low], after)) = rest.split_first_chunk::<3>() else { return false };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(after) = after.get(length..) else { return false };
        rest = after;
    }
    true
}
