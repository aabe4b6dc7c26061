//! Room for a new descriptor: a reusable one of the same shape, else a fresh one.
//!
//! A descriptor keeps its cells and its place in the arena for life; one that was taken back
//! serves another key that needs as many cells and no longer a key. So a region in which rules
//! and targets come and go reaches a steady state instead of filling up.

use super::{KeyPlace, Phase, Room, State};
use crate::key::{Entity, Meta};
use crate::layout::{desc, head};
use crate::shared::Shared;
use crate::sync::Ordering;

/// Room for keys comes in steps of 32 bytes, so that taken-back descriptors fit more keys.
const KEY_STEP_WORDS: usize = 4;

impl Shared {
    /// A descriptor in phase `Claimed` with cells and room for a key of `key_bytes`.
    pub(super) fn claim_descriptor(
        &self,
        lane: usize,
        meta: Meta,
        key_bytes: usize,
        cells: usize,
        cursor: &mut usize,
    ) -> Option<usize> {
        let record = meta.entity == Entity::Record;
        let key_words = key_bytes.div_ceil(8).next_multiple_of(KEY_STEP_WORDS);
        self.claim_used(lane, record, key_words, cells, cursor)
            .or_else(|| self.claim_fresh(lane, record, key_words, cells))
    }

    fn claim_used(
        &self,
        lane: usize,
        record: bool,
        key_words: usize,
        cells: usize,
        cursor: &mut usize,
    ) -> Option<usize> {
        if self.words.load(head::FREE_DESCRIPTORS, Ordering::Relaxed) == 0 {
            return None;
        }
        let all = self.layout.descriptors.len();
        for step in 0..all {
            let index = (*cursor + step) % all;
            let descriptor = self.descriptor(index)?;
            let state = descriptor[desc::STATE].load(Ordering::Acquire);
            if State::unpack(state).phase != Phase::Free {
                continue;
            }
            let room = Room::unpack(descriptor[desc::CELLS].load(Ordering::Relaxed));
            let place = KeyPlace::unpack(descriptor[desc::KEY].load(Ordering::Relaxed));
            let inside = place.word + place.room <= self.layout.arena.len();
            let fits = room.record == record
                && room.count == cells
                && place.room >= key_words
                && inside
                && self.has_room(room);
            if fits && self.try_claim(index, state, lane) {
                *cursor = index + 1;
                self.count_claimed();
                return Some(index);
            }
        }
        None
    }

    fn claim_fresh(
        &self,
        lane: usize,
        record: bool,
        key_words: usize,
        cells: usize,
    ) -> Option<usize> {
        let section = if record { self.layout.records } else { self.layout.base };
        let next = if record { head::NEXT_RECORD } else { head::NEXT_CELL };
        // Looked at first, so that failures in a full region use nothing up.
        let all = [
            (head::NEXT_DESCRIPTOR, self.layout.descriptors.len(), 1),
            (head::NEXT_ARENA, self.layout.arena.len(), key_words),
            (next, section.len(), cells),
        ];
        let left = |(pointer, all, count): (usize, usize, usize)| {
            let used = self.words.load(pointer, Ordering::Relaxed);
            usize::try_from(used).is_ok_and(|used| used.saturating_add(count) <= all)
        };
        if !all.into_iter().all(left) {
            return None;
        }
        let block = (!record).then(|| self.layout.block_words());
        let room = self
            .bump(head::NEXT_ARENA, self.layout.arena.len(), key_words, None)
            .zip(self.bump(next, section.len(), cells, block));
        let descriptor =
            self.bump(head::NEXT_DESCRIPTOR, self.layout.descriptors.len(), 1, None)?;
        let (word, first) = room?;
        let words = self.descriptor(descriptor)?;
        let state = words[desc::STATE].load(Ordering::Acquire);
        if !self.try_claim(descriptor, state, lane) {
            return None;
        }
        words[desc::CELLS].store(Room { first, count: cells, record }.pack(), Ordering::Relaxed);
        let place = KeyPlace { word, bytes: 0, room: key_words };
        words[desc::KEY].store(place.pack(), Ordering::Relaxed);
        Some(descriptor)
    }

    fn try_claim(&self, index: usize, state: u64, lane: usize) -> bool {
        let claimed = State::unpack(state).then(Phase::Claimed, lane, 1);
        self.descriptor(index).is_some_and(|descriptor| {
            descriptor[desc::STATE]
                .compare_exchange(state, claimed.pack(), Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        })
    }

    fn count_claimed(&self) {
        if let Some(free) = self.words.get(head::FREE_DESCRIPTORS) {
            // Never below zero: it is a hint, and a wrong one must not turn into 2^64.
            let fewer = |count: u64| count.checked_sub(1);
            free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).ok();
        }
    }

    /// Takes `count` of `all` from a bump pointer, inside one block of `block` if given.
    fn bump(
        &self,
        pointer: usize,
        all: usize,
        count: usize,
        block: Option<usize>,
    ) -> Option<usize> {
        let word = self.words.get(pointer)?;
        let mut current = word.load(Ordering::Relaxed);
        loop {
            let mut first = usize::try_from(current).ok().filter(|first| *first <= all)?;
            if let Some(block) = block {
                let crosses = count > 0 && first / block != (first + count - 1) / block;
                if crosses {
                    first = first.next_multiple_of(block);
                }
                if count > block {
                    return None;
                }
            }
            let next = first.checked_add(count).filter(|next| *next <= all)? as u64;
            match word.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(first),
                Err(seen) => current = seen,
            }
        }
    }
}
