//! The idle sockets of one address, and the pools of a generation.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::{KEEP, TTL};
use crate::flow::Moment;
use crate::net::{self, TcpState};

/// The idle sockets of one address. Taken from by the shards, filled by the main thread.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Oldest first.
    idle: Mutex<Vec<Idle>>,
    /// Something was taken.
    taken: Notify,
}

#[derive(Debug)]
struct Idle {
    socket: OwnedFd,
    since: Moment,
}

impl Idle {
    fn is_good(&self, now: Moment) -> bool {
        now.since(self.since) < TTL && is_alive(self.socket.as_fd())
    }
}

impl Pool {
    /// The newest socket that is alive.
    pub(crate) fn take(&self, now: Moment) -> Option<OwnedFd> {
        loop {
            // Closing and probing happen without the lock.
            let newest = self.lock().pop()?;
            self.taken.notify_one();
            if newest.is_good(now) {
                return Some(newest.socket);
            }
        }
    }

    /// Adds a socket that was connected just now.
    pub(super) fn put(&self, socket: OwnedFd, now: Moment) {
        let mut idle = self.lock();
        if idle.len() < KEEP {
            idle.push(Idle { socket, since: now });
        }
    }

    /// Closes what is too old or dead.
    pub(super) fn sweep(&self, now: Moment) {
        let kept = std::mem::take(&mut *self.lock());
        let kept: Vec<_> = kept.into_iter().filter(|idle| idle.is_good(now)).collect();
        let mut idle = self.lock();
        // Nobody else adds, so what is there now is nothing.
        idle.splice(0..0, kept);
    }

    /// Closes everything.
    pub(super) fn clear(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    /// How many there are.
    pub(crate) fn idle(&self) -> usize {
        self.lock().len()
    }

    /// Waits until something was taken.
    pub(super) async fn taken(&self) {
        self.taken.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        // A list is whole after every step.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the peer has neither closed nor reset. What it has said already does not matter, and
/// stays in the queue; its end behind that does.
fn is_alive(socket: BorrowedFd<'_>) -> bool {
    match net::peek(socket, &mut [0]) {
        Ok(0) => false,
        Ok(_) => net::tcp_state(socket).is_ok_and(|state| state == TcpState::Established),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// The pools of one generation, by address. A pool lives as long as a line that uses it.
#[derive(Debug, Default)]
pub(crate) struct Pools(Mutex<BTreeMap<Box<str>, Weak<Pool>>>);

impl Pools {
    /// The pool of an address.
    pub(crate) fn of(&self, address: &str) -> Arc<Pool> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(address).and_then(Weak::upgrade) {
            return pool;
        }
        pools.retain(|_, pool| pool.strong_count() > 0);
        let pool = Arc::default();
        pools.insert(address.into(), Arc::downgrade(&pool));
        pool
    }
}
