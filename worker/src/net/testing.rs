//! Loopback sockets for tests of this crate.
#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

/// A connected pair: the near end as std's blocking stream (the test's), the far end as the
/// gateway has it after accept.
pub(crate) fn accepted_pair() -> (TcpStream, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nodelay(true).unwrap();
    let (far, _) = super::accept(listener.as_fd()).unwrap();
    (near, far)
}

/// A listener whose accept queue is full: further connects are neither answered nor refused.
/// The returned streams fill the queue and must live as long as the listener.
pub(crate) fn black_hole() -> (TcpListener, Vec<OwnedFd>, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut fill = Vec::new();
    loop {
        let (fd, progress) = super::connect(address).unwrap();
        fill.push(fd);
        if progress == super::Connecting::Pending {
            return (listener, fill, address);
        }
    }
}

/// Waits until `condition` holds, giving the kernel the processor meanwhile.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed().as_secs() < 20, "never came: {what}");
        std::thread::yield_now();
    }
}
