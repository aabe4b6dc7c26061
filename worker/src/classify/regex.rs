//! Patterns over a client's first bytes.
//!
//! All patterns of a rule are one lazily built DFA that reports every pattern, not the first:
//! a byte costs one table look-up however many targets there are. It is built lazily because a
//! whole DFA can be exponentially larger than its patterns; it has no step that could take more
//! than linear time, whatever the client sends.
//!
//! **When it decides.** After each read, over everything read so far: the targets whose pattern
//! matches at that moment, in configured order, as soon as there is one. If no pattern can match
//! any more (only known when all of them are anchored with `^`), or [`LIMIT`] bytes are there,
//! nothing matched. A client that sends nothing matches nothing, not even `.*`.
//!
//! **Look-ahead in a growing window.** `$`, `\z`, `\b` and their kin ask for what comes next,
//! and the end of a read is not the end of the stream: where TCP cuts it is chance. So a match
//! that needs the end counts only once the end is known, which is when the client closed its
//! side or kept silent until the deadline; a match that needs a following byte counts when that
//! byte is there. A match that holds whatever follows counts at once. At the limit the bytes are
//! cut by us, so the end matches nothing there.
//!
//! **Dialect.** The syntax of the `regex` crate with Unicode off: patterns are over bytes, `\xNN`
//! is that byte, `.` is any byte but a line feed, classes and case folding are ASCII; non-ASCII
//! text outside a class stands for its UTF-8 bytes. `(?u:…)` turns Unicode on for a group, where
//! only the word boundary is refused. A compiled pattern may take [`MAX_COMPILED`] bytes.
//!
//! **State.** A [`Scan`] remembers a DFA state, which lives in one of the caches that
//! [`Patterns`] pools for the threads. It is used only with that very cache and only if the
//! cache was not cleared in between (clearing is what invalidates states); otherwise the window,
//! at most 4 KiB, is read again from its start.

mod compile;
mod engine;
#[cfg(test)]
mod tests;

use regex_automata::hybrid::LazyStateID;

pub use compile::{PatternError, Patterns};
use engine::{Engine, GaveUp, PooledCache};

use super::{Cause, Decision, Progress, Reason};
use crate::flow::{TargetSet, Verdict};

/// Most bytes that are looked at.
pub const LIMIT: usize = 4096;
/// Largest compiled form of one pattern, in bytes.
pub const MAX_COMPILED: usize = 1024 * 1024;

/// One connection's way through the patterns.
#[derive(Debug)]
pub struct Scan<'p> {
    patterns: &'p Patterns,
    /// How many bytes of the window `place` has behind it.
    seen: usize,
    place: Option<Place>,
}

/// A state, and what makes it still mean something.
#[derive(Debug, Clone, Copy)]
struct Place {
    cache: u64,
    clears: usize,
    state: LazyStateID,
}

/// What the bytes so far amount to.
enum Found {
    /// Some pattern matches.
    Matched(TargetSet),
    /// None does, but one may.
    Open,
    /// None can any more.
    Dead,
}

impl<'p> Scan<'p> {
    pub(super) fn new(patterns: &'p Patterns) -> Self {
        Self { patterns, seen: 0, place: None }
    }

    /// Looks at the window, which must begin with what it held at the last call. Decides before
    /// the first byte only if there is no pattern at all.
    pub fn feed(&mut self, window: &[u8]) -> Progress {
        let window = &window[..window.len().min(LIMIT)];
        let Some(engine) = self.patterns.engine() else {
            return Progress::Decided(nothing(Cause::NoMatch));
        };
        if window.is_empty() {
            return Progress::NeedMore;
        }
        match self.scan(engine, window, &mut engine.cache()) {
            Ok(Found::Matched(targets)) => Progress::Decided(matched(targets)),
            Ok(Found::Open) if window.len() < LIMIT => Progress::NeedMore,
            Ok(Found::Open) => Progress::Decided(nothing(Cause::TooLong)),
            Ok(Found::Dead) | Err(GaveUp) => Progress::Decided(nothing(Cause::NoMatch)),
        }
    }

    /// Decides with what there is; it is now also known where it ends.
    pub fn end(&mut self, window: &[u8], reason: Reason) -> Decision {
        if let Progress::Decided(decision) = self.feed(window) {
            return decision;
        }
        let none = nothing(reason.into());
        let Some(engine) = self.patterns.engine().filter(|_| !window.is_empty()) else {
            return none;
        };
        match engine.at_end(window, &mut engine.cache()) {
            Ok(targets) if !targets.is_empty() => matched(targets),
            Ok(_) | Err(GaveUp) => none,
        }
    }

    /// Steps over the bytes that are new since the last call.
    fn scan(
        &mut self,
        engine: &Engine,
        window: &[u8],
        pooled: &mut PooledCache,
    ) -> Result<Found, GaveUp> {
        let clears = pooled.clears();
        let resumed = self.place.filter(|place| place.cache == pooled.id && place.clears == clears);
        let (start, from) = match resumed {
            Some(place) => (place.state, self.seen.min(window.len())),
            None => (engine.start(pooled)?, 0),
        };
        let walk = engine.walk(pooled, start, &window[from..])?;
        if walk.state.is_dead() {
            let none = walk.found.is_empty();
            return Ok(if none { Found::Dead } else { Found::Matched(walk.found) });
        }
        self.seen = window.len();
        self.place = Some(Place { cache: pooled.id, clears: pooled.clears(), state: walk.state });
        let found = walk.found.union(engine.certain(pooled, walk.state, window)?);
        Ok(if found.is_empty() { Found::Open } else { Found::Matched(found) })
    }
}

fn matched(targets: TargetSet) -> Decision {
    Decision::Found(Verdict::Patterns(targets))
}

fn nothing(cause: Cause) -> Decision {
    Decision::Nothing(Verdict::Patterns(TargetSet::default()), cause)
}
