//! Connections that leave this shard for another process, or come from one.
//!
//! A connection is frozen on its own thread and handed, sockets and all, to the main thread, which
//! talks to the other process. Its session stays here and waits for word, so that everything it
//! counts for goes on being counted, and so that a connection which is given back goes on at
//! once. Those that come wait here in the same way, with their records written, until it is known
//! whether they are ours.

use std::rc::Rc;
use std::time::Duration;

use baton_handoff::table::{Identity, Slot, State};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::listed::{Connection, Relaying};
use super::{Carried, Listed, SWEEP, Shard, answer};
use crate::flow::Moment;
use crate::migrate::Newcomer;
use crate::net;
use crate::session::{Guest, Lifted, Session};

/// An order to hand connections over.
pub(crate) struct Lift {
    /// At most so many.
    pub(super) most: usize,
    /// Names the move; a connection is asked for once a move. Never 0.
    pub(super) asked_by: u32,
    pub(super) done: oneshot::Sender<Lifting>,
}

/// Connections that have been told to freeze.
pub(crate) struct Lifting {
    /// Each comes as soon as it stands still, or not at all because it has just ended.
    pub(crate) coming: Vec<oneshot::Receiver<Lifted>>,
    /// Connections here that have no upstream yet.
    pub(crate) waiting: u64,
}

/// Connections that may become this process's.
pub(crate) struct Reception {
    pub(super) newcomers: Vec<Newcomer>,
    /// Told when each has its record and its slots.
    pub(super) held: oneshot::Sender<()>,
    /// Whether they are this process's. Nobody to tell it means no.
    pub(super) word: oneshot::Receiver<bool>,
    /// Told when they are in the list of what is served, or let go of.
    pub(super) settled: oneshot::Sender<()>,
}

impl Shard {
    /// Whether a connection that is relayed here has a record.
    pub(crate) fn keeps_records(&self) -> bool {
        self.records.is_some()
    }

    /// Opens a record. `None` where there is no table, or no room in it.
    pub(crate) fn record(&self, identity: &Identity, state: State) -> Option<Slot> {
        let slot = self.records.as_ref()?.open(identity, state);
        if slot.is_none() {
            self.process.tell_table_full();
        }
        slot
    }

    /// Tells connections to freeze, those first that have long been silent.
    pub(super) fn lift(&self, Lift { most, asked_by, done }: Lift) {
        let mut connections = self.connections.borrow_mut();
        let (chosen, waiting) = choose(connections.iter(), most, asked_by, net::now());
        let mut coming = Vec::with_capacity(chosen.len());
        for key in chosen {
            let relaying = connections.get_mut(key).and_then(|found| found.relaying.as_mut());
            if let Some(relaying) = relaying {
                let (wanted, lifted) = oneshot::channel();
                relaying.wanted = Some(wanted);
                relaying.asked_by = asked_by;
                relaying.control.freeze();
                coming.push(lifted);
            }
        }
        answer(done, Lifting { coming, waiting });
    }

    /// Holds connections until it is known whose they are, then serves them or lets go.
    pub(super) fn receive(self: &Rc<Self>, reception: Reception) {
        let Reception { newcomers, held, word, settled } = reception;
        let receive =
            |newcomer| Guest::receive(newcomer, self, Carried::by(&self.process, self.index));
        let guests: Vec<Guest> = newcomers.into_iter().map(receive).collect();
        answer(held, ());
        let shard = Rc::clone(self);
        spawn_local(async move {
            if word.await.unwrap_or(false) {
                guests.into_iter().for_each(|guest| shard.carry_on(guest));
            } else {
                drop(guests);
            }
            answer(settled, ());
        });
    }

    fn carry_on(self: &Rc<Self>, guest: Guest) {
        let mut connections = self.connections.borrow_mut();
        let entry = connections.vacant_entry();
        let listed = Listed::new(self, entry.key());
        let relaying = Some(guest.relaying());
        let task = spawn_local(Session::carried_on(listed, guest));
        entry.insert(Connection { task, relaying });
    }

    /// The cookies of all sockets that are served here.
    pub(super) fn owned(&self) -> Vec<u64> {
        let connections = self.connections.borrow();
        let relaying = connections.iter().filter_map(|(_, found)| found.relaying.as_ref());
        relaying.flat_map(|relaying| relaying.cookies.0).filter(|cookie| *cookie != 0).collect()
    }
}

/// Which connections to freeze: of those that were not asked for by this move and are not about
/// to end by themselves, the silent ones before the others. And how many have no upstream yet.
fn choose<'c>(
    connections: impl Iterator<Item = (usize, &'c Connection)>,
    most: usize,
    asked_by: u32,
    now: Moment,
) -> (Vec<usize>, u64) {
    let (mut silent, mut busy, mut waiting) = (Vec::new(), Vec::new(), 0);
    for (key, connection) in connections {
        match &connection.relaying {
            None => waiting += 1,
            Some(Relaying { control, asked_by: last, .. }) => {
                if *last == asked_by || control.is_broken() {
                    continue;
                }
                let list = if control.quiet_for(now) >= SILENT { &mut silent } else { &mut busy };
                if list.len() < most {
                    list.push(key);
                }
            }
        }
    }
    let room = most - silent.len();
    silent.extend(busy.into_iter().take(room));
    (silent, waiting)
}

/// Nothing has moved since the sweep before the last one.
const SILENT: Duration = SWEEP;
