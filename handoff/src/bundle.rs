//! The descriptors of one message, and what each message may carry.
//!
//! Descriptors arrive owned, so whatever check fails, dropping the bundle closes them all: none
//! is ever left behind in the table of a process that does not know it has it.

use crate::fault::Fault;
use crate::frame::{Header, Kind, Place};
use crate::memfd::unseal;
use nix::sys::stat::{SFlag, fstat};
use socket2::{Domain, Protocol, SockRef, Type};
use std::os::fd::OwnedFd;

/// What a descriptor has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    /// A TCP socket over IPv4 or IPv6 that listens.
    Listener,
    /// The metrics region: a regular file, which a memfd is too.
    Region,
    /// A Unix SEQPACKET socket that listens: where an orphan waits for a supervisor.
    Adoption,
    /// A part of a connection: a TCP socket over IPv4 or IPv6 that does not listen, or a pipe.
    Connection,
    /// One end of a pair of Unix SEQPACKET sockets.
    Channel,
    /// A part of a lifeline: a connection table or a keeper's socket. Whether each comes where it
    /// belongs shows when it is used.
    Lifeline,
}

/// How many descriptors a message travels with, and of which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carries {
    pub(crate) kind: DescriptorKind,
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl Carries {
    /// No descriptor at all.
    pub(crate) const NOTHING: Self = Self { kind: DescriptorKind::Region, least: 0, most: 0 };

    pub(crate) fn allows(self, count: usize) -> bool {
        (self.least..=self.most).contains(&count)
    }
}

impl DescriptorKind {
    fn text(self) -> &'static str {
        match self {
            Self::Listener => "a listening TCP socket",
            Self::Region => "a regular file or memfd",
            Self::Adoption => "a listening Unix socket for packets",
            Self::Connection => "a TCP connection or a pipe",
            Self::Channel => "a connected Unix socket for packets",
            Self::Lifeline => "a memfd or a connected Unix socket for packets",
        }
    }

    fn matches(self, fd: &OwnedFd) -> bool {
        match self {
            Self::Listener => is_tcp(fd, true),
            Self::Region => has_type(fd, SFlag::S_IFREG),
            Self::Adoption => is_packets(fd, true),
            Self::Channel => is_packets(fd, false),
            Self::Lifeline => has_type(fd, SFlag::S_IFREG) || is_packets(fd, false),
            Self::Connection => has_type(fd, SFlag::S_IFIFO) || is_tcp(fd, false),
        }
    }
}

/// A failing question means that it is no socket, or not of this kind: either way not taken.
fn is_tcp(fd: &OwnedFd, listens: bool) -> bool {
    let socket = SockRef::from(fd);
    matches!(socket.r#type(), Ok(Type::STREAM))
        && matches!(socket.domain(), Ok(Domain::IPV4 | Domain::IPV6))
        && matches!(socket.protocol(), Ok(Some(Protocol::TCP)))
        && matches!(socket.is_listener(), Ok(found) if found == listens)
}

fn is_packets(fd: &OwnedFd, listens: bool) -> bool {
    let socket = SockRef::from(fd);
    matches!(socket.r#type(), Ok(Type::SEQPACKET))
        && matches!(socket.domain(), Ok(Domain::UNIX))
        && matches!(socket.is_listener(), Ok(found) if found == listens)
}

fn has_type(fd: &OwnedFd, kind: SFlag) -> bool {
    fstat(fd).is_ok_and(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind)
}

/// Received descriptors whose number agrees with the header.
#[derive(Debug)]
pub(crate) struct Bundle {
    kind: Kind,
    fds: Vec<OwnedFd>,
}

impl Bundle {
    /// Pairs the descriptors of a message with its header.
    ///
    /// `lost`: the kernel said that it dropped some (`MSG_CTRUNC`).
    pub(crate) fn pair(header: &Header, fds: Vec<OwnedFd>, lost: bool) -> Result<Self, Fault> {
        let (kind, declared, received) = (header.kind, header.fds, fds.len());
        if lost {
            Err(Fault::Lost { kind, declared, received })
        } else if declared != received {
            Err(Fault::Count { kind, declared, received })
        } else {
            Ok(Self { kind, fds })
        }
    }

    /// Takes the body out of the last descriptor, if that is where it is.
    pub(crate) fn take_body(&mut self, header: &Header) -> Result<Option<Vec<u8>>, Fault> {
        match header.place {
            Place::Inline => Ok(None),
            Place::Memfd => {
                let Some(fd) = self.fds.pop() else {
                    return Err(Fault::Count { kind: self.kind, declared: 1, received: 0 });
                };
                let body = unseal(fd, header.body_len)
                    .map_err(|source| Fault::Memfd { kind: self.kind, source })?;
                Ok(Some(body))
            }
        }
    }

    /// Hands the descriptors out once all of them are what the message says.
    pub(crate) fn check(self, carries: Carries) -> Result<Vec<OwnedFd>, Fault> {
        let Self { kind, fds } = self;
        if !carries.allows(fds.len()) {
            let Carries { least, most, .. } = carries;
            return Err(Fault::Manifest { kind, least, most, received: fds.len() });
        }
        match fds.iter().position(|fd| !carries.kind.matches(fd)) {
            Some(index) => Err(Fault::Descriptor { kind, index, expected: carries.kind.text() }),
            None => Ok(fds),
        }
    }
}

#[cfg(test)]
mod tests;
