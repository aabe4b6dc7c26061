//! What a shard knows of its connections, and how one leaves the list.

use std::rc::Rc;
use std::time::Duration;

use baton_handoff::table::Identity;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Shard;
use crate::flow::Moment;
use crate::relay::Control;
use crate::session::{Account, Lifted};

/// A connection as a shard knows it.
pub(super) struct Connection {
    pub(super) task: JoinHandle<()>,
    /// Present from the moment it has an upstream.
    pub(super) relaying: Option<Relaying>,
}

/// The handles of a relayed connection.
pub(crate) struct Relaying {
    pub(super) control: Rc<Control>,
    pub(super) account: Rc<Account>,
    pub(super) idle: Option<Duration>,
    pub(super) cookies: Cookies,
    /// Who gets it when it is frozen.
    pub(super) wanted: Option<oneshot::Sender<Lifted>>,
    /// The last move that asked for it; none asks twice.
    pub(super) asked_by: u32,
}

/// The kernel's names of the two sockets of a connection; zeros where nobody may ask for them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cookies(pub(super) [u64; 2]);

impl Cookies {
    /// Those of a connection that is known elsewhere.
    pub(crate) fn of(identity: &Identity) -> Self {
        Self([identity.client.cookie, identity.upstream.cookie])
    }
}

impl Relaying {
    /// The shard orders the connection about by `control`, and cuts it after `idle` of silence.
    pub(crate) fn new(
        control: &Rc<Control>,
        account: &Rc<Account>,
        idle: Option<Duration>,
        cookies: Cookies,
    ) -> Self {
        let (control, account) = (Rc::clone(control), Rc::clone(account));
        Self { control, account, idle, cookies, wanted: None, asked_by: 0 }
    }
}

/// A connection's place in its shard's list; leaving the scope strikes it off.
pub(crate) struct Listed {
    shard: Rc<Shard>,
    key: usize,
}

impl Listed {
    /// The place `key`, which is about to be filled.
    pub(super) fn new(shard: &Rc<Shard>, key: usize) -> Self {
        Self { shard: Rc::clone(shard), key }
    }

    /// The connection has an upstream.
    pub(crate) fn relaying(&self, relaying: Relaying) {
        if let Some(connection) = self.shard.connections.borrow_mut().get_mut(self.key) {
            connection.relaying = Some(relaying);
        }
    }

    /// Takes the way to whoever wants the frozen connection.
    pub(crate) fn wanted(&self) -> Option<oneshot::Sender<Lifted>> {
        let mut connections = self.shard.connections.borrow_mut();
        connections.get_mut(self.key)?.relaying.as_mut()?.wanted.take()
    }

    /// Its limit of silence, and how long it has been silent.
    pub(crate) fn silence(&self, now: Moment) -> (Option<Duration>, Duration) {
        let connections = self.shard.connections.borrow();
        let relaying =
            connections.get(self.key).and_then(|connection| connection.relaying.as_ref());
        relaying.map_or((None, Duration::ZERO), |relaying| {
            (relaying.idle, relaying.control.quiet_for(now))
        })
    }

    /// The shard that owns the connection.
    pub(crate) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // The list is borrowed only by code that runs no session, so this never meets a borrow
        // but while the runtime is dropped, when nobody reads the list any more.
        if let Ok(mut connections) = self.shard.connections.try_borrow_mut() {
            connections.try_remove(self.key);
        }
    }
}
