//! A connection with an upstream: relayed, or on its way to another process.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use baton_handoff::table::{Slot, State};
use tokio::sync::{mpsc, oneshot};

use super::Account;
use crate::migrate::{Newcomer, Parcel};
use crate::net::{self, Socket};
use crate::relay::{Control, End, Frozen, Relay};
use crate::shard::{Carried, Cookies, Listed, Relaying, Shard};

/// A relayed connection.
pub(super) struct Relayed {
    relay: Relay<Rc<Account>>,
    control: Rc<Control>,
    account: Rc<Account>,
    carried: Carried,
    listed: Listed,
}

/// A frozen connection: offered to another process, and served by nobody until it is known whose
/// it is. What it counts for here it keeps counting for.
pub(super) struct Away {
    fate: oneshot::Receiver<Fate>,
    slot: Option<Slot>,
    control: Rc<Control>,
    account: Rc<Account>,
    carried: Carried,
    listed: Listed,
}

/// A frozen connection as it is handed to whoever moves it.
#[derive(Debug)]
pub(crate) struct Lifted {
    /// The connection.
    pub(crate) parcel: Parcel,
    /// Where to say what became of it.
    pub(crate) fate: oneshot::Sender<Fate>,
}

/// What became of a connection that was to move.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is another process's. The sign is dropped when nothing here counts for it any more.
    Moved(mpsc::Sender<()>),
    /// It stays, as it was.
    Stays(Box<Frozen>),
}

/// A connection of another process that is (perhaps) to be served here: with its record, its slots
/// and its share in the shard's load. Dropping it lets go of a copy and touches nothing.
pub(crate) struct Guest {
    frozen: Frozen,
    account: Rc<Account>,
    slot: Option<Slot>,
    idle: Option<Duration>,
    cookies: Cookies,
    control: Rc<Control>,
    carried: Carried,
}

impl Guest {
    /// Writes a record of a newcomer and counts it, on the shard that will serve it.
    pub(crate) fn receive(newcomer: Newcomer, shard: &Shard, carried: Carried) -> Self {
        let Newcomer { frozen, identity, quiet } = newcomer;
        let upstream = frozen.upstream.as_fd();
        let account = Account::adopted(shard.process(), shard.index(), &identity, upstream);
        let slot = shard.record(&identity, State::Offered);
        if let Some(slot) = &slot {
            frozen.note(slot);
        }
        let cookies = Cookies::of(&identity);
        let control = Rc::new(Control::new(net::now().before(quiet)));
        let (account, idle) = (Rc::new(account), identity.idle);
        Self { frozen, account, slot, idle, cookies, control, carried }
    }

    /// How the shard orders it about from the moment on that it is this process's.
    pub(crate) fn relaying(&self) -> Relaying {
        Relaying::new(&self.control, &self.account, self.idle, self.cookies)
    }
}

/// What is started of a relay.
pub(super) struct Start {
    pub(super) client: Socket,
    pub(super) upstream: Socket,
    pub(super) preface: Vec<u8>,
    pub(super) control: Control,
}

impl Relayed {
    /// Begins to relay; `None` when that cannot be, and both sides have been reset.
    pub(super) fn begin(
        start: Start,
        account: Rc<Account>,
        carried: Carried,
        listed: Listed,
    ) -> Option<Self> {
        let Start { client, upstream, preface, control } = start;
        let idle = account.rule().and_then(|rule| rule.idle);
        let (slot, cookies) =
            record(listed.shard(), &account, (client.as_fd(), upstream.as_fd()), idle);
        let control = Rc::new(control);
        listed.relaying(Relaying::new(&control, &account, idle, cookies));
        let context = Rc::clone(listed.shard().relay());
        let (orders, tally) = (Rc::clone(&control), Rc::clone(&account));
        match Relay::new(client, upstream, preface, context, orders, tally) {
            Ok(relay) => {
                let relay = journaled(relay, slot);
                Some(Self { relay, control, account, carried, listed })
            }
            Err(outcome) => {
                account.ended(&outcome);
                None
            }
        }
    }

    /// Goes on with a connection that is this process's from here on; `None` as with `begin`.
    pub(super) fn carry_on(guest: Guest, listed: Listed) -> Option<Self> {
        let Guest { frozen, account, slot, control, carried, .. } = guest;
        Self::resume(frozen, slot, control, account, carried, listed)
    }

    fn resume(
        frozen: Frozen,
        slot: Option<Slot>,
        control: Rc<Control>,
        account: Rc<Account>,
        carried: Carried,
        listed: Listed,
    ) -> Option<Self> {
        let context = Rc::clone(listed.shard().relay());
        let (orders, tally) = (Rc::clone(&control), Rc::clone(&account));
        match Relay::resume(frozen, context, orders, tally) {
            Ok(relay) => {
                let relay = journaled(relay, slot);
                Some(Self { relay, control, account, carried, listed })
            }
            Err(outcome) => {
                account.ended(&outcome);
                None
            }
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        Pin::new(&mut self.relay).poll(cx)
    }

    /// The end of the relay; a connection that is wanted elsewhere goes there.
    pub(super) fn finish(self, end: End) -> Option<Away> {
        let Self { relay, control, account, carried, listed } = self;
        let frozen = match end {
            End::Closed(outcome) => {
                account.ended(&outcome);
                return None;
            }
            End::Frozen(frozen) => frozen,
        };
        let slot = relay.into_slot();
        let (told, fate) = oneshot::channel();
        let away = Away { fate, slot, control, account, carried, listed };
        match away.hand_over(frozen, told) {
            Ok(()) => Some(away),
            // Nobody waits for it any more.
            Err(Returned { frozen, told }) => {
                let _kept = told.send(Fate::Stays(frozen));
                Some(away)
            }
        }
    }
}

/// A connection that could not be handed over.
struct Returned {
    frozen: Box<Frozen>,
    told: oneshot::Sender<Fate>,
}

impl Away {
    /// Gives the connection to whoever asked for it. Its record tells from before that moment on
    /// that it may be another's.
    fn hand_over(&self, frozen: Box<Frozen>, told: oneshot::Sender<Fate>) -> Result<(), Returned> {
        let Some(wanted) = self.listed.wanted() else { return Err(Returned { frozen, told }) };
        let (idle, quiet) = self.listed.silence(net::now());
        let ends = (frozen.client.as_fd(), frozen.upstream.as_fd());
        let Ok(identity) = self.account.identity(ends.0, ends.1, idle) else {
            return Err(Returned { frozen, told });
        };
        if let Some(slot) = &self.slot {
            slot.set_state(State::Leaving);
        }
        let lifted = Lifted { parcel: Parcel { frozen, identity, quiet }, fate: told };
        wanted
            .send(lifted)
            .map_err(|Lifted { parcel, fate }| Returned { frozen: parcel.frozen, told: fate })
    }

    /// Waits for word; `None` when whoever moves it is gone, and with it the connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Fate>> {
        Poll::Ready(ready!(Pin::new(&mut self.fate).poll(cx)).ok())
    }

    /// Serves it on, or lets go of its place here.
    pub(super) fn finish(self, fate: Option<Fate>) -> Option<Relayed> {
        let Self { fate: _, slot, control, account, carried, listed } = self;
        match fate {
            Some(Fate::Moved(sign)) => {
                account.moved_away();
                drop((slot, account, carried, listed));
                drop(sign);
                None
            }
            None => None,
            Some(Fate::Stays(frozen)) => {
                Relayed::resume(*frozen, slot, control, account, carried, listed)
            }
        }
    }
}

fn journaled(relay: Relay<Rc<Account>>, slot: Option<Slot>) -> Relay<Rc<Account>> {
    match slot {
        Some(slot) => relay.journaled(slot),
        None => relay,
    }
}

/// Opens a record of a connection that is about to be relayed.
fn record(
    shard: &Shard,
    account: &Account,
    (client, upstream): (BorrowedFd<'_>, BorrowedFd<'_>),
    idle: Option<Duration>,
) -> (Option<Slot>, Cookies) {
    if !shard.keeps_records() {
        return (None, Cookies::default());
    }
    match account.identity(client, upstream, idle) {
        Ok(identity) => (shard.record(&identity, State::Doomed), Cookies::of(&identity)),
        // Sockets have cookies since Linux 4.6; without them it lives and dies with us.
        Err(_) => (None, Cookies::default()),
    }
}
