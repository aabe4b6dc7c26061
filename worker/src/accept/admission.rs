//! The limits a connection must fit into: process, rule, client address.
//!
//! The counts outlive configurations: a listener keeps its counts when it is reloaded, removed
//! or added again while connections of it live, so a reload never opens the door wider than
//! the limits say. Slots are taken one by one in the order policy asks for them and given back
//! together by [`Gate::leave`]; `Permit` in `generation` calls it when it is dropped.
//!
//! A refused client costs no more than these few atomic operations; the per-address map is
//! locked for one look-up and is spread over stripes so that shards rarely meet.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Stripes of a per-address map: more than any sensible number of shards.
const STRIPES: usize = 16;

/// Why a client is not let in; the value of the `reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The kernel gave no usable peer address.
    InvalidRemoteAddress,
    /// Untrusted hop, or a missing or malformed PROXY header.
    ProxyProtocol,
    /// The process is full.
    GlobalConnectionLimit,
    /// The rule, or the client's share of it, is full.
    ConnectionLimit,
    /// Blacklisted, or outside the allowlist.
    AccessPolicy,
}

impl Refusal {
    /// Every reason, in the order of [`Refusal::index`].
    pub(crate) const ALL: [Self; 5] = [
        Self::InvalidRemoteAddress,
        Self::ProxyProtocol,
        Self::GlobalConnectionLimit,
        Self::ConnectionLimit,
        Self::AccessPolicy,
    ];

    /// Position in tables by reason.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// The label's value.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRemoteAddress => "invalid_remote_address",
            Self::ProxyProtocol => "proxy_protocol",
            Self::GlobalConnectionLimit => "global_connection_limit",
            Self::ConnectionLimit => "connection_limit",
            Self::AccessPolicy => "access_policy",
        }
    }
}

/// Live client connections of the process.
#[derive(Debug, Default)]
pub struct ProcessCount {
    live: AtomicU32,
    /// Somebody waits for the count to become zero.
    watched: AtomicBool,
    empty: Notify,
}

impl ProcessCount {
    /// Live connections.
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// Returns when no connection lives. Meaningful once accepting has stopped.
    pub(crate) async fn emptied(&self) {
        self.watched.store(true, Ordering::SeqCst);
        while self.live.load(Ordering::SeqCst) != 0 {
            self.empty.notified().await;
        }
    }

    /// Counts a connection that is served already, whatever the limit.
    pub(crate) fn adopt(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, limit: u32) -> bool {
        enter(&self.live, limit)
    }

    /// Gives a place back.
    pub(crate) fn leave(&self) {
        // SeqCst pairs with `emptied`: either it sees the zero or we see that it watches.
        if self.live.fetch_sub(1, Ordering::SeqCst) == 1 && self.watched.load(Ordering::SeqCst) {
            self.empty.notify_one();
        }
    }
}

/// Live connections of one listener, whatever generation let them in.
#[derive(Debug, Default)]
pub struct ListenerCount {
    live: AtomicU32,
    clients: Clients,
}

impl ListenerCount {
    /// Live connections.
    #[cfg(test)]
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }
}

/// The limits of one rule over the counts they apply to.
#[derive(Debug)]
pub struct Gate {
    process: Arc<ProcessCount>,
    listener: Arc<ListenerCount>,
    process_limit: u32,
    rule_limit: u32,
    /// Absent when the rule's own limit is not higher: then it can never be the one that counts.
    client_limit: Option<u32>,
}

impl Gate {
    /// A gate with these limits.
    pub fn new(
        process: Arc<ProcessCount>,
        listener: Arc<ListenerCount>,
        process_limit: u32,
        rule_limit: u32,
        client_limit: u32,
    ) -> Self {
        let client_limit = (client_limit < rule_limit).then_some(client_limit);
        Self { process, listener, process_limit, rule_limit, client_limit }
    }

    /// Takes the process slot and the rule slot, or neither.
    pub fn enter(&self) -> Result<(), Refusal> {
        if !self.process.enter(self.process_limit) {
            return Err(Refusal::GlobalConnectionLimit);
        }
        if !enter(&self.listener.live, self.rule_limit) {
            self.process.leave();
            return Err(Refusal::ConnectionLimit);
        }
        Ok(())
    }

    /// Takes the client's slot; returns the address to give back on leaving, if it is counted.
    pub fn enter_client(&self, ip: IpAddr) -> Result<Option<IpAddr>, Refusal> {
        match self.client_limit {
            None => Ok(None),
            Some(limit) if self.listener.clients.enter(ip, limit) => Ok(Some(ip)),
            Some(_) => Err(Refusal::ConnectionLimit),
        }
    }

    /// Takes all slots of a connection that is served already, whatever the limits; returns the
    /// address to give back on leaving, if it is counted.
    pub(crate) fn adopt(&self, ip: IpAddr) -> Option<IpAddr> {
        self.process.adopt();
        self.listener.live.fetch_add(1, Ordering::Relaxed);
        // Without a limit there is nothing that may refuse.
        self.client_limit.filter(|_| self.listener.clients.enter(ip, u32::MAX)).map(|_| ip)
    }

    /// Gives back what `enter` took and, with an address, what `enter_client` took.
    pub fn leave(&self, client: Option<IpAddr>) {
        if let Some(ip) = client {
            self.listener.clients.leave(ip);
        }
        self.listener.live.fetch_sub(1, Ordering::Relaxed);
        self.process.leave();
    }
}

/// Adds one unless the limit is reached. Optimistic: in the usual case one atomic addition.
fn enter(live: &AtomicU32, limit: u32) -> bool {
    if live.fetch_add(1, Ordering::Relaxed) < limit {
        return true;
    }
    live.fetch_sub(1, Ordering::Relaxed);
    false
}

/// Live connections by client address.
#[derive(Debug, Default)]
struct Clients {
    stripes: [Mutex<HashMap<IpAddr, u32, RandomState>>; STRIPES],
    // Keyed by chance like the maps, so that a client cannot choose its stripe.
    hasher: RandomState,
}

impl Clients {
    fn enter(&self, ip: IpAddr, limit: u32) -> bool {
        let mut stripe = self.stripe(ip).lock().unwrap_or_else(PoisonError::into_inner);
        match stripe.entry(ip) {
            Entry::Vacant(entry) => {
                entry.insert(1);
                true
            }
            Entry::Occupied(mut entry) => {
                let room = *entry.get() < limit;
                if room {
                    *entry.get_mut() += 1;
                }
                room
            }
        }
    }

    fn leave(&self, ip: IpAddr) {
        let mut stripe = self.stripe(ip).lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = stripe.entry(ip) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    fn stripe(&self, ip: IpAddr) -> &Mutex<HashMap<IpAddr, u32, RandomState>> {
        let hash = self.hasher.hash_one(ip);
        // The high bits choose, the low bits serve the map inside.
        let index = usize::try_from(hash >> 60).unwrap_or(0) % STRIPES;
        &self.stripes[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(process: u32, rule: u32, client: u32) -> Gate {
        Gate::new(Arc::default(), Arc::default(), process, rule, client)
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn the_process_limit_is_shared_by_all_rules() {
        let process = Arc::<ProcessCount>::default();
        let one = Gate::new(Arc::clone(&process), Arc::default(), 2, 10, 10);
        let two = Gate::new(Arc::clone(&process), Arc::default(), 2, 10, 10);
        assert_eq!(one.enter(), Ok(()));
        assert_eq!(two.enter(), Ok(()));
        assert_eq!(one.enter(), Err(Refusal::GlobalConnectionLimit));
        two.leave(None);
        assert_eq!(one.enter(), Ok(()));
        assert_eq!(process.live(), 2);
    }

    #[test]
    fn a_rule_that_is_full_gives_the_process_slot_back() {
        let gate = gate(10, 1, 1);
        assert_eq!(gate.enter(), Ok(()));
        assert_eq!(gate.enter(), Err(Refusal::ConnectionLimit));
        assert_eq!(gate.process.live(), 1);
        assert_eq!(gate.listener.live(), 1);
    }

    #[test]
    fn one_address_cannot_take_the_whole_rule() {
        let gate = gate(10, 10, 2);
        for _ in 0..2 {
            gate.enter().unwrap();
            assert_eq!(gate.enter_client(ip(1)), Ok(Some(ip(1))));
        }
        assert_eq!(gate.enter_client(ip(1)), Err(Refusal::ConnectionLimit));
        assert_eq!(gate.enter_client(ip(2)), Ok(Some(ip(2))));
        gate.leave(Some(ip(1)));
        assert_eq!(gate.enter_client(ip(1)), Ok(Some(ip(1))));
    }

    #[test]
    fn addresses_that_have_left_take_no_memory() {
        let gate = gate(10, 10, 2);
        gate.enter().unwrap();
        let client = gate.enter_client(ip(1)).unwrap();
        gate.leave(client);
        let kept: usize =
            gate.listener.clients.stripes.iter().map(|stripe| stripe.lock().unwrap().len()).sum();
        assert_eq!(kept, 0);
    }

    #[test]
    fn a_connection_from_another_process_is_counted_beyond_every_limit() {
        let gate = gate(1, 1, 0);
        let clients: Vec<_> = (0..3).map(|_| gate.adopt(ip(1))).collect();
        assert_eq!((gate.process.live(), gate.listener.live()), (3, 3));
        assert_eq!(gate.enter(), Err(Refusal::GlobalConnectionLimit));
        clients.into_iter().for_each(|client| gate.leave(client));
        assert_eq!((gate.process.live(), gate.listener.live()), (0, 0));
        gate.enter().unwrap();
    }

    #[test]
    fn counts_survive_a_change_of_limits() {
        let process = Arc::<ProcessCount>::default();
        let listener = Arc::<ListenerCount>::default();
        let old = Gate::new(Arc::clone(&process), Arc::clone(&listener), 10, 2, 2);
        old.enter().unwrap();
        old.enter().unwrap();
        let new = Gate::new(process, listener, 10, 3, 3);
        assert_eq!(new.enter(), Ok(()));
        assert_eq!(new.enter(), Err(Refusal::ConnectionLimit));
        old.leave(None);
        assert_eq!(new.enter(), Ok(()));
    }

    #[test]
    fn limits_hold_under_contention() {
        let gate = Arc::new(gate(1000, 50, 20));
        let entered: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..1000).filter(|_| gate.enter().is_ok()).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(entered, 50);
        assert_eq!(gate.listener.live(), 50);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_last_connection_wakes_who_waits_for_it() {
        let gate = gate(10, 10, 10);
        gate.enter().unwrap();
        let process = Arc::clone(&gate.process);
        let waiting = tokio::spawn(async move { process.emptied().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        gate.leave(None);
        waiting.await.unwrap();
    }
}
