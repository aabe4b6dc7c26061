//! The listening sockets: bound or adopted once, held until no configuration wants them.
//!
//! One socket per address, kept for ever, and never `shutdown()`: a shutdown on one descriptor
//! stops the socket for every process that holds it, and closing one of several SO_REUSEPORT
//! sockets resets what waits in its queue.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use crate::reexec::{Left, SavedListener};
use baton_handoff::message::{ListenerKey, ListenerRole, ListenerWanted};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// Connections the kernel may hold for us while no worker accepts; it cuts this to
/// `net.core.somaxconn`, whose default is the same number.
const BACKLOG: i32 = 4096;

/// Both ends of a relay are probed after this much silence, so that a peer that has vanished is
/// noticed. Accepted sockets inherit it, as they inherit TCP_NODELAY.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A socket in our keeping.
#[derive(Debug)]
struct Held {
    /// Shared with messages that are on their way to a worker.
    socket: Rc<Socket>,
    rule: String,
    role: ListenerRole,
    address: SocketAddr,
    inode: u64,
}

/// What `baton status` shows of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenerInfo {
    /// The rule's name.
    pub(crate) rule: String,
    /// What it is for.
    pub(crate) role: ListenerRole,
    /// The bound address.
    pub(crate) address: SocketAddr,
    /// Identifies the socket across processes.
    pub(crate) inode: u64,
}

/// Every listening socket of the instance.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    held: BTreeMap<ListenerKey, Held>,
    /// Given by the service manager, not yet claimed by a configuration.
    spare: Vec<(SocketAddr, Socket)>,
}

/// What the service manager keeps a listener under: the same socket has the same name in every
/// process, and the manager allows no colon, which most addresses have.
pub(crate) fn store_name(inode: u64) -> String {
    format!("listener-{inode}")
}

/// A socket of the service manager that no configuration wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unclaimed {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Identifies it across processes.
    pub(crate) inode: u64,
}

impl Listeners {
    /// Takes sockets of the service manager; what is no listening TCP socket is handed back by
    /// index with the reason.
    pub(crate) fn adopt(&mut self, sockets: Vec<OwnedFd>) -> Vec<(usize, io::Error)> {
        let mut refused = Vec::new();
        for (index, fd) in sockets.into_iter().enumerate() {
            let socket = Socket::from(fd);
            match adoptable(&socket) {
                Ok(address) => self.spare.push((address, socket)),
                Err(error) => refused.push((index, error)),
            }
        }
        refused
    }

    /// Binds or claims what of `wanted` is not held yet: all of it, or nothing.
    ///
    /// Returns the keys that are new, so that an abort can give them back.
    ///
    /// # Errors
    /// Every failure, as `listen <rule> at <addr>: <os error>`.
    pub(crate) fn bind_missing(
        &mut self,
        wanted: &[ListenerWanted],
    ) -> Result<Vec<ListenerKey>, Vec<String>> {
        let mut fresh = BTreeMap::new();
        let mut problems = Vec::new();
        for want in wanted {
            if self.held.contains_key(&want.key) {
                continue;
            }
            match self.obtain(want) {
                Ok(held) => {
                    fresh.insert(want.key.clone(), held);
                }
                Err(error) => {
                    problems.push(format!("listen {} at {}: {error}", want.rule, want.key.0));
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let keys = fresh.keys().cloned().collect();
        self.held.append(&mut fresh);
        Ok(keys)
    }

    /// Every listener, to be left open for the next image of this process.
    pub(crate) fn saved<'a>(&'a self, left: &mut Left<'a>) -> Vec<SavedListener> {
        let saved = |(key, held): (&ListenerKey, &'a Held)| SavedListener {
            key: key.0.clone(),
            rule: held.rule.clone(),
            role: held.role.into(),
            fd: left.leave(held.socket.as_fd()),
        };
        self.held.iter().map(saved).collect()
    }

    /// Takes over a listener of the former image of this process.
    ///
    /// # Errors
    /// When it is no listening IP socket.
    pub(crate) fn resume(
        &mut self,
        key: String,
        rule: String,
        role: ListenerRole,
        socket: OwnedFd,
    ) -> io::Result<()> {
        let socket = Socket::from(socket);
        let (address, inode) = (adoptable(&socket)?, inode(&socket)?);
        let held = Held { socket: Rc::new(socket), rule, role, address, inode };
        self.held.insert(ListenerKey(key), held);
        Ok(())
    }

    /// Takes over names and roles of an accepted configuration.
    pub(crate) fn name(&mut self, plan: &[ListenerWanted]) {
        for want in plan {
            if let Some(held) = self.held.get_mut(&want.key) {
                held.rule.clone_from(&want.rule);
                held.role = want.role;
            }
        }
    }

    fn obtain(&mut self, want: &ListenerWanted) -> io::Result<Held> {
        let claimed = self.spare.iter().position(|(address, _)| serves(*address, want));
        let socket = match claimed {
            Some(index) => self.spare.swap_remove(index).1,
            None => bind(want)?,
        };
        configure(&socket)?;
        let address = local_address(&socket)?;
        let inode = inode(&socket)?;
        Ok(Held {
            socket: Rc::new(socket),
            rule: want.rule.clone(),
            role: want.role,
            address,
            inode,
        })
    }

    /// Closes the sockets of these keys.
    pub(crate) fn close(&mut self, keys: &[ListenerKey]) {
        for key in keys {
            self.held.remove(key);
        }
    }

    /// Closes what the service manager gave and no configuration wanted. A second copy of a socket
    /// that is held (it was kept, and a worker returned it as well) goes without a word.
    pub(crate) fn close_unclaimed(&mut self) -> Vec<Unclaimed> {
        let spare = std::mem::take(&mut self.spare);
        let unclaimed = spare.into_iter().filter_map(|(address, socket)| {
            Some(Unclaimed { address, inode: inode(&socket).ok()? })
        });
        unclaimed
            .filter(|socket| !self.held.values().any(|held| held.inode == socket.inode))
            .collect()
    }

    /// The sockets of `keys` that are held, by inode.
    pub(crate) fn inodes<'a>(
        &'a self,
        keys: &'a [ListenerKey],
    ) -> impl Iterator<Item = (u64, BorrowedFd<'a>)> {
        let held = keys.iter().filter_map(|key| self.held.get(key));
        held.map(|held| (held.inode, held.socket.as_fd()))
    }

    /// The sockets of `keys`, in their order; `None` when one of them is not held.
    pub(crate) fn sockets(&self, keys: &[ListenerKey]) -> Option<Vec<Rc<Socket>>> {
        keys.iter().map(|key| self.held.get(key).map(|held| Rc::clone(&held.socket))).collect()
    }

    /// How many are held.
    pub(crate) fn count(&self) -> usize {
        self.held.len()
    }

    /// All sockets held, by key.
    pub(crate) fn info(&self) -> Vec<ListenerInfo> {
        self.held
            .values()
            .map(|held| ListenerInfo {
                rule: held.rule.clone(),
                role: held.role,
                address: held.address,
                inode: held.inode,
            })
            .collect()
    }
}

fn adoptable(socket: &Socket) -> io::Result<SocketAddr> {
    if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a listening stream socket"));
    }
    local_address(socket)
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not an IP socket"))
}

fn serves(address: SocketAddr, want: &ListenerWanted) -> bool {
    address == want.address
        || want.dual_stack && address.ip().is_unspecified() && address.port() == want.address.port()
}

fn bind(want: &ListenerWanted) -> io::Result<Socket> {
    match bind_to(want.address, want.dual_stack) {
        Err(error) if want.dual_stack && lacks_ipv6(&error) => {
            bind_to(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), want.address.port()), false)
        }
        result => result,
    }
}

fn lacks_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::EAFNOSUPPORT | nix::libc::EADDRNOTAVAIL))
}

fn bind_to(address: SocketAddr, dual_stack: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!dual_stack)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn configure(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))
}

fn inode(socket: &Socket) -> io::Result<u64> {
    Ok(nix::sys::stat::fstat(socket.as_fd())?.st_ino)
}

#[cfg(test)]
#[path = "listeners/tests.rs"]
mod tests;
