//! The directory: from a key to the cells that count it.
//!
//! Open addressing over `slots`; a slot names a descriptor. Registration is free of locks: a
//! descriptor is claimed, filled, made `READY` and only then put into a slot with one exchange,
//! so whoever finds it finds it whole, and a process that dies on the way leaves nothing that
//! another one waits for.
//!
//! A descriptor's `users` word has a bit for each lane that holds the series. [`Shared::hold`]
//! sets it, [`Shared::let_go`] clears it, and a sweep takes the descriptor back by exchanging
//! "no users" for [`FREEING`]: a holder that comes at that moment sees the flag and registers
//! anew. The `state` word's number changes whenever a descriptor changes hands; a reader that
//! finds the same state before and after has read one series, not a mix of two.
//!
//! Limits: two processes that insert the same key at the very moment of a sweep may make two
//! descriptors for it. Readers add them up, so nothing is lost or doubled.

mod alloc;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::key::{Entity, Meta};
use crate::layout::{desc, head, high, low};
use crate::shared::{Descriptor, Shared};
use crate::sync::{Ordering, fence};

/// In `users`: its last holder died. It stays visible until a sweep finds its rule gone.
pub(crate) const ORPHAN: u64 = 1 << 62;
/// In `users`: a sweep is taking the descriptor back.
pub(crate) const FREEING: u64 = 1 << 63;
/// The lanes' bits in `users`.
pub(crate) const LANES: u64 = (1 << crate::layout::MAX_LANES) - 1;

const EMPTY: u64 = 0;
/// A slot whose descriptor was taken back. Probing goes on behind it; an insertion may use it.
const TOMBSTONE: u64 = 0xFFFF_FFFF;

/// Attempts before a registration that keeps losing to others counts as one without room.
const ATTEMPTS: usize = 16;

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
        };
        phase | u64::from(self.lane) << 8 | self.number << 16
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let [phase, lane, ..] = word.to_le_bytes();
        let phase = match phase {
            0 => Phase::Free,
            1 => Phase::Claimed,
            2 => Phase::Ready,
            // An unknown phase is overwritten memory: leave it alone.
            _ => Phase::Dying,
        };
        Self { phase, lane, number: word >> 16 }
    }

    /// The same descriptor in another phase and, when it changes hands, with another number.
    fn then(self, phase: Phase, lane: usize, step: u64) -> Self {
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
    fn pack(self) -> u64 {
        let first = u32::try_from(self.first).unwrap_or(u32::MAX);
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        u64::from(first) | u64::from(count) << 32 | u64::from(self.record) << 48
    }

    fn unpack(word: u64) -> Self {
        Self {
            first: low(word) as usize,
            count: (high(word) & 0xFFFF) as usize,
            record: word >> 48 & 1 == 1,
        }
    }
}

/// The place of a key in the arena.
#[derive(Debug, Clone, Copy)]
struct KeyPlace {
    word: usize,
    bytes: usize,
    room: usize,
}

impl KeyPlace {
    fn pack(self) -> u64 {
        let word = u32::try_from(self.word).unwrap_or(u32::MAX);
        let bytes = u16::try_from(self.bytes).unwrap_or(u16::MAX);
        let room = u16::try_from(self.room).unwrap_or(u16::MAX);
        u64::from(word) | u64::from(bytes) << 32 | u64::from(room) << 48
    }

    fn unpack(word: u64) -> Self {
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

/// A key with its hash.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) bytes: &'a [u8],
    hash: u64,
}

impl<'a> Key<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, hash: xxhash_rust::xxh3::xxh3_64(bytes) }
    }

    fn slot_value(self, descriptor: usize) -> u64 {
        // Descriptors number at most 2^18, so a value is neither EMPTY nor TOMBSTONE.
        (self.hash & 0xFFFF_FFFF_0000_0000) | (descriptor as u64 + 1)
    }
}

impl Shared {
    /// Finds or makes the descriptor of `key` and marks it as held by `lane`. `None` when there
    /// is no room. `cursor` is where the caller's last search for a reusable descriptor ended.
    pub(crate) fn register(
        &self,
        lane: usize,
        meta: Meta,
        key: &[u8],
        cells: usize,
        cursor: &mut usize,
    ) -> Option<Registered> {
        if key.len() > crate::layout::MAX_KEY {
            return None;
        }
        let key = Key::new(key);
        for _ in 0..ATTEMPTS {
            if let Some((index, state)) = self.find(key) {
                match self.hold(index, state, lane) {
                    Some(registered) => return Some(registered),
                    None => continue,
                }
            }
            let index = self.claim_descriptor(lane, meta, key.bytes.len(), cells, cursor)?;
            let room = self.fill(index, lane, meta, key)?;
            match self.publish(index, key) {
                Publish::Done => return Some(Registered { descriptor: index, room }),
                Publish::Other => self.give_back(index, lane),
                Publish::Full => {
                    self.give_back(index, lane);
                    return None;
                }
            }
        }
        None
    }

    /// The descriptor of `key` and its state, by way of the slots.
    fn find(&self, key: Key<'_>) -> Option<(usize, u64)> {
        for slot in self.probe(key.hash) {
            let value = self.words.load(slot, Ordering::Acquire);
            if value == EMPTY {
                return None;
            }
            if let Some(found) = self.compare(value, key) {
                return Some(found);
            }
        }
        None
    }

    /// The descriptor a slot names, if it has this very key.
    fn compare(&self, slot: u64, key: Key<'_>) -> Option<(usize, u64)> {
        if slot == TOMBSTONE || high(slot) != high(key.hash) {
            return None;
        }
        let index = low(slot).checked_sub(1)? as usize;
        let entry = self.entry(index).ok()?;
        (entry.key == key.bytes).then_some((index, entry.state))
    }

    /// The slots in which a key of this hash may be, in order.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let slots = self.layout.slots;
        let mask = slots.len() - 1;
        let home = low(hash) as usize;
        (0..slots.len()).map(move |step| slots.offset as usize + ((home + step) & mask))
    }

    /// Marks a descriptor seen in `state` as held by `lane`; `None` when it has been taken back
    /// meanwhile.
    fn hold(&self, index: usize, state: u64, lane: usize) -> Option<Registered> {
        let descriptor = self.descriptor(index)?;
        let before = descriptor[desc::USERS].fetch_or(bit(lane), Ordering::AcqRel);
        let unchanged = descriptor[desc::STATE].load(Ordering::Acquire) == state;
        if before & FREEING != 0 || !unchanged {
            if before & bit(lane) == 0 {
                descriptor[desc::USERS].fetch_and(!bit(lane), Ordering::AcqRel);
            }
            return None;
        }
        descriptor[desc::USERS].fetch_and(!ORPHAN, Ordering::AcqRel);
        let room = Room::unpack(descriptor[desc::CELLS].load(Ordering::Relaxed));
        Some(Registered { descriptor: index, room })
    }

    /// `lane` no longer holds the descriptor.
    pub(crate) fn let_go(&self, index: usize, lane: usize) {
        if let Some(descriptor) = self.descriptor(index) {
            descriptor[desc::USERS].fetch_and(!bit(lane), Ordering::AcqRel);
        }
    }

    /// Writes a claimed descriptor and its key and makes it complete.
    fn fill(&self, index: usize, lane: usize, meta: Meta, key: Key<'_>) -> Option<Room> {
        let descriptor = self.descriptor(index)?;
        let place = KeyPlace::unpack(descriptor[desc::KEY].load(Ordering::Relaxed));
        let place = KeyPlace { bytes: key.bytes.len(), ..place };
        for (i, chunk) in key.bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.words.store(
                self.layout.arena.at(place.word + i)?,
                u64::from_le_bytes(word),
                Ordering::Relaxed,
            );
        }
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        descriptor[desc::HASH].store(key.hash, Ordering::Relaxed);
        descriptor[desc::META].store(meta.pack(), Ordering::Relaxed);
        descriptor[desc::KEY].store(place.pack(), Ordering::Relaxed);
        descriptor[desc::CREATED].store(created, Ordering::Relaxed);
        descriptor[desc::CRC].store(checksum(descriptor, key.bytes), Ordering::Relaxed);
        descriptor[desc::USERS].fetch_or(bit(lane), Ordering::AcqRel);
        let state = State::unpack(descriptor[desc::STATE].load(Ordering::Relaxed));
        let ready = state.then(Phase::Ready, lane, 0);
        descriptor[desc::STATE].store(ready.pack(), Ordering::Release);
        Some(Room::unpack(descriptor[desc::CELLS].load(Ordering::Relaxed)))
    }

    /// Puts a complete descriptor into the first slot that is empty or a tombstone.
    fn publish(&self, index: usize, key: Key<'_>) -> Publish {
        for _ in 0..ATTEMPTS {
            let mut place = None;
            for slot in self.probe(key.hash) {
                let value = self.words.load(slot, Ordering::Acquire);
                if value == TOMBSTONE || value == EMPTY {
                    place = place.or(Some((slot, value)));
                }
                if value == EMPTY {
                    break;
                }
                if self.compare(value, key).is_some_and(|(other, _)| other != index) {
                    return Publish::Other;
                }
            }
            let Some((slot, expected)) = place else { return Publish::Full };
            if self.words.swap_if(slot, expected, key.slot_value(index)) {
                return Publish::Done;
            }
            // Somebody was quicker, perhaps with this very key: look again from the start.
        }
        Publish::Full
    }

    /// Makes a descriptor that never reached a slot reusable.
    fn give_back(&self, index: usize, lane: usize) {
        if let Some(descriptor) = self.descriptor(index) {
            descriptor[desc::USERS].fetch_and(!bit(lane), Ordering::AcqRel);
            self.set_free(descriptor);
        }
    }

    fn set_free(&self, descriptor: &Descriptor) {
        let state = State::unpack(descriptor[desc::STATE].load(Ordering::Relaxed));
        descriptor[desc::STATE].store(state.then(Phase::Free, 0, 1).pack(), Ordering::Release);
        self.words.fetch_add(head::FREE_DESCRIPTORS, 1);
    }

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
        let place = KeyPlace::unpack(descriptor[desc::KEY].load(Ordering::Relaxed));
        if place.bytes > place.room * 8 {
            return None;
        }
        let mut key = Vec::with_capacity(place.room * 8);
        for word in 0..place.bytes.div_ceil(8) {
            let at = self.layout.arena.at(place.word + word)?;
            key.extend(self.words.load(at, Ordering::Relaxed).to_le_bytes());
        }
        key.truncate(place.bytes);
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

    /// Whether all cells lie inside, and inside one block.
    fn has_room(&self, room: Room) -> bool {
        let section = if room.record { self.layout.records } else { self.layout.base };
        let block = self.layout.block_words();
        let one_block = room.record
            || room.count == 0
            || (room.first / block == (room.first + room.count - 1) / block);
        room.first + room.count <= section.len() && one_block
    }

    /// Takes back a descriptor that nobody holds and makes it reusable. Only the supervisor
    /// does this. Whether it was still in `entry`'s state and unused.
    pub(crate) fn take_back(&self, entry: &Entry) -> bool {
        let Some(descriptor) = self.descriptor(entry.index) else { return false };
        if entry.users & LANES != 0
            || descriptor[desc::USERS]
                .compare_exchange(entry.users, FREEING, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
        {
            return false;
        }
        let dying = State::unpack(entry.state).then(Phase::Dying, 0, 1);
        descriptor[desc::STATE].store(dying.pack(), Ordering::Release);
        // A reader that sees a cell below zeroed must also see the new state.
        fence(Ordering::Release);
        self.bury(entry.index, Key::new(&entry.key));
        self.clear(entry.room);
        descriptor[desc::USERS].fetch_and(!FREEING, Ordering::AcqRel);
        self.set_free(descriptor);
        true
    }

    /// Makes the slot of a descriptor a tombstone, or empty when nothing can lie behind it.
    fn bury(&self, index: usize, key: Key<'_>) {
        let value = key.slot_value(index);
        let mut probe = self.probe(key.hash).peekable();
        while let Some(slot) = probe.next() {
            let found = self.words.load(slot, Ordering::Acquire);
            if found == EMPTY {
                return;
            }
            if found == value {
                let last = probe
                    .peek()
                    .is_some_and(|next| self.words.load(*next, Ordering::Acquire) == EMPTY);
                let rest = if last { EMPTY } else { TOMBSTONE };
                self.words.swap_if(slot, value, rest);
                return;
            }
        }
    }

    /// Zeroes cells in both base copies and all lanes, or a record.
    fn clear(&self, room: Room) {
        for cell in room.first..room.first + room.count {
            if room.record {
                for word in 0..self.layout.records.stride as usize {
                    if let Some(first) = self.layout.records.at(cell) {
                        self.words.store(first + word, 0, Ordering::Relaxed);
                    }
                }
                continue;
            }
            let lanes = (0..self.layout.lanes.len()).map(|lane| self.lane_cell(lane, cell));
            let base = [self.base_cell(0, cell), self.base_cell(1, cell)];
            for word in lanes.chain(base).flatten() {
                self.words.store(word, 0, Ordering::Relaxed);
            }
        }
    }

    /// Takes `lane`, whose process is dead, out of every descriptor. Repeating it changes nothing.
    pub(crate) fn forget_lane(&self, lane: usize) {
        for index in 0..self.layout.descriptors.len() {
            let Some(descriptor) = self.descriptor(index) else { continue };
            let word = descriptor[desc::STATE].load(Ordering::Acquire);
            let state = State::unpack(word);
            if state.phase == Phase::Claimed && usize::from(state.lane) == lane {
                self.give_back(index, lane);
                continue;
            }
            let without = |users: u64| {
                let left = users & !bit(lane);
                let orphaned = if left & LANES == 0 { left | ORPHAN } else { left };
                (users & bit(lane) != 0).then_some(orphaned)
            };
            // An error says that the lane does not hold it: nothing to do.
            descriptor[desc::USERS].fetch_update(Ordering::AcqRel, Ordering::Acquire, without).ok();
        }
    }
}

enum Publish {
    Done,
    /// Another process has published the same key.
    Other,
    Full,
}

/// A lane's bit in `users`.
pub(crate) fn bit(lane: usize) -> u64 {
    u32::try_from(lane).ok().and_then(|lane| 1u64.checked_shl(lane)).unwrap_or(0) & LANES
}

/// CRC-32 of a descriptor's unchanging words and its key.
fn checksum(descriptor: &Descriptor, key: &[u8]) -> u64 {
    let mut crc = crc32fast::Hasher::new();
    for word in [desc::HASH, desc::META, desc::KEY, desc::CELLS, desc::CREATED] {
        crc.update(&descriptor[word].load(Ordering::Relaxed).to_le_bytes());
    }
    crc.update(key);
    u64::from(crc.finalize())
}
