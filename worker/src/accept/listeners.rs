//! The listening sockets a worker holds, by their configured text.
//!
//! The supervisor owns the sockets; what is held here are copies. A key that stays keeps its
//! socket, its number and its counts across reloads. The counts of a key that went away live on
//! while connections of it do, so removing and adding a rule again is no way around its limits.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use baton_handoff::message::ListenerKey;

use crate::accept::admission::ListenerCount;

/// A listening socket within this process, never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ListenerId(pub(crate) u32);

/// A socket that is held.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    pub(crate) socket: OwnedFd,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// What the published generation uses.
    serving: HashMap<ListenerKey, Listener>,
    /// What only the pending generation uses.
    pending: HashMap<ListenerKey, Listener>,
    counts: HashMap<ListenerKey, Weak<ListenerCount>>,
    last: u32,
}

impl Listeners {
    /// The keys of the published generation.
    pub(crate) fn held(&self) -> BTreeSet<ListenerKey> {
        self.serving.keys().cloned().collect()
    }

    /// Keeps a socket for the pending generation. A copy of one that already serves is closed:
    /// the shards poll the first.
    pub(crate) fn take(&mut self, key: ListenerKey, socket: OwnedFd) {
        if self.serving.contains_key(&key) {
            return;
        }
        self.last += 1;
        self.pending.insert(key, Listener { id: ListenerId(self.last), socket });
    }

    /// Forgets what only the pending generation needed.
    pub(crate) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// The socket of a key, serving or pending.
    pub(crate) fn get(&self, key: &ListenerKey) -> Option<&Listener> {
        self.serving.get(key).or_else(|| self.pending.get(key))
    }

    /// The sockets that only the pending generation uses, and for clients.
    pub(crate) fn pending(&self, admin: &ListenerKey) -> impl Iterator<Item = &Listener> {
        self.pending.iter().filter(move |(key, _)| *key != admin).map(|(_, listener)| listener)
    }

    /// The pending generation serves now, with these keys: the rest is let go.
    pub(crate) fn promote(&mut self, keys: &BTreeSet<ListenerKey>) {
        self.serving.extend(self.pending.drain());
        self.serving.retain(|key, _| keys.contains(key));
        self.counts.retain(|_, count| count.strong_count() > 0);
    }

    /// Lets every socket go.
    pub(crate) fn clear(&mut self) {
        self.serving.clear();
        self.pending.clear();
    }

    /// The counts of a key, whether or not it listens now.
    pub(crate) fn count(&mut self, key: &ListenerKey) -> Arc<ListenerCount> {
        if let Some(count) = self.counts.get(key).and_then(Weak::upgrade) {
            return count;
        }
        let count = Arc::<ListenerCount>::default();
        self.counts.insert(key.clone(), Arc::downgrade(&count));
        count
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn key(text: &str) -> ListenerKey {
        ListenerKey(text.to_owned())
    }

    fn socket() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn a_key_that_stays_keeps_its_number_and_one_that_returns_gets_a_new_one() {
        let mut listeners = Listeners::default();
        listeners.take(key("a"), socket());
        listeners.promote(&[key("a")].into());
        let first = listeners.get(&key("a")).unwrap().id;
        listeners.take(key("a"), socket());
        assert_eq!(listeners.get(&key("a")).unwrap().id, first);
        assert_eq!(listeners.pending(&key("admin")).count(), 0);
        listeners.promote(&[].into());
        assert!(listeners.get(&key("a")).is_none());
        listeners.take(key("a"), socket());
        assert_ne!(listeners.get(&key("a")).unwrap().id, first);
    }

    #[test]
    fn counts_live_as_long_as_somebody_counts() {
        let mut listeners = Listeners::default();
        let count = listeners.count(&key("a"));
        listeners.promote(&[].into());
        assert!(Arc::ptr_eq(&count, &listeners.count(&key("a"))));
        drop(count);
        listeners.promote(&[].into());
        assert!(listeners.counts.is_empty());
    }

    #[test]
    fn an_aborted_generation_leaves_what_serves() {
        let mut listeners = Listeners::default();
        listeners.take(key("a"), socket());
        listeners.promote(&[key("a")].into());
        listeners.take(key("b"), socket());
        listeners.drop_pending();
        assert_eq!(listeners.held(), [key("a")].into());
        assert!(listeners.get(&key("b")).is_none());
    }
}
