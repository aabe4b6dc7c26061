//! What a descriptor says, word by word, and the check that it says something whole.

use crate::key::{Entity, Meta};
use crate::layout::{desc, high, low};
use crate::shared::{Descriptor, Shared};
use crate::sync::{Ordering, fence};

/// What a descriptor is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Free,
    /// Being filled by a lane.
    Claimed,
    /// Complete; what slots point to.
    Ready,
    /// Being taken back.
    Dying,
    /// Overwritten memory: to be left alone.
    Unknown,
}

/// A descriptor's `state` word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) lane: u8,
    pub(crate) number: u64,
}

impl State {
    pub(crate) fn pack(self) -> u64 {
        let phase = match self.phase {
            Phase::Free => 0,
            Phase::Claimed => 1,
            Phase::Ready => 2,
            Phase::Dying => 3,
            Phase::Unknown => 0xFF,
        };
        phase | u64::from(self.lane) << 8 | self.number << 16
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let [phase, lane, ..] = word.to_le_bytes();
        let phase = match phase {
            0 => Phase::Free,
            1 => Phase::Claimed,
            2 => Phase::Ready,
            3 => Phase::Dying,
            _ => Phase::Unknown,
        };
        Self { phase, lane, number: word >> 16 }
    }

    /// The same descriptor in another phase and, when it changes hands, with another number.
    pub(super) fn then(self, phase: Phase, lane: usize, step: u64) -> Self {
        let lane = u8::try_from(lane).unwrap_or(u8::MAX);
        Self { phase, lane, number: self.number.wrapping_add(step) }
    }
}

/// The cells of a series, or the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) record: bool,
}

impl Room {
    pub(super) fn pack(self) -> u64 {
        let first = u32::try_from(self.first).unwrap_or(u32::MAX);
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        u64::from(first) | u64::from(count) << 32 | u64::from(self.record) << 48
    }

    pub(super) fn unpack(word: u64) -> Self {
        Self {
            first: low(word) as usize,
            count: (high(word) & 0xFFFF) as usize,
            record: word >> 48 & 1 == 1,
        }
    }
}

/// The place of a key in the arena.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyPlace {
    pub(super) word: usize,
    pub(super) bytes: usize,
    pub(super) room: usize,
}

impl KeyPlace {
    pub(super) fn pack(self) -> u64 {
        let word = u32::try_from(self.word).unwrap_or(u32::MAX);
        let bytes = u16::try_from(self.bytes).unwrap_or(u16::MAX);
        let room = u16::try_from(self.room).unwrap_or(u16::MAX);
        u64::from(word) | u64::from(bytes) << 32 | u64::from(room) << 48
    }

    pub(super) fn unpack(word: u64) -> Self {
        Self {
            word: low(word) as usize,
            bytes: (high(word) & 0xFFFF) as usize,
            room: (high(word) >> 16) as usize,
        }
    }
}

/// A whole descriptor, checked.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) index: usize,
    pub(crate) state: u64,
    pub(crate) users: u64,
    pub(crate) meta: Meta,
    pub(crate) key: Vec<u8>,
    pub(crate) room: Room,
    pub(crate) created: u64,
}

/// Where a registration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) descriptor: usize,
    pub(crate) room: Room,
}

/// Why there is nothing to read at a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Free, being filled or being taken back.
    Unused,
    /// Marked complete, but its checksum or an offset is wrong.
    Damaged,
}

impl Shared {
    /// What a descriptor says, with checksum and every offset checked.
    pub(crate) fn entry(&self, index: usize) -> Result<Entry, Absent> {
        let descriptor = self.descriptor(index).ok_or(Absent::Unused)?;
        let state = descriptor[desc::STATE].load(Ordering::Acquire);
        if State::unpack(state).phase != Phase::Ready {
            return Err(Absent::Unused);
        }
        let users = descriptor[desc::USERS].load(Ordering::Acquire);
        let read = self.read_entry(index, descriptor, state, users);
        if !self.unchanged(index, state) {
            return Err(Absent::Unused);
        }
        read.ok_or(Absent::Damaged)
    }

    /// Whether everything read from a descriptor since it was seen in `state` belongs to it.
    pub(crate) fn unchanged(&self, index: usize, state: u64) -> bool {
        fence(Ordering::Acquire);
        self.descriptor(index)
            .is_some_and(|descriptor| descriptor[desc::STATE].load(Ordering::Relaxed) == state)
    }

    fn read_entry(
        &self,
        index: usize,
        descriptor: &Descriptor,
        state: u64,
        users: u64,
    ) -> Option<Entry> {
        let key = self.read_key(descriptor)?;
        if descriptor[desc::CRC].load(Ordering::Relaxed) != checksum(descriptor, &key) {
            return None;
        }
        let room = Room::unpack(descriptor[desc::CELLS].load(Ordering::Relaxed));
        let meta = Meta::unpack(descriptor[desc::META].load(Ordering::Relaxed))?;
        if room.record != (meta.entity == Entity::Record) || !self.has_room(room) {
            return None;
        }
        let created = descriptor[desc::CREATED].load(Ordering::Relaxed);
        Some(Entry { index, state, users, meta, key, room, created })
    }

    pub(super) fn read_key(&self, descriptor: &Descriptor) -> Option<Vec<u8>> {
        let place = KeyPlace::unpack(descriptor[desc::KEY].load(Ordering::Relaxed));
        let inside = place.word + place.room <= self.layout.arena.len();
        if place.bytes > place.room * 8 || !inside {
            return None;
        }
        let mut key = Vec::with_capacity(place.room * 8);
        for word in 0..place.bytes.div_ceil(8) {
            let at = self.layout.arena.at(place.word + word)?;
            key.extend(self.words.load(at, Ordering::Relaxed).to_le_bytes());
        }
        key.truncate(place.bytes);
        Some(key)
    }

    /// Makes the checksum of a descriptor right, for tests of what comes behind it.
    pub(crate) fn repair(&self, index: usize) {
        if let Some(descriptor) = self.descriptor(index)
            && let Some(key) = self.read_key(descriptor)
        {
            descriptor[desc::CRC].store(checksum(descriptor, &key), Ordering::Relaxed);
        }
    }

    /// Whether all cells lie inside, and inside one block.
    pub(super) fn has_room(&self, room: Room) -> bool {
        let section = if room.record { self.layout.records } else { self.layout.base };
        let block = self.layout.block_words();
        let one_block = room.record
            || room.count == 0
            || (room.first / block == (room.first + room.count - 1) / block);
        room.first + room.count <= section.len() && one_block
    }
}

/// CRC-32 of a descriptor's unchanging words and its key.
pub(super) fn checksum(descriptor: &Descriptor, key: &[u8]) -> u64 {
    let mut fixed = [0; 40];
    let words = [desc::HASH, desc::META, desc::KEY, desc::CELLS, desc::CREATED];
    for (bytes, word) in fixed.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&descriptor[word].load(Ordering::Relaxed).to_le_bytes());
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&fixed);
    crc.update(key);
    u64::from(crc.finalize())
}
