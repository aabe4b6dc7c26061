//! The directory: from a key to the cells that count it.
//!
//! Open addressing over `slots`; a slot names a descriptor. Registration is free of locks: a
//! descriptor is claimed, filled, made `READY` and only then put into a slot with one exchange,
//! so whoever finds it finds it whole, and a process that dies on the way leaves nothing that
//! another one waits for.
//!
//! A descriptor's `users` word has a bit for each lane that holds the series. [`Shared::hold`]
//! sets it, [`Shared::let_go`] clears it, and a sweep takes the descriptor back by exchanging
//! "no users" for [`FREEING`]: who comes at that moment sees the flag and registers anew. The `state` word's number changes whenever a descriptor changes hands; a reader that
//! finds the same state before and after has read one series, not a mix of two.
//!
//! Limits: two processes that insert the same key at the very moment of a sweep may make two
//! descriptors for it. Readers add them up, so nothing is lost or doubled.

mod alloc;
mod entry;
mod reclaim;

pub(crate) use self::entry::{Absent, Entry, Phase, Registered, Room, State};
use self::entry::{KeyPlace, checksum};
use crate::key::Meta;
use crate::layout::{desc, head, high, low};
use crate::shared::{Descriptor, Shared};
use crate::sync::{Ordering, unix_ms};

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
        // One that is being taken back is gone, even if whoever does it has died over it.
        let is_it = entry.key == key.bytes && entry.users & FREEING == 0;
        is_it.then_some((index, entry.state))
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
        let created = unix_ms();
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
