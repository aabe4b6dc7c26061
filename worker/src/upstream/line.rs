//! One address of one rule: where the mechanisms of `upstream/` meet the threads.
//!
//! Decisions read a line far more often than outcomes change it, and a decision reads every
//! line of its rule. So the state proper sits behind a short mutex, and what decisions read is
//! published after each change in a few atomics: `usable`, scores and counts take no lock. A
//! reader may see two published words from either side of a change; the decision that follows
//! is then one that was right a moment ago, and the mutex has the last word on admission.
//!
//! Which mechanism excludes a line is its [`Gate`]. The adaptive modes use the breaker. A
//! selector uses failure marks and nothing else beside active health: with the breaker on top,
//! a target whose mark has ended, or a sole target, could still be closed, which the selector's
//! rules forbid.
//!
//! An attempt holds an [`Admission`], the connection it becomes a [`Held`]. Dropping either
//! gives back everything it holds, so a client that leaves in the middle costs a line nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::breaker::{Breaker, Failure, Pass, State};
use super::ewma::Ewma;
use super::health::{Thresholds, Verdict};
use super::load::Load;
use super::marks::{MarkPolicy, Marks};
use crate::flow::{Fault, Moment, RelayEnd};

/// What excludes a line after failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The circuit breaker (adaptive modes).
    Breaker,
    /// Failure marks (selectors).
    Marks(MarkPolicy),
}

/// Why a line is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The breaker is open and cooling.
    Open,
    /// The breaker is half open and its one probe is under way.
    Probing,
    /// Active probes say so.
    Unhealthy,
    /// Marked failed. Only excludes while choosing: the sole target and the last resort are
    /// admitted in spite of a mark.
    Marked,
}

/// The state proper.
#[derive(Debug, Default)]
pub(super) struct Core {
    pub(super) ewma: Ewma,
    pub(super) sample_at: Moment,
    pub(super) breaker: Breaker,
    pub(super) marks: Marks,
    pub(super) health: Verdict,
    pub(super) connect_load: Load,
    pub(super) first_byte_load: Load,
}

/// What decisions read.
#[derive(Debug, Default)]
struct Published {
    /// 0 closed, [`PROBING`] half open, else when the cooling ends.
    open_until: AtomicU64,
    epoch: AtomicU32,
    marked_until: AtomicU64,
    unhealthy: AtomicBool,
    ewma: AtomicU64,
    /// The longer of the breaker's streaks.
    streak: AtomicU32,
    /// Whether a clean relay would change anything.
    blemished: AtomicBool,
    connect: PublishedLoad,
    first_byte: PublishedLoad,
}

#[derive(Debug, Default)]
struct PublishedLoad {
    ewma: AtomicU64,
    last: AtomicU64,
    at: AtomicU64,
}

const PROBING: u64 = u64::MAX;

/// A line.
#[derive(Debug)]
pub struct Line {
    gate: Gate,
    published: Published,
    /// When the last dial began, 0 for never.
    last_attempt: AtomicU64,
    /// Attempts in flight plus connections held.
    active: AtomicU32,
    core: Mutex<Core>,
}

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

/// A connection over a line, from its selection to its end; counts as active until dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the connection's share in the line"]
pub struct Held {
    hold: Hold,
    pass: Pass,
}

/// One in [`Line::active`].
#[derive(Debug)]
struct Hold(Arc<Line>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
    }
}

impl Line {
    /// A line about which nothing is known.
    #[must_use]
    pub fn new(gate: Gate) -> Self {
        Self::from_parts(gate, Core::default(), Moment::default())
    }

    pub(super) fn from_parts(gate: Gate, core: Core, last_attempt: Moment) -> Self {
        let line = Self {
            gate,
            published: Published::default(),
            last_attempt: AtomicU64::new(last_attempt.0),
            active: AtomicU32::new(0),
            core: Mutex::new(core),
        };
        line.publish(&line.lock());
        line
    }

    /// What excludes this line after failures.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// Whether a new attempt may choose this line, and if not, why. Takes no lock.
    ///
    /// # Errors
    /// The first reason that applies: unhealthy, then the gate's.
    pub fn check(&self, now: Moment) -> Result<(), Refused> {
        if self.published.unhealthy.load(Relaxed) {
            return Err(Refused::Unhealthy);
        }
        match self.published.open_until.load(Relaxed) {
            0 => {}
            PROBING => return Err(Refused::Probing),
            until if now.0 < until => return Err(Refused::Open),
            _ => {}
        }
        if now.0 < self.published.marked_until.load(Relaxed) {
            return Err(Refused::Marked);
        }
        Ok(())
    }

    /// Whether a new attempt may choose this line.
    #[must_use]
    pub fn usable(&self, now: Moment) -> bool {
        self.check(now).is_ok()
    }

    /// Whether a connection to it that was made ahead of need is not to be trusted: its breaker
    /// is not closed, active probes exclude it, or it is marked. Unlike [`check`](Self::check),
    /// also after the cooling, until the half-open probe has succeeded.
    #[must_use]
    pub fn is_suspect(&self, now: Moment) -> bool {
        let published = &self.published;
        published.unhealthy.load(Relaxed)
            || published.open_until.load(Relaxed) != 0
            || now < self.marked_until()
    }

    /// Whether active probes exclude the line.
    #[must_use]
    pub fn unhealthy(&self) -> bool {
        self.published.unhealthy.load(Relaxed)
    }

    /// When the present mark ends; a moment that has passed when there is none.
    #[must_use]
    pub fn marked_until(&self) -> Moment {
        Moment(self.published.marked_until.load(Relaxed))
    }

    /// The mean connect time in nanoseconds, 0 when never sampled.
    #[must_use]
    pub fn ewma_nanos(&self) -> u64 {
        self.published.ewma.load(Relaxed)
    }

    /// The longer of the two failure streaks.
    #[must_use]
    pub fn streak(&self) -> u32 {
        self.published.streak.load(Relaxed)
    }

    /// When the last dial began; the start of time for never.
    #[must_use]
    pub fn last_attempt(&self) -> Moment {
        Moment(self.last_attempt.load(Relaxed))
    }

    /// Attempts in flight plus connections held.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.active.load(Relaxed)
    }

    /// What the `latency` strategy weighs a line with, in nanoseconds; `None` when it has no
    /// sample. The number of active connections is not part of it.
    #[must_use]
    pub fn load_nanos(&self, now: Moment) -> Option<u64> {
        let connect = self.published.connect.read(now)?;
        Some(connect.saturating_add(self.published.first_byte.read(now).unwrap_or(0)))
    }

    /// Lets an attempt through. Marks do not refuse here: whether a marked line may be tried
    /// all the same is the selector's decision.
    ///
    /// # Errors
    /// Unhealthy, open, or half open with its probe under way; nothing has changed then.
    pub fn admit(self: &Arc<Self>, now: Moment) -> Result<Admission, Refused> {
        if self.published.unhealthy.load(Relaxed) {
            return Err(Refused::Unhealthy);
        }
        let pass = match self.published.open_until.load(Relaxed) {
            0 => Pass { epoch: self.published.epoch.load(Relaxed), probe: false },
            _ => self.admit_slowly(now)?,
        };
        let probe = pass.probe.then(|| Probe { line: Arc::clone(self), pass, used: false });
        Ok(Admission { hold: Hold::new(self), pass, probe, marks: true })
    }

    fn admit_slowly(&self, now: Moment) -> Result<Pass, Refused> {
        let mut core = self.lock();
        let pass = core.breaker.admit(now).ok_or_else(|| match core.breaker.state() {
            State::HalfOpen { .. } => Refused::Probing,
            State::Open { .. } | State::Closed => Refused::Open,
        })?;
        self.publish(&core);
        Ok(pass)
    }

    /// Counts an established connection that did not come from an attempt of this worker (it
    /// was handed over by another process).
    pub fn adopt(self: &Arc<Self>) -> Held {
        let epoch = self.published.epoch.load(Relaxed);
        Held { hold: Hold::new(self), pass: Pass { epoch, probe: false } }
    }

    /// The result of an active probe. True when the verdict changed.
    pub fn probed(&self, passed: bool, thresholds: Thresholds) -> bool {
        let mut core = self.lock();
        let changed = core.health.probed(passed, thresholds);
        self.publish(&core);
        changed
    }

    /// The connect time of a fresh dial that no client waits for (a prewarm refill): a sample
    /// like any other.
    pub fn sampled(&self, connect: Duration, now: Moment) {
        let mut core = self.lock();
        core.take_sample(connect, now);
        self.publish(&core);
    }

    /// Reads the state proper.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Core) -> T) -> T {
        read(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // Every change of the core is complete in itself, so a poisoned one is still sound.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what decisions read; called with the lock held.
    fn publish(&self, core: &Core) {
        let published = &self.published;
        if self.gate == Gate::Breaker {
            let open_until = match core.breaker.state() {
                State::Closed => 0,
                State::Open { until } => until.0.clamp(1, PROBING - 1),
                State::HalfOpen { .. } => PROBING,
            };
            // The epoch first: whoever sees the breaker closed must not show an old pass.
            published.epoch.store(core.breaker.epoch(), Relaxed);
            published.open_until.store(open_until, Relaxed);
        } else {
            published.marked_until.store(core.marks.until.0, Relaxed);
        }
        published.streak.store(core.streak(self.gate), Relaxed);
        let blemished = core.breaker.level() > 0 || core.streak(self.gate) > 0;
        published.blemished.store(blemished, Relaxed);
        published.unhealthy.store(core.health.unhealthy, Relaxed);
        published.ewma.store(core.ewma.nanos(), Relaxed);
        published.connect.write(&core.connect_load);
        published.first_byte.write(&core.first_byte_load);
    }
}

impl Core {
    fn take_sample(&mut self, connect: Duration, now: Moment) {
        self.ewma.sample(connect);
        self.sample_at = now;
        self.connect_load.sample(connect, now);
    }

    /// Failures in a row, as the gate counts them.
    pub(super) fn streak(&self, gate: Gate) -> u32 {
        match gate {
            Gate::Breaker => self.breaker.dial_streak().max(self.breaker.attributable_streak()),
            Gate::Marks(_) => self.marks.fails,
        }
    }
}

impl Hold {
    fn new(line: &Arc<Line>) -> Self {
        line.active.fetch_add(1, Relaxed);
        Self(Arc::clone(line))
    }
}

impl PublishedLoad {
    fn write(&self, load: &Load) {
        self.ewma.store(load.ewma.nanos(), Relaxed);
        self.at.store(load.at.0, Relaxed);
        self.last.store(load.last, Relaxed);
    }

    fn read(&self, now: Moment) -> Option<u64> {
        let load = Load {
            last: self.last.load(Relaxed),
            ewma: Ewma::from_nanos(self.ewma.load(Relaxed)),
            at: Moment(self.at.load(Relaxed)),
        };
        load.weight(now)
    }
}

impl Admission {
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
        self.hold.0.last_attempt.store(now.0, Relaxed);
    }

    /// Connected and prepared. `connect` is the pure TCP connect time of a fresh dial; `None`
    /// for a prewarmed socket, which proves nothing and is neutral.
    pub fn connected(mut self, connect: Option<Duration>, now: Moment) -> Held {
        if let Some(connect) = connect {
            self.use_up_probe();
            let line = &self.hold.0;
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
        Held { hold: self.hold, pass: self.pass }
    }

    /// Failed. True when this excluded the line (opened the breaker, or marked it).
    pub fn failed(mut self, fault: Fault, now: Moment) -> bool {
        let failure = match fault {
            Fault::Dial => Failure::Dial,
            Fault::Preparation => Failure::Attributable,
            Fault::Local => return false,
        };
        self.use_up_probe();
        let line = &self.hold.0;
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

impl Held {
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

#[cfg(test)]
mod tests;
