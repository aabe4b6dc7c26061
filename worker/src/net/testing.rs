//! Loopback sockets for tests of this crate.
//!
//! The tests of a crate run side by side in one process, on a machine that may be busy with
//! something else. So a port is never given back before it is used: its next owner may be another
//! test. And a process that a neighbour is just starting holds copies of every descriptor for a
//! moment: what must be gone at once is shut down, not only closed.
#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Socket, Type};

/// After this a test waits in vain. Far beyond what anything here takes on a busy machine, so it
/// decides only whether a broken test ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A connected pair: the near end as std's blocking stream (the test's), the far end as the
/// gateway has it after accept.
pub(crate) fn accepted_pair() -> (TcpStream, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nodelay(true).unwrap();
    let (far, _) = super::accept(listener.as_fd()).unwrap();
    (near, far)
}

/// An address of this caller's own for as long as the process lives. Nobody listens there, so it
/// refuses, until the caller binds a listener of std or one with `SO_REUSEADDR`; again when that
/// one is closed.
pub(crate) fn own_address() -> SocketAddr {
    /// Bound and not listening, they keep the kernel from giving the port to anybody else.
    static KEPT: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    address
}

/// A listener whose accept queue is full: further connects are neither answered nor refused.
/// The returned streams fill the queue and must live as long as the listener.
pub(crate) fn black_hole() -> (TcpListener, Vec<OwnedFd>, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    // One is taken in above the backlog.
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let fill = TcpStream::connect(address).unwrap();
    // The connecting side is done before the last packet has filled the queue.
    readable(listener.as_fd());
    (listener, vec![fill.into()], address)
}

/// Waits until there is something to take: bytes, an end, a reset, a connection.
pub(crate) fn readable(socket: impl AsFd) {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut polled, PollTimeout::NONE).unwrap(), 1);
}

/// Waits until `condition` holds, giving the kernel the processor meanwhile.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never came: {what}");
        std::thread::yield_now();
    }
}
