//! Taking descriptors back: from vanished rules, and from processes that died holding them.
//!
//! Only the supervisor does this, in one thread.

use super::{EMPTY, Entry, FREEING, Key, LANES, ORPHAN, Phase, Room, State, TOMBSTONE, bit};
use crate::layout::desc;
use crate::shared::{Descriptor, Shared};
use crate::sync::{Ordering, fence};

impl Shared {
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
        self.finish(entry.index, descriptor);
        true
    }

    /// Goes on with descriptors that a crash has left half taken back.
    pub(crate) fn finish_all(&self) {
        for index in 0..self.layout.descriptors.len() {
            let Some(descriptor) = self.descriptor(index) else { continue };
            let state = State::unpack(descriptor[desc::STATE].load(Ordering::Acquire));
            let flagged = descriptor[desc::USERS].load(Ordering::Acquire) & FREEING != 0;
            if flagged || state.phase == Phase::Dying {
                self.finish(index, descriptor);
            }
        }
    }

    /// Takes back a descriptor marked [`FREEING`]. Repeating it from any point does no harm.
    fn finish(&self, index: usize, descriptor: &Descriptor) {
        let state = State::unpack(descriptor[desc::STATE].load(Ordering::Acquire));
        descriptor[desc::STATE].store(state.then(Phase::Dying, 0, 1).pack(), Ordering::Release);
        // A reader that sees a cell below zeroed must also see the new state.
        fence(Ordering::Release);
        if let Some(key) = self.read_key(descriptor) {
            self.bury(index, Key::new(&key));
        }
        let room = Room::unpack(descriptor[desc::CELLS].load(Ordering::Relaxed));
        if self.has_room(room) {
            self.clear(room);
        }
        descriptor[desc::USERS].fetch_and(!FREEING, Ordering::AcqRel);
        self.set_free(descriptor);
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
