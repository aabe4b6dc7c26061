//! Non-blocking connect.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::libc;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// How far a connect is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connecting {
    /// Established.
    Done,
    /// The peer has not answered; wait for writability, then [`confirm`].
    Pending,
}

/// A socket that is connecting, or has connected, to `address`; without Nagle's delay. Keep-alive is
/// set later, on those that live long enough to need it ([`super::keep_alive`]).
///
/// Asks a second time at once: on loopback the handshake is over when the first `connect`
/// returns `EINPROGRESS`, and knowing it saves an epoll round trip.
///
/// # Errors
/// Those of `socket`, `setsockopt` and `connect`; `EADDRNOTAVAIL`, `EMFILE` and the like are our own
/// lack, the rest (refused, unreachable) is the peer's.
pub fn connect(address: SocketAddr) -> io::Result<(OwnedFd, Connecting)> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    let fd = OwnedFd::from(socket);
    SockRef::from(&fd).set_tcp_nodelay(true)?;
    match attempt(fd.as_fd(), address)? {
        Connecting::Done => Ok((fd, Connecting::Done)),
        Connecting::Pending => {
            let progress = confirm(fd.as_fd(), address)?;
            Ok((fd, progress))
        }
    }
}

/// Asks how the connect to `address` ended, by calling `connect` again: unlike `SO_ERROR` it
/// tells "not yet" from "established".
///
/// # Errors
/// The error the connect failed with.
pub fn confirm(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<Connecting> {
    attempt(socket, address)
}

fn attempt(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<Connecting> {
    match SockRef::from(&socket).connect(&SockAddr::from(address)) {
        Ok(()) => Ok(Connecting::Done),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINPROGRESS | libc::EALREADY | libc::EINTR) => Ok(Connecting::Pending),
            Some(libc::EISCONN) => Ok(Connecting::Done),
            Some(_) | None => Err(error),
        },
    }
}
