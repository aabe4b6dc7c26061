//! What was learned about a line, as plain words: what an upgrade hands over and what the
//! metrics region keeps for the worker that replaces a crashed one.
//!
//! Moments are on the kernel's monotonic clock, so the words are good within one boot; the
//! region's boot id guards that, and so does [`LineSnapshot::from_words`], which refuses what
//! lies in the future. A half-open probe under way is not remembered: its owner is gone.

use std::time::Duration;

use super::breaker::{Breaker, LONGEST_COOLING, State, TOP_LEVEL};
use super::ewma::Ewma;
use super::health::Verdict;
use super::line::{Core, Gate, Line};
use super::load::Load;
use super::marks::Marks;
use crate::flow::Moment;

/// The number of words of a snapshot: the payload of one record of the metrics region.
pub const WORDS: usize = baton_metrics::RECORD_PAYLOAD_WORDS;
/// The layout of the words; also in the first byte of the first word.
pub const SCHEMA: u8 = 1;
/// No latency is longer than this.
const LONGEST_LATENCY: Duration = Duration::from_secs(3600);
/// The longest mark the configuration allows.
const LONGEST_MARK: Duration = Duration::from_secs(24 * 3600);

/// Everything learned about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineSnapshot {
    /// Mean connect time in nanoseconds; 0 when never sampled.
    pub ewma_nanos: u64,
    /// When the last connect sample was taken.
    pub sample_at: Moment,
    /// When the last dial began.
    pub last_attempt: Moment,
    /// Dial failures in a row.
    pub dial_streak: u32,
    /// Attributable failures after the connect in a row.
    pub attributable_streak: u32,
    /// Openings since the last ordinary success.
    pub level: u8,
    /// When the cooling of an open or half-open breaker ends; `None` when it is closed.
    pub open_until: Option<Moment>,
    /// Whether the one half-open probe is under way (not exported).
    pub probing: bool,
    /// Failures since the last success, as the marks count them.
    pub fails: u32,
    /// When the present mark ends.
    pub marked_until: Moment,
    /// Whether active probes exclude the line.
    pub unhealthy: bool,
    /// Probe results in a row that speak against that.
    pub health_against: u8,
    /// Connect time as the `latency` strategy weighs it.
    pub connect_load: Load,
    /// First-byte time as the `latency` strategy weighs it.
    pub first_byte_load: Load,
}

impl LineSnapshot {
    /// What is known about `line` now.
    #[must_use]
    pub fn of(line: &Line) -> Self {
        line.read(|core| {
            let (open_until, probing) = match core.breaker.state() {
                State::Closed => (None, false),
                State::Open { until } => (Some(until), false),
                State::HalfOpen { until } => (Some(until), true),
            };
            Self {
                ewma_nanos: core.ewma.nanos(),
                sample_at: core.sample_at,
                last_attempt: line.last_attempt(),
                dial_streak: core.breaker.dial_streak(),
                attributable_streak: core.breaker.attributable_streak(),
                level: core.breaker.level(),
                open_until,
                probing,
                fails: core.marks.fails,
                marked_until: core.marks.until,
                unhealthy: core.health.unhealthy,
                health_against: core.health.against,
                connect_load: core.connect_load,
                first_byte_load: core.first_byte_load,
            }
        })
    }

    /// A line that knows what this snapshot says.
    #[must_use]
    pub fn revive(&self, gate: Gate) -> Line {
        let core = Core {
            ewma: Ewma::from_nanos(self.ewma_nanos),
            sample_at: self.sample_at,
            breaker: Breaker::restore(
                self.dial_streak,
                self.attributable_streak,
                self.level,
                self.open_until,
            ),
            marks: Marks { fails: self.fails, until: self.marked_until },
            health: Verdict { unhealthy: self.unhealthy, against: self.health_against },
            connect_load: self.connect_load,
            first_byte_load: self.first_byte_load,
        };
        Line::from_parts(gate, core, self.last_attempt)
    }

    /// The snapshot as words; [`from_words`](Self::from_words) reads them back. Streaks above
    /// 65535 are kept as that.
    #[must_use]
    pub fn to_words(&self) -> [u64; WORDS] {
        let streak = |streak: u32| u16::try_from(streak).unwrap_or(u16::MAX).to_le_bytes();
        let [dial_low, dial_high] = streak(self.dial_streak);
        let [late_low, late_high] = streak(self.attributable_streak);
        let state = [
            SCHEMA,
            self.level,
            u8::from(self.unhealthy),
            self.health_against,
            dial_low,
            dial_high,
            late_low,
            late_high,
        ];
        [
            u64::from_le_bytes(state),
            self.ewma_nanos,
            self.sample_at.0,
            self.last_attempt.0,
            self.open_until.map_or(0, |until| until.0.max(1)),
            u64::from(self.fails),
            self.marked_until.0,
            self.connect_load.ewma.nanos(),
            self.connect_load.last,
            self.connect_load.at.0,
            self.first_byte_load.ewma.nanos(),
            self.first_byte_load.last,
            self.first_byte_load.at.0,
            0,
        ]
    }

    /// Reads words back. `None` when they are not a snapshot, or hold a value this boot could
    /// not have made by `now`: the line then starts fresh.
    #[must_use]
    pub fn from_words(words: &[u64], now: Moment) -> Option<Self> {
        let words: &[u64; WORDS] = words.try_into().ok()?;
        let [
            state,
            ewma_nanos,
            sample_at,
            last_attempt,
            open_until,
            fails,
            marked_until,
            connect_ewma,
            connect_last,
            connect_at,
            byte_ewma,
            byte_last,
            byte_at,
            0,
        ] = *words
        else {
            return None;
        };
        let [SCHEMA, level @ ..=TOP_LEVEL, unhealthy @ ..=1, health_against, streaks @ ..] =
            state.to_le_bytes()
        else {
            return None;
        };
        let [dial_low, dial_high, late_low, late_high] = streaks;
        Some(Self {
            ewma_nanos: latency(ewma_nanos)?,
            sample_at: past(sample_at, now)?,
            last_attempt: past(last_attempt, now)?,
            dial_streak: u16::from_le_bytes([dial_low, dial_high]).into(),
            attributable_streak: u16::from_le_bytes([late_low, late_high]).into(),
            level,
            open_until: match open_until {
                0 => None,
                until => Some(past(until, now.after(LONGEST_COOLING))?),
            },
            probing: false,
            fails: u32::try_from(fails).ok()?,
            marked_until: past(marked_until, now.after(LONGEST_MARK))?,
            unhealthy: unhealthy == 1,
            health_against,
            connect_load: load(connect_ewma, connect_last, past(connect_at, now)?)?,
            first_byte_load: load(byte_ewma, byte_last, past(byte_at, now)?)?,
        })
    }
}

/// A moment that is not after `latest`.
fn past(moment: u64, latest: Moment) -> Option<Moment> {
    (moment <= latest.0).then_some(Moment(moment))
}

/// A latency that can be one.
fn latency(nanos: u64) -> Option<u64> {
    (Duration::from_nanos(nanos) <= LONGEST_LATENCY).then_some(nanos)
}

/// A tracker whose mean and last sample are both there or both not.
fn load(ewma: u64, last: u64, at: Moment) -> Option<Load> {
    if (ewma == 0) != (last == 0) {
        return None;
    }
    Some(Load { ewma: Ewma::from_nanos(latency(ewma)?), last: latency(last)?, at })
}

#[cfg(test)]
mod tests;
