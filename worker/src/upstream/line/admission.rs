//! An attempt over a line.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::held::Hold;
use super::{Gate, Held, Line};
use crate::flow::{Fault, Moment};
use crate::upstream::breaker::{Failure, Pass};

/// An attempt that was let through. Dropped without an outcome it is neutral and gives the
/// half-open probe's place back.
#[derive(Debug)]
#[must_use = "dropping an admission gives it back"]
pub struct Admission {
    hold: Hold,
    pass: Pass,
    /// Present when this is the half-open probe.
    probe: Option<Probe>,
    /// Whether failures and successes touch the marks.
    marks: bool,
}

impl Admission {
    /// An attempt of `line` that its breaker lets `pass`.
    pub(super) fn new(line: &Arc<Line>, pass: Pass) -> Self {
        let probe = pass.probe.then(|| Probe { line: Arc::clone(line), pass, used: false });
        Self { hold: Hold::new(line), pass, probe, marks: true }
    }

    /// Makes the outcome leave the failure marks alone (racers of `parallel`: a dead candidate
    /// stays in the group).
    pub fn without_marks(mut self) -> Self {
        self.marks = false;
        self
    }

    /// Whether this is the half-open probe, which must be a fresh dial.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.pass.probe
    }

    /// The dial has really begun (quota was taken): this is what "last tried" means.
    pub fn started(&self, now: Moment) {
        self.hold.line().last_attempt.store(now.0, Relaxed);
    }

    /// Connected and prepared. `connect` is the pure TCP connect time of a fresh dial; `None`
    /// for a prewarmed socket, which proves nothing and is neutral.
    pub fn connected(mut self, connect: Option<Duration>, now: Moment) -> Held {
        if let Some(connect) = connect {
            self.use_up_probe();
            let line = self.hold.line();
            let mut core = line.lock();
            // A late success of an attempt from before the opening is still a true latency.
            core.take_sample(connect, now);
            match line.gate {
                Gate::Breaker => core.breaker.succeeded(self.pass),
                Gate::Marks(_) if self.marks => core.marks.succeeded(),
                Gate::Marks(_) => {}
            }
            line.publish(&core);
        }
        Held::new(self.hold, self.pass)
    }

    /// Failed. True when this excluded the line (opened the breaker, or marked it).
    pub fn failed(mut self, fault: Fault, now: Moment) -> bool {
        let failure = match fault {
            Fault::Dial => Failure::Dial,
            Fault::Preparation => Failure::Attributable,
            Fault::Local => return false,
        };
        self.use_up_probe();
        let line = self.hold.line();
        let mut core = line.lock();
        let excluded = match line.gate {
            Gate::Breaker => core.breaker.failed(self.pass, failure, now),
            Gate::Marks(policy) => self.marks && core.marks.failed(policy, now),
        };
        let streak = core.streak(line.gate);
        core.connect_load.penalise(streak, now);
        line.publish(&core);
        excluded
    }

    fn use_up_probe(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.used = true;
        }
    }
}

/// The half-open probe's place; given back when dropped before it was used up.
#[derive(Debug)]
struct Probe {
    line: Arc<Line>,
    pass: Pass,
    used: bool,
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !self.used {
            let mut core = self.line.lock();
            core.breaker.give_back(self.pass);
            self.line.publish(&core);
        }
    }
}
