//! The handle by which a shard orders about a running connection.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::flow::Moment;

/// Why a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CutReason {
    /// Both directions were silent for the rule's idle time.
    Idle,
    /// The time to drain is over, or the process stops at once.
    Stopping,
}

/// What a connection is to do next, at the latest order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Cut(CutReason),
    Freeze,
}

/// Shared between one connection and its shard, on one thread (hence cells in an `Rc`).
///
/// There is no timer a connection: the relay leaves a mark when bytes move, and the shard's
/// sweep turns marks into times. A connection therefore never reads the clock, and its idle
/// time is exact to one sweep, late rather than early.
#[derive(Debug, Default)]
pub struct Control {
    command: Cell<Option<Command>>,
    waker: RefCell<Option<Waker>>,
    moved: Cell<bool>,
    youth: Cell<Youth>,
    active: Cell<Moment>,
    broken: Cell<bool>,
}

/// Whether a connection has got what only lasting connections need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Youth {
    /// No sweep has seen it.
    #[default]
    New,
    /// A sweep has; the connection has not been polled since.
    Due,
    Over,
}

impl Control {
    /// For a connection that was active at `now`.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        let control = Self::default();
        control.active.set(now);
        control
    }

    /// Ends the connection at once, with resets on both sides.
    pub fn cut(&self, reason: CutReason) {
        self.order(Command::Cut(reason));
    }

    /// Stops the connection as it is and gives it back as [`super::End::Frozen`], unless it is
    /// already ending, in which case it ends. An order to cut stands.
    pub fn freeze(&self) {
        if !matches!(self.command.get(), Some(Command::Cut(_))) {
            self.order(Command::Freeze);
        }
    }

    /// Whether a side has broken: the connection ends by itself and an order to freeze it comes
    /// to nothing. One that is not broken obeys when it is next polled.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Cuts the connection if no byte moved for `limit`. To be called by the shard's sweep.
    pub fn cut_idle(&self, now: Moment, limit: Duration) {
        if self.quiet_for(now) >= limit {
            self.cut(CutReason::Idle);
        }
    }

    /// How long no byte has moved, as far as sweeps have seen; takes the mark.
    pub fn quiet_for(&self, now: Moment) -> Duration {
        if self.moved.replace(false) {
            self.active.set(now);
        }
        now.since(self.active.get())
    }

    /// Tells a connection that has lived until a sweep, once, to prepare for lasting: what that
    /// takes is then spent on few of many short connections. To be called by every sweep.
    pub fn last(&self) {
        if self.youth.get() == Youth::New {
            self.youth.set(Youth::Due);
            self.wake();
        }
    }

    /// Whether it is to prepare for lasting now; forgets it.
    pub(super) fn is_to_last(&self) -> bool {
        let due = self.youth.get() == Youth::Due;
        if due {
            self.youth.set(Youth::Over);
        }
        due
    }

    fn order(&self, command: Command) {
        self.command.set(Some(command));
        self.wake();
    }

    fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Leaves the mark that a side has broken.
    pub(super) fn mark_broken(&self) {
        self.broken.set(true);
    }

    /// Leaves the mark that bytes moved.
    pub(super) fn mark(&self) {
        self.moved.set(true);
    }

    /// The order, if one was given. Forgets it, and has `cx` woken by the next one.
    pub(super) fn listen(&self, cx: &Context<'_>) -> Option<Command> {
        match &mut *self.waker.borrow_mut() {
            // Copies nothing when it is the same task, which it always is.
            Some(waker) => waker.clone_from(cx.waker()),
            empty @ None => *empty = Some(cx.waker().clone()),
        }
        self.command.take()
    }
}
