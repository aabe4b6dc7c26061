//! Version 1: one line of text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::Header;
use crate::flow::{ClientAddr, OriginalDst};

/// Longest line with its CRLF. The specification's own worst case is 107, its advice for the
/// buffer 108.
const MAX_LINE: usize = 108;
const PREFIX: &[u8] = b"PROXY ";

pub(super) fn parse(window: &[u8]) -> Header {
    let window = &window[..window.len().min(MAX_LINE)];
    let begun = window.len().min(PREFIX.len());
    if window[..begun] != PREFIX[..begun] {
        return Header::Malformed;
    }
    let incomplete = if window.len() < MAX_LINE { Header::NeedMore } else { Header::Malformed };
    let Some(end) = window.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return incomplete;
    };
    match window[end..] {
        [b'\r'] => incomplete,
        [b'\r', b'\n', ..] => {
            parse_line(&window[PREFIX.len()..end], end + 2).unwrap_or(Header::Malformed)
        }
        _ => Header::Malformed,
    }
}

/// Parses what is between the prefix and the CRLF.
fn parse_line(line: &[u8], consumed: usize) -> Option<Header> {
    // Whatever a hop writes after UNKNOWN is to be ignored.
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Some(Header::Local { consumed });
    }
    let mut fields = std::str::from_utf8(line).ok()?.split(' ');
    let address = match fields.next()? {
        "TCP4" => |text| Ipv4Addr::from_str(text).ok().map(IpAddr::V4),
        "TCP6" => |text| Ipv6Addr::from_str(text).ok().map(IpAddr::V6),
        _ => return None,
    };
    let source: IpAddr = address(fields.next()?)?;
    let destination: IpAddr = address(fields.next()?)?;
    let source_port = port(fields.next()?)?;
    let destination_port = port(fields.next()?)?;
    if fields.next().is_some() {
        return None;
    }
    Some(Header::Proxied {
        source: ClientAddr::folded(SocketAddr::new(source, source_port)),
        destination: OriginalDst::folded(SocketAddr::new(destination, destination_port)),
        consumed,
    })
}

/// A decimal without sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if !digits || padded { None } else { text.parse().ok() }
}
