//! The header written first on an upstream connection.

use std::io::{Cursor, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use baton_config::model::ProxyVersion;

use super::v2;

/// The specification's longest line; a v2 header of ours has 52 bytes.
const CAPACITY: usize = 107;

/// A header's bytes, without an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The header of a client's connection: who connected, and to what.
///
/// A header has one family. IPv4-mapped addresses count as IPv4; if only one side is IPv4, it is
/// mapped, and both are sent as IPv6. Scope and flow label of an IPv6 address are not sent.
#[must_use]
pub fn encode(version: ProxyVersion, source: SocketAddr, destination: SocketAddr) -> Encoded {
    let (source_ip, destination_ip) = one_family(source.ip(), destination.ip());
    let ports = (source.port(), destination.port());
    match version {
        ProxyVersion::V1 => build(|out| v1(out, source_ip, destination_ip, ports)),
        ProxyVersion::V2 => build(|out| v2(out, source_ip, destination_ip, ports)),
    }
}

/// The header of a connection of our own, such as a health check: `local` and `peer` are its
/// ends. Version 2 has a form for this that names no address.
#[must_use]
pub fn encode_probe(version: ProxyVersion, local: SocketAddr, peer: SocketAddr) -> Encoded {
    match version {
        ProxyVersion::V1 => encode(version, local, peer),
        ProxyVersion::V2 => encode_unknown(version),
    }
}

/// The header of a connection of our own whose ends are not known when it is made: it names
/// none.
#[must_use]
pub fn encode_unknown(version: ProxyVersion) -> Encoded {
    match version {
        ProxyVersion::V1 => build(|out| out.write_all(b"PROXY UNKNOWN\r\n")),
        ProxyVersion::V2 => build(|out| {
            out.write_all(&v2::SIGNATURE)?;
            out.write_all(&[v2::VERSION_LOCAL, v2::FAMILY_UNSPECIFIED, 0, 0])
        }),
    }
}

fn one_family(source: IpAddr, destination: IpAddr) -> (IpAddr, IpAddr) {
    match (source.to_canonical(), destination.to_canonical()) {
        (IpAddr::V4(source), IpAddr::V6(_)) => (source.to_ipv6_mapped().into(), destination),
        (IpAddr::V6(_), IpAddr::V4(destination)) => (source, destination.to_ipv6_mapped().into()),
        same => same,
    }
}

type Out<'a> = Cursor<&'a mut [u8]>;

/// Runs a writer over the buffer. What does not fit is cut, which [`CAPACITY`] rules out.
fn build(write: impl FnOnce(&mut Out<'_>) -> std::io::Result<()>) -> Encoded {
    let mut bytes = [0; CAPACITY];
    let mut out = Cursor::new(&mut bytes[..]);
    let fits = write(&mut out).is_ok();
    debug_assert!(fits, "the longest header fits");
    let length = usize::try_from(out.position()).unwrap_or(CAPACITY);
    Encoded { bytes, length }
}

fn v1(
    out: &mut Out<'_>,
    source: IpAddr,
    destination: IpAddr,
    ports: (u16, u16),
) -> std::io::Result<()> {
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    write!(out, "PROXY {family} ")?;
    v1_address(out, source)?;
    write!(out, " ")?;
    v1_address(out, destination)?;
    write!(out, " {} {}\r\n", ports.0, ports.1)
}

/// The specification's grammar for IPv6 has groups and `::` only, no dotted tail.
fn v1_address(out: &mut Out<'_>, address: IpAddr) -> std::io::Result<()> {
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            let [.., high, low] = v6.segments();
            write!(out, "::ffff:{high:x}:{low:x}")
        }
        IpAddr::V4(_) | IpAddr::V6(_) => write!(out, "{address}"),
    }
}

fn v2(
    out: &mut Out<'_>,
    source: IpAddr,
    destination: IpAddr,
    ports: (u16, u16),
) -> std::io::Result<()> {
    out.write_all(&v2::SIGNATURE)?;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.write_all(&[v2::VERSION_PROXY, v2::FAMILY_TCP4, 0, 12])?;
            out.write_all(&source.octets())?;
            out.write_all(&destination.octets())?;
        }
        (source, destination) => {
            out.write_all(&[v2::VERSION_PROXY, v2::FAMILY_TCP6, 0, 36])?;
            out.write_all(&as_v6(source).octets())?;
            out.write_all(&as_v6(destination).octets())?;
        }
    }
    out.write_all(&ports.0.to_be_bytes())?;
    out.write_all(&ports.1.to_be_bytes())
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
