//! Taking a connection from a listener.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::libc;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Accepts one connection: non-blocking, close-on-exec, with the peer's address, in one call.
///
/// # Errors
/// `WouldBlock` when the queue is empty; `EMFILE`, `ENFILE`, `ENOMEM` and the errors of a
/// connection that died in the queue (`ECONNABORTED`) as the kernel reports them;
/// `InvalidData` for a peer that is not an Internet address.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let (socket, peer) = SockRef::from(&listener).accept4(flags)?;
    let peer = peer
        .as_socket()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "peer is not an IP address"))?;
    Ok((socket.into(), peer))
}

/// Registers a listening socket with the current runtime, for readiness to accept:
/// edge-triggered and not exclusive, so that every thread and process that polls it is woken.
///
/// `O_NONBLOCK` belongs to the description shared with other processes; it is set here once
/// more because a blocking accept would hang a whole shard.
///
/// # Errors
/// When epoll refuses (`ENOMEM`, `ENOSPC`); this descriptor is then closed, the listener and its
/// other descriptors are untouched.
///
/// # Panics
/// Outside a tokio runtime with I/O enabled, as `AsyncFd` does.
pub fn register_listener(listener: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    SockRef::from(&listener).set_nonblocking(true)?;
    // SAFETY: an `OwnedFd` is open and names one description for as long as the `AsyncFd` owns
    // it; nothing here closes or replaces the number behind its back.
    let registered = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}
