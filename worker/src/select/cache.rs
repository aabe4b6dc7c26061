//! The winner cache of a rule: the line that won its last race.
//!
//! An entry lives 30 s and hits do not extend it. A hit with less than 15 s left asks for one
//! background race, which replaces the entry; so steady traffic looks again every 15 s and no
//! client waits for it. Each entry has a token: a relay that breaks later evicts exactly the
//! entry it came from, never a newer one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::selector::Selector;
use crate::flow::{LineIndex, Moment};
use crate::upstream::{Line, LineSet};

/// How long an entry lives.
pub const TTL: Duration = Duration::from_secs(30);
/// A hit with less than this left asks for a refresh.
pub const REFRESH_BELOW: Duration = Duration::from_secs(15);

/// The cache; one entry.
#[derive(Debug, Default)]
pub(super) struct WinnerCache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entry: Option<Entry>,
    tokens: u64,
    refreshing: bool,
}

#[derive(Debug)]
struct Entry {
    line: Arc<Line>,
    token: u64,
    expires: Moment,
}

/// A cached winner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) line: LineIndex,
    pub(super) token: u64,
    /// Whether a refresh is due.
    pub(super) stale: bool,
}

impl WinnerCache {
    /// The winner, when it is among `lines` and has not expired.
    pub(super) fn get(&self, lines: &LineSet, now: Moment) -> Option<Hit> {
        let state = self.lock();
        let entry = state.entry.as_ref().filter(|entry| now < entry.expires)?;
        Some(Hit {
            line: lines.position(&entry.line)?,
            token: entry.token,
            stale: entry.expires.since(now) < REFRESH_BELOW,
        })
    }

    /// Makes a line the winner; the token is the new entry's.
    pub(super) fn put(&self, line: &Arc<Line>, now: Moment) -> u64 {
        let mut state = self.lock();
        state.tokens += 1;
        let token = state.tokens;
        state.entry = Some(Entry { line: Arc::clone(line), token, expires: now.after(TTL) });
        token
    }

    /// Drops the entry with this token, if it is still the one.
    pub(super) fn evict(&self, token: u64) {
        let mut state = self.lock();
        if state.entry.as_ref().is_some_and(|entry| entry.token == token) {
            state.entry = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run the rule's one background race; given back when dropped.
#[derive(Debug)]
#[must_use = "dropping the ticket lets another connection refresh"]
pub struct RefreshTicket {
    pub(super) selector: Arc<Selector>,
    cached: LineIndex,
}

impl RefreshTicket {
    /// Takes the right to look for a line better than `cached`, unless somebody has it.
    pub(super) fn take(selector: &Arc<Selector>, cached: LineIndex) -> Option<Self> {
        let mut state = selector.winner.lock();
        if state.refreshing {
            return None;
        }
        state.refreshing = true;
        Some(Self { selector: Arc::clone(selector), cached })
    }

    /// The winner that was cached when it was taken.
    #[must_use]
    pub fn cached(&self) -> LineIndex {
        self.cached
    }
}

impl Drop for RefreshTicket {
    fn drop(&mut self) {
        self.selector.winner.lock().refreshing = false;
    }
}
