//! Loopback addresses of a test's own.
//!
//! A configuration needs its ports before anything is bound, and a port that was free a moment ago
//! may be taken by a neighbour. All of 127.0.0.0/8 is ours, though: a test with an address nobody
//! else uses may take any port on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use socket2::{Domain, Socket, Type};

/// Below the ports that the kernel takes for outgoing connections, and above those of
/// [`Loopback::next`].
static EVERYWHERE: AtomicU16 = AtomicU16::new(0);
static TESTS: AtomicU8 = AtomicU8::new(0);

/// One test's address, and its ports in turn.
#[derive(Debug)]
pub(crate) struct Loopback {
    ip: Ipv4Addr,
    next: AtomicU16,
}

impl Loopback {
    /// An address that no other test of this or a neighbouring process uses.
    pub(crate) fn unique() -> Self {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let test = TESTS.fetch_add(1, Ordering::Relaxed);
        let ip = Ipv4Addr::new(127, 16 + test % 224, high, low.clamp(1, 254));
        // Below the range the kernel takes ports of outgoing connections from.
        Self { ip, next: AtomicU16::new(10_000) }
    }

    /// A port for a listener at every address of the machine, where a test cannot have an
    /// address of its own. Not handed out before, and out of the way of all others.
    pub(crate) fn everywhere() -> u16 {
        let first = 20_000 + (std::process::id() % 10_000) as u16;
        loop {
            let port = first + EVERYWHERE.fetch_add(1, Ordering::Relaxed);
            // Bound only: a copy of it in a process that is just starting hinders no listener.
            let socket = Socket::new(Domain::IPV6, Type::STREAM, None)
                .or_else(|_| Socket::new(Domain::IPV4, Type::STREAM, None))
                .unwrap();
            socket.set_reuse_address(true).unwrap();
            let every: IpAddr = match socket.domain().unwrap() {
                Domain::IPV6 => Ipv6Addr::UNSPECIFIED.into(),
                _ => Ipv4Addr::UNSPECIFIED.into(),
            };
            if socket.bind(&SocketAddr::new(every, port).into()).is_ok() {
                return port;
            }
        }
    }

    /// The address without port.
    pub(crate) fn ip(&self) -> IpAddr {
        self.ip.into()
    }

    /// A port that was not handed out before.
    pub(crate) fn next(&self) -> SocketAddr {
        SocketAddr::new(self.ip(), self.next.fetch_add(1, Ordering::Relaxed))
    }
}
