//! A connection over a line.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Gate, Line};
use crate::flow::{Moment, RelayEnd};
use crate::upstream::breaker::{Failure, Pass};

/// A connection over a line, from its selection to its end; counts as active until dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the connection's share in the line"]
pub struct Held {
    hold: Hold,
    pass: Pass,
}

impl Held {
    /// The connection that came of an attempt that was let `pass`.
    pub(super) fn new(hold: Hold, pass: Pass) -> Self {
        Self { hold, pass }
    }

    /// The line the connection runs over.
    #[must_use]
    pub fn line(&self) -> &Arc<Line> {
        &self.hold.0
    }

    /// The upstream's first byte came `span` after the client's first byte was forwarded. Only
    /// told when the client spoke first.
    pub fn first_byte(&self, span: Duration, now: Moment) {
        let line = &self.hold.0;
        let mut core = line.lock();
        core.first_byte_load.sample(span, now);
        line.publish(&core);
    }

    /// The relay ended.
    pub fn finish(self, end: RelayEnd, now: Moment) {
        let line = &self.hold.0;
        match end {
            RelayEnd::Clean { carried: true } => {
                if line.gate == Gate::Breaker && line.published.blemished.load(Relaxed) {
                    let mut core = line.lock();
                    core.breaker.proved(self.pass);
                    line.publish(&core);
                }
            }
            RelayEnd::AtOnce => {
                let mut core = line.lock();
                let streak = match line.gate {
                    Gate::Breaker => {
                        core.breaker.failed(self.pass, Failure::Attributable, now);
                        core.streak(line.gate)
                    }
                    // A selector's marks are about reaching the target, which worked.
                    Gate::Marks(_) => 1,
                };
                core.connect_load.penalise(streak, now);
                line.publish(&core);
            }
            RelayEnd::Clean { carried: false } | RelayEnd::Broken | RelayEnd::Neutral => {}
        }
    }
}

/// One in [`Line::active`].
#[derive(Debug)]
pub(super) struct Hold(Arc<Line>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
    }
}

impl Hold {
    /// One more.
    pub(super) fn new(line: &Arc<Line>) -> Self {
        line.active.fetch_add(1, Relaxed);
        Self(Arc::clone(line))
    }

    /// Of which line.
    pub(super) fn line(&self) -> &Arc<Line> {
        &self.0
    }
}
