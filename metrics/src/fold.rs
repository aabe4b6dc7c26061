//! Folding a dead lane into the base, and sweeping away the series of vanished rules.
//!
//! The redo record is one word. The base exists twice; [`Commit`] says which copy counts. A fold
//! writes *base + lane* into the other copy and then stores a commit that makes that copy
//! current **and** excludes the lane, in one store. A crash before it leaves an unfinished copy
//! that nobody reads and that the next fold overwrites; a crash after it leaves an excluded lane
//! that [`Shared::recover`] empties. At no point is a count missing or in both places.
//!
//! Readers take the commit before and after (see `snapshot`): no reader waits, and none keeps a
//! sum during which a lane changed sides.
//!
//! All of this is done by the supervisor alone, in one thread.

use std::collections::HashSet;

use crate::directory::{LANES, ORPHAN};
use crate::key::Entity;
use crate::layout::{LANE_CLAIM, LANE_NAMESPACE, LANE_OWNER, head};
use crate::owner::Owner;
use crate::shared::Shared;
use crate::snapshot::{Item, Scope};
use crate::sync::{Ordering, fence};

/// Bit 0: the current copy. Bits 8–15: the excluded lane. Above: a number that grows by one
/// with every store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commit(pub(crate) u64);

const NO_LANE: u64 = 0xFF;

impl Commit {
    /// Copy 0, nothing excluded.
    pub(crate) const START: Self = Self(NO_LANE << 8);

    pub(crate) fn copy(self) -> u64 {
        self.0 & 1
    }

    pub(crate) fn excluded(self) -> Option<usize> {
        let lane = self.0 >> 8 & 0xFF;
        (lane != NO_LANE).then(|| usize::try_from(lane).ok()).flatten()
    }

    fn then(self, copy: u64, excluded: Option<usize>) -> Self {
        let lane = excluded.and_then(|lane| u64::try_from(lane).ok()).unwrap_or(NO_LANE);
        Self(copy & 1 | (lane & 0xFF) << 8 | (self.0 >> 16).wrapping_add(1) << 16)
    }
}

impl Shared {
    pub(crate) fn commit(&self) -> Commit {
        Commit(self.words.load(head::COMMIT, Ordering::Acquire))
    }

    fn set_commit(&self, commit: Commit) {
        self.words.store(head::COMMIT, commit.0, Ordering::Release);
        // Whoever sees a store that comes after this must also see the new commit.
        fence(Ordering::Release);
    }

    /// Ends a fold that a crash has interrupted after its commit, and a sweep.
    pub(crate) fn recover(&self) {
        self.finish_all();
        if let Some(lane) = self.commit().excluded() {
            self.empty(lane);
        }
    }

    /// Moves the counts of `lane`, whose owner is dead, into the base and frees it.
    pub(crate) fn fold(&self, lane: usize) {
        self.recover();
        self.prepare_fold(lane);
        self.commit_fold(lane);
        self.empty(lane);
    }

    /// Writes *base + lane* into the copy that is not current.
    fn prepare_fold(&self, lane: usize) {
        let current = self.commit().copy();
        for cell in 0..self.layout.base.len() {
            if let (Some(from), Some(to)) =
                (self.base_cell(current, cell), self.base_cell(1 - current, cell))
            {
                let total = self.words.load(from, Ordering::Relaxed);
                self.words.store(to, total, Ordering::Relaxed);
            }
        }
        for entry in (0..self.layout.descriptors.len()).filter_map(|index| self.entry(index).ok()) {
            if !matches!(entry.meta.entity, Entity::Counter | Entity::Histogram) {
                continue;
            }
            for cell in entry.room.first..entry.room.first + entry.room.count {
                let Some(to) = self.base_cell(1 - current, cell) else { continue };
                self.words.fetch_add(to, self.lane_value(lane, cell));
            }
        }
    }

    /// The one store that moves the counts.
    fn commit_fold(&self, lane: usize) {
        let commit = self.commit();
        self.set_commit(commit.then(1 - commit.copy(), Some(lane)));
    }

    /// Empties and frees an excluded lane. Repeating any part of it changes nothing.
    fn empty(&self, lane: usize) {
        for block in 0..self.layout.owners.len() {
            let Some(owner) = self.layout.owners.at(block) else { continue };
            if self.words.load(owner, Ordering::Acquire) != lane as u64 + 1 {
                continue;
            }
            if let Some(first) = self.layout.pool.at(block) {
                for word in first..first + self.layout.block_words() {
                    self.words.store(word, 0, Ordering::Relaxed);
                }
            }
            self.unlink(lane, block);
            self.words.store(owner, 0, Ordering::Release);
        }
        self.forget_lane(lane);
        let commit = self.commit();
        // Included again before it is free: were it free first, its next owner's counts would
        // be left out, and a crash in between would empty a live lane.
        self.set_commit(commit.then(commit.copy(), None));
        if let Some(entry) = self.layout.lanes.at(lane) {
            self.words.store(entry + LANE_CLAIM, 0, Ordering::Relaxed);
            self.words.store(entry + LANE_NAMESPACE, 0, Ordering::Relaxed);
            self.words.store(entry + LANE_OWNER, Owner::NOBODY, Ordering::Release);
        }
    }

    /// Clears the table entry that names `block`, before the block gets another owner.
    fn unlink(&self, lane: usize, block: usize) {
        let Some(table) = self.layout.tables.at(lane) else { return };
        for word in table..table + self.layout.tables.stride as usize {
            self.words.swap_if(word, block as u64 + 1, 0);
        }
    }

    /// Takes back the series and records of rules and targets that no live lane holds anything
    /// of, while some worker holds a lane. How many were taken back.
    pub(crate) fn sweep(&self) -> usize {
        if !self.has_worker() {
            return 0;
        }
        let items: Vec<Item> = self.items();
        let live: HashSet<Scope<'_>> = items
            .iter()
            .filter(|item| item.entry.users & LANES != 0)
            .filter_map(Item::scope)
            .collect();
        items
            .iter()
            .filter(|item| item.scope().is_some_and(|scope| !live.contains(&scope)))
            .filter(|item| item.entry.users & !ORPHAN == 0 && self.take_back(&item.entry))
            .count()
    }
}
