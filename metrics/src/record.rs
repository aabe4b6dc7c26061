//! Learned line state: a few words per rule and target that outlive the process that learned
//! them, so that a worker which replaces a crashed one starts warm.
//!
//! A record is a sequence word, a checksum and the payload. A writer makes the sequence odd,
//! writes, and makes it even; a reader that meets an odd or changed sequence looks again. A writer
//! that died in between would leave it odd for ever, so a later writer simply takes over, and the
//! checksum (over payload and sequence) refuses what two writers at once may have mixed. No one
//! ever waits for a dead process; the price is that a torn record reads as absent until its next
//! store.
//!
//! What the words mean is the caller's affair: the schema number given at registration names it.

use std::sync::{Arc, PoisonError};

use crate::lane::Series;
use crate::layout::RECORD_PAYLOAD_WORDS;
use crate::sync::{Ordering, fence};
use crate::words::Words;

/// How often a reader looks again while a writer is at work.
const LOOKS: usize = if cfg!(loom) { 2 } else { 32 };

/// See the module. Clones are the same record.
#[derive(Clone)]
pub struct Record(Arc<Series>);

impl Record {
    pub(crate) fn new(series: Arc<Series>) -> Self {
        Self(series)
    }

    /// Replaces the payload.
    pub fn store(&self, payload: &[u64; RECORD_PAYLOAD_WORDS]) {
        // The writers of this process take turns, so that they do not tear each other's stores.
        let _one = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (words, first) = self.0.record_words();
        store(words, first, payload);
    }

    /// The payload last stored; `None` when there is none yet, or none that is whole.
    #[must_use]
    pub fn load(&self) -> Option<[u64; RECORD_PAYLOAD_WORDS]> {
        let (words, first) = self.0.record_words();
        load(words, first)
    }
}

/// Words of a record before its payload.
const SEQUENCE: usize = 0;
const CHECKSUM: usize = 1;
const PAYLOAD: usize = 2;

pub(crate) fn store<const N: usize>(words: &Words, first: usize, payload: &[u64; N]) {
    let Some(sequence) = words.get(first + SEQUENCE) else { return };
    let before = sequence.load(Ordering::Relaxed);
    // From even to the next odd; from odd (its writer is dead, or about to lose) to the one after.
    let busy = before.wrapping_add(1) | 1;
    if sequence.compare_exchange(before, busy, Ordering::Acquire, Ordering::Relaxed).is_err() {
        // Another process stores this very record right now. What it knows is as good.
        return;
    }
    fence(Ordering::Release);
    for (i, word) in payload.iter().enumerate() {
        words.store(first + PAYLOAD + i, *word, Ordering::Relaxed);
    }
    let done = busy.wrapping_add(1);
    words.store(first + CHECKSUM, checksum(done, payload), Ordering::Relaxed);
    // Fails when another writer has taken over: then its store decides.
    sequence.compare_exchange(busy, done, Ordering::Release, Ordering::Relaxed).ok();
}

pub(crate) fn load<const N: usize>(words: &Words, first: usize) -> Option<[u64; N]> {
    for _ in 0..LOOKS {
        let before = words.load(first + SEQUENCE, Ordering::Acquire);
        if before == 0 {
            return None;
        }
        if before % 2 == 1 {
            std::hint::spin_loop();
            continue;
        }
        let mut payload = [0; N];
        for (i, word) in payload.iter_mut().enumerate() {
            *word = words.load(first + PAYLOAD + i, Ordering::Relaxed);
        }
        let sum = words.load(first + CHECKSUM, Ordering::Relaxed);
        fence(Ordering::Acquire);
        if words.load(first + SEQUENCE, Ordering::Relaxed) == before {
            return (sum == checksum(before, &payload)).then_some(payload);
        }
    }
    None
}

fn checksum(sequence: u64, payload: &[u64]) -> u64 {
    let mut bytes = [0; RECORD_PAYLOAD_WORDS * 8];
    for (to, word) in bytes.chunks_exact_mut(8).zip(payload) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, sequence)
}
