//! The lazy DFA of a rule and the steps a scan takes in it.

use std::fmt;
use std::ops::DerefMut;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::hybrid::{BuildError, CacheError, LazyStateID, StartError};
use regex_automata::nfa::thompson::NFA;
use regex_automata::util::pool::Pool;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};

use crate::flow::TargetSet;

/// Bytes of states a cache may hold before it is cleared; raised by the library where a pattern
/// needs more to work at all. A cache grows with use: typical rules stay far below.
const CACHE_CAPACITY: usize = 1024 * 1024;

/// Tells caches apart, over all engines.
static NEXT_CACHE: AtomicU64 = AtomicU64::new(0);

type MakeCache = Box<dyn Fn() -> PooledCache + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// All patterns of a rule in one automaton.
pub(super) struct Engine {
    dfa: DFA,
    /// Pattern number to target position.
    targets: Box<[u16]>,
    /// Targets whose pattern asks what comes after the match.
    look_ahead: TargetSet,
    pool: Pool<PooledCache, MakeCache>,
}

/// The states one thread has built so far.
#[derive(Debug)]
pub(super) struct PooledCache {
    pub(super) id: u64,
    cache: Cache,
}

/// The lazy DFA gave up. It is built without the limits that make it do so, but the library's
/// signatures leave it open.
#[derive(Debug)]
pub(super) struct GaveUp;

/// Where a walk ended, and what matched on its way. A match shows one byte after its end.
pub(super) struct Walk {
    pub(super) state: LazyStateID,
    pub(super) found: TargetSet,
}

impl PooledCache {
    /// How often it was cleared: states from before the last time mean nothing.
    pub(super) fn clears(&self) -> usize {
        self.cache.clear_count()
    }
}

impl Engine {
    pub(super) fn new(
        nfa: NFA,
        targets: Box<[u16]>,
        look_ahead: TargetSet,
    ) -> Result<Self, Box<BuildError>> {
        Self::with_capacity(nfa, targets, look_ahead, CACHE_CAPACITY)
    }

    fn with_capacity(
        nfa: NFA,
        targets: Box<[u16]>,
        look_ahead: TargetSet,
        capacity: usize,
    ) -> Result<Self, Box<BuildError>> {
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .cache_capacity(capacity)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).map_err(Box::new)?;
        let maker = dfa.clone();
        let make: MakeCache = Box::new(move || PooledCache {
            id: NEXT_CACHE.fetch_add(1, Ordering::Relaxed),
            cache: maker.create_cache(),
        });
        Ok(Self { dfa, targets, look_ahead, pool: Pool::new(make) })
    }

    #[cfg(test)]
    pub(super) fn cramped(self) -> Self {
        let nfa = self.dfa.get_nfa().clone();
        Self::with_capacity(nfa, self.targets, self.look_ahead, 0).expect("it was built before")
    }

    /// A cache for the time of one call; usually the one this thread had before.
    pub(super) fn cache(&self) -> impl DerefMut<Target = PooledCache> + '_ {
        self.pool.get()
    }

    /// The state before the first byte.
    pub(super) fn start(&self, pooled: &mut PooledCache) -> Result<LazyStateID, GaveUp> {
        let config = start::Config::new().anchored(Anchored::No);
        Ok(self.dfa.start_state(&mut pooled.cache, &config)?)
    }

    /// Steps over `bytes` from a valid `state`; stops early in the dead state.
    pub(super) fn walk(
        &self,
        pooled: &mut PooledCache,
        mut state: LazyStateID,
        bytes: &[u8],
    ) -> Result<Walk, GaveUp> {
        let mut found = TargetSet::default();
        for byte in bytes {
            state = self.dfa.next_state(&mut pooled.cache, state, *byte)?;
            if state.is_tagged() {
                found = found.union(self.matches(pooled, state));
                if state.is_dead() {
                    break;
                }
            }
        }
        Ok(Walk { state, found })
    }

    /// The targets that match at the end of `window`, whose state is `state`, whatever follows.
    ///
    /// Without look-ahead that is what would match if this were the end. With it, a pattern must
    /// match before the end and before every byte there is, one of each class the automaton can
    /// tell apart.
    pub(super) fn certain(
        &self,
        pooled: &mut PooledCache,
        mut state: LazyStateID,
        window: &[u8],
    ) -> Result<TargetSet, GaveUp> {
        let mut clears = pooled.clears();
        let end = self.dfa.next_eoi_state(&mut pooled.cache, state)?;
        let at_end = self.matches(pooled, end);
        let mut open = at_end.intersection(self.look_ahead);
        let plain = at_end.difference(self.look_ahead);
        for unit in self.dfa.byte_classes().representatives(..) {
            let Some(byte) = unit.as_u8() else { continue };
            if open.is_empty() {
                break;
            }
            if pooled.clears() != clears {
                // Looking ahead filled the cache: find the way back to this place.
                let start = self.start(pooled)?;
                state = self.walk(pooled, start, window)?.state;
                clears = pooled.clears();
            }
            let next = self.dfa.next_state(&mut pooled.cache, state, byte)?;
            open = open.intersection(self.matches(pooled, next));
        }
        Ok(plain.union(open))
    }

    /// The targets that match anywhere in `window` if nothing follows it.
    pub(super) fn at_end(
        &self,
        window: &[u8],
        pooled: &mut PooledCache,
    ) -> Result<TargetSet, GaveUp> {
        let start = self.start(pooled)?;
        let walk = self.walk(pooled, start, window)?;
        let end = self.dfa.next_eoi_state(&mut pooled.cache, walk.state)?;
        Ok(walk.found.union(self.matches(pooled, end)))
    }

    fn matches(&self, pooled: &PooledCache, state: LazyStateID) -> TargetSet {
        if !state.is_match() {
            return TargetSet::default();
        }
        (0..self.dfa.match_len(&pooled.cache, state))
            .map(|index| self.dfa.match_pattern(&pooled.cache, state, index))
            .filter_map(|pattern| self.targets.get(pattern.as_usize()).copied())
            .collect()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("targets", &self.targets)
            .field("look_ahead", &self.look_ahead)
            .finish_non_exhaustive()
    }
}

impl From<CacheError> for GaveUp {
    fn from(_: CacheError) -> Self {
        Self
    }
}

impl From<StartError> for GaveUp {
    fn from(_: StartError) -> Self {
        Self
    }
}
