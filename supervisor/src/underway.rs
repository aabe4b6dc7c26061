//! Counts what is in somebody's hands: taken from one queue and not yet put into the next.
//!
//! A process that replaces itself must do so at a moment when nothing would be lost with its
//! memory. Queues can be looked into; what a task holds between two of them cannot, so it is
//! counted here.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// The count; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Underway(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    held: Cell<usize>,
    cleared: Notify,
}

/// One thing that is held; let go with the value.
#[derive(Debug)]
pub(crate) struct Hold(Rc<Inner>);

impl Underway {
    /// One more.
    pub(crate) fn hold(&self) -> Hold {
        self.0.held.set(self.0.held.get() + 1);
        Hold(Rc::clone(&self.0))
    }

    /// Whether nothing is held.
    pub(crate) fn is_clear(&self) -> bool {
        self.0.held.get() == 0
    }

    /// Waits until the last one is let go; may wake up for a former time.
    pub(crate) async fn cleared(&self) {
        self.0.cleared.notified().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let left = self.0.held.get() - 1;
        self.0.held.set(left);
        if left == 0 {
            self.0.cleared.notify_one();
        }
    }
}
