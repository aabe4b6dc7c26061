//! The circuit breaker of a line.
//!
//! Two streaks of failures, because a line that accepts TCP but breaks everything after it
//! would otherwise be healed by its own successful connects: failed dials, and failures after
//! the connect that are clearly the upstream's (preparation, first bytes). Three in a row of
//! either open the breaker for 5 s, then 10, 20, 40, 60, 60 … until an ordinary success.
//! After the cooling exactly one attempt is let through as a probe; until its owner has
//! reported or given it back, everybody else finds the breaker open.
//!
//! Invariants: at most one probe is out; the outcome of an attempt that was let through before
//! the breaker last opened changes nothing here; giving a pass back changes nothing but the
//! probe's place.

use std::time::Duration;

use crate::flow::Moment;

/// Failures in a row that open the breaker.
pub const THRESHOLD: u32 = 3;
/// The first cooling time; each further opening doubles it.
pub const FIRST_COOLING: Duration = Duration::from_secs(5);
/// The longest cooling time.
pub const LONGEST_COOLING: Duration = Duration::from_secs(60);
/// The level at which the cooling time has reached its longest (5 · 2⁴ > 60).
pub const TOP_LEVEL: u8 = 5;

/// Whether attempts are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Yes.
    #[default]
    Closed,
    /// Not before this moment, and then one.
    Open {
        /// When the cooling ends.
        until: Moment,
    },
    /// One is under way, nobody else.
    HalfOpen {
        /// When the cooling ended; what the state falls back to when the probe is given back.
        until: Moment,
    },
}

/// What an attempt was let through with; shown again with its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// The opening this attempt came after.
    pub epoch: u32,
    /// Whether it is the single half-open probe.
    pub probe: bool,
}

/// A failure that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Could not connect.
    Dial,
    /// Connected, then broke in a way that is clearly the upstream's.
    Attributable,
}

/// The breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    state: State,
    dial_streak: u32,
    attributable_streak: u32,
    /// How many openings since the last ordinary success, at most [`TOP_LEVEL`].
    level: u8,
    /// Counts openings; what tells a late outcome from a current one.
    epoch: u32,
}

impl Breaker {
    /// Restores a breaker; a probe that was out is not remembered.
    #[must_use]
    pub fn restore(
        dial_streak: u32,
        attributable_streak: u32,
        level: u8,
        open_until: Option<Moment>,
    ) -> Self {
        let state = open_until.map_or(State::Closed, |until| State::Open { until });
        Self { state, dial_streak, attributable_streak, level: level.min(TOP_LEVEL), epoch: 0 }
    }

    /// The state as last left; an open breaker whose cooling is over still says `Open`.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Dial failures in a row.
    #[must_use]
    pub fn dial_streak(&self) -> u32 {
        self.dial_streak
    }

    /// Attributable failures in a row.
    #[must_use]
    pub fn attributable_streak(&self) -> u32 {
        self.attributable_streak
    }

    /// Openings since the last ordinary success, at most [`TOP_LEVEL`].
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// How many times it opened; the epoch of a pass given now.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Lets an attempt through, or not. `None` changes nothing.
    pub fn admit(&mut self, now: Moment) -> Option<Pass> {
        match self.state {
            State::Closed => Some(Pass { epoch: self.epoch, probe: false }),
            State::Open { until } if now >= until => {
                self.state = State::HalfOpen { until };
                Some(Pass { epoch: self.epoch, probe: true })
            }
            State::Open { .. } | State::HalfOpen { .. } => None,
        }
    }

    /// Takes a pass back whose attempt says nothing (cancelled, no quota, own lack): the next
    /// attempt may probe at once.
    pub fn give_back(&mut self, pass: Pass) {
        match self.state {
            State::HalfOpen { until } if pass.probe && pass.epoch == self.epoch => {
                self.state = State::Open { until };
            }
            State::HalfOpen { .. } | State::Open { .. } | State::Closed => {}
        }
    }

    /// The attempt connected and was prepared.
    pub fn succeeded(&mut self, pass: Pass) {
        if pass.epoch != self.epoch {
            return;
        }
        self.dial_streak = 0;
        if pass.probe {
            // The level stays: a line that fails again right after its probe cools longer.
            self.state = State::Closed;
        } else if self.attributable_streak == 0 {
            self.level = 0;
        }
    }

    /// The attempt, or the connection it became, failed. True when this opened the breaker.
    pub fn failed(&mut self, pass: Pass, failure: Failure, now: Moment) -> bool {
        if pass.epoch != self.epoch {
            return false;
        }
        match failure {
            Failure::Dial => self.dial_streak = self.dial_streak.saturating_add(1),
            Failure::Attributable => {
                // The connect itself was a success.
                self.dial_streak = 0;
                self.attributable_streak = self.attributable_streak.saturating_add(1);
            }
        }
        let opens = match self.state {
            State::HalfOpen { .. } => pass.probe,
            State::Closed => self.dial_streak.max(self.attributable_streak) >= THRESHOLD,
            State::Open { .. } => false,
        };
        if opens {
            self.open(now);
        }
        opens
    }

    /// A connection over this line was relayed in order and carried bytes: all is forgiven.
    pub fn proved(&mut self, pass: Pass) {
        if pass.epoch == self.epoch && self.state == State::Closed {
            self.dial_streak = 0;
            self.attributable_streak = 0;
            self.level = 0;
        }
    }

    fn open(&mut self, now: Moment) {
        let cooling = FIRST_COOLING * 2u32.pow(u32::from(self.level.min(TOP_LEVEL - 1)));
        self.level = (self.level + 1).min(TOP_LEVEL);
        self.epoch = self.epoch.wrapping_add(1);
        self.state = State::Open { until: now.after(cooling.min(LONGEST_COOLING)) };
    }
}

#[cfg(test)]
mod tests;
