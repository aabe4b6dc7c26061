//! How long the healthy side of a broken connection may take to receive what is still its own.
//!
//! A reset throws away the send queue, so it must wait until the peer's kernel has acknowledged
//! everything. The kernel announces that to nobody: the queue is looked at, at growing
//! intervals, and only on connections that broke with bytes under way.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::flow::Moment;
use crate::net;

const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// A peer that takes nothing for so long loses the rest. As long as it takes something, it is
/// given time: its bytes arrived before the reset.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What a look at the queue tells to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing is left, or patience is over: reset now.
    Reset,
    /// Look again after this time.
    LookAgain(Duration),
}

/// Decides, from one look to the next. Pure.
#[derive(Debug)]
pub(super) struct Patience {
    interval: Duration,
    /// Bytes handed over, less those not acknowledged, when last anything changed.
    acknowledged: u64,
    since: Moment,
}

impl Patience {
    pub(super) fn new(now: Moment) -> Self {
        Self { interval: FIRST_LOOK, acknowledged: 0, since: now }
    }

    /// `written` bytes were handed to the kernel in all, `unsent` of them are unacknowledged;
    /// `owed` when there are more that it has not taken yet.
    pub(super) fn look(&mut self, now: Moment, written: u64, unsent: u64, owed: bool) -> Next {
        if unsent == 0 && !owed {
            return Next::Reset;
        }
        let acknowledged = written.saturating_sub(unsent);
        if acknowledged != self.acknowledged {
            self.acknowledged = acknowledged;
            self.since = now;
        }
        if now.since(self.since) >= PATIENCE {
            return Next::Reset;
        }
        let wait = self.interval;
        self.interval = (wait * 2).min(LAST_LOOK);
        Next::LookAgain(wait)
    }
}

/// The timer that goes with it.
#[derive(Debug)]
pub(super) struct Closing {
    patience: Patience,
    timer: Pin<Box<Sleep>>,
}

impl Closing {
    pub(super) fn new() -> Self {
        Self { patience: Patience::new(net::now()), timer: Box::pin(sleep(Duration::ZERO)) }
    }

    /// Ready when the reset is due. `look` gives (written, unsent, owed), see [`Patience::look`].
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut look: impl FnMut() -> (u64, u64, bool),
    ) -> Poll<()> {
        loop {
            let (written, unsent, owed) = look();
            if unsent == 0 && !owed {
                return Poll::Ready(());
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match self.patience.look(net::now(), written, unsent, owed) {
                Next::Reset => return Poll::Ready(()),
                Next::LookAgain(wait) => self.timer.as_mut().reset(Instant::now() + wait),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment(1_000_000_000);

    #[test]
    fn nothing_under_way_is_reset_at_once() {
        assert_eq!(Patience::new(START).look(START, 5, 0, false), Next::Reset);
    }

    #[test]
    fn looks_become_rarer_up_to_a_bound() {
        let mut patience = Patience::new(START);
        let mut waits = Vec::new();
        for _ in 0..10 {
            match patience.look(START, 5, 5, false) {
                Next::LookAgain(wait) => waits.push(wait.as_millis()),
                Next::Reset => waits.push(0),
            }
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 100, 100, 100]);
    }

    #[test]
    fn a_peer_that_takes_nothing_loses_patience_and_one_that_takes_a_little_does_not() {
        let mut patience = Patience::new(START);
        let late = START.after(PATIENCE);
        assert!(matches!(patience.look(late, 100, 99, true), Next::LookAgain(_)));
        let later = late.after(PATIENCE / 2);
        assert!(matches!(patience.look(later, 100, 98, true), Next::LookAgain(_)));
        let last = later.after(PATIENCE);
        assert_eq!(patience.look(last, 100, 98, true), Next::Reset);
    }
}
