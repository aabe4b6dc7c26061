//! Taking a connection from a listener.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::libc;
use socket2::SockRef;

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
