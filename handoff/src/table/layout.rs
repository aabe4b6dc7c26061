//! Where everything is in the file. All values are 64-bit words in the machine's order.
//!
//! ```text
//! file     header (one page), then records
//! header   0 magic   1 version, record size   2 records   3 4 uuid   5 checksum of 0 to 4
//! record   0 sequence and state
//!          1 2 busy      3 4 flags     5 6 pipe ends    7 adoption attempts     line 1: hot
//!          8 9 totals   10 to 22 identity   23 checksum of 10 to 22
//! ```
//! Pairs are "to the upstream, to the client".

use std::ops::Range;

/// `BATNTABL`, read as bytes on a little-endian machine.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"BATNTABL");
/// Changes when a word changes its meaning.
pub(super) const VERSION: u32 = 1;

pub(super) const WORD: usize = size_of::<u64>();
/// Cache line of the machines this runs on, in bytes.
const LINE: usize = 64;
/// Words of a record.
pub(super) const RECORD_WORDS: usize = 24;
/// Size of a record in bytes.
pub const RECORD_SIZE: usize = RECORD_WORDS * WORD;
/// Largest record of any release, in bytes.
pub(super) const MAX_RECORD_SIZE: usize = 4096;
/// Most records of a table: more than a process can have connections.
pub const MAX_RECORDS: u32 = 1 << 21;
/// The header's share of the file, in bytes.
pub(super) const HEADER_SIZE: usize = 4096;
/// Words of the header in use.
pub(super) const HEADER_WORDS: usize = 6;

pub(super) const HEAD: usize = 0;
pub(super) const BUSY: usize = 1;
pub(super) const FLAGS: usize = 3;
pub(super) const PIPE: usize = 5;
pub(super) const ATTEMPTS: usize = 7;
pub(super) const TOTAL: usize = 8;
pub(super) const IDENTITY: Range<usize> = 10..23;
pub(super) const CHECKSUM: usize = 23;

/// Words of the identity.
pub(super) const IDENTITY_WORDS: usize = IDENTITY.end - IDENTITY.start;

const _: () = {
    assert!(RECORD_SIZE == 192 && RECORD_SIZE.is_multiple_of(LINE), "whole cache lines a record");
    assert!(HEADER_SIZE.is_multiple_of(LINE), "records start on a cache line");
    assert!(TOTAL * WORD == LINE, "all that changes with each read is in the first line");
    assert!(CHECKSUM == IDENTITY.end && CHECKSUM + 1 == RECORD_WORDS);
    assert!(HEADER_WORDS * WORD <= HEADER_SIZE && MAX_RECORD_SIZE.is_multiple_of(LINE));
};

/// The header's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Size of a record in bytes, as the writer made them.
    pub(super) record_size: usize,
    pub(super) records: u32,
    pub(super) uuid: u128,
}

impl Header {
    pub(super) fn encode(&self) -> [u64; HEADER_WORDS] {
        let [uuid_high, uuid_low] = halves(self.uuid);
        let record_size = u64::try_from(self.record_size).unwrap_or(0);
        let mut words = [
            MAGIC,
            u64::from(VERSION) | record_size << 32,
            u64::from(self.records),
            uuid_high,
            uuid_low,
            0,
        ];
        words[HEADER_WORDS - 1] = checksum(&words[..HEADER_WORDS - 1], 0);
        words
    }

    /// `None`: no table of this layout. Bounds are checked, so that offsets cannot overflow.
    pub(super) fn decode(words: &[u64; HEADER_WORDS]) -> Option<Self> {
        let [magic, version, records, uuid_high, uuid_low, sum] = *words;
        let record_size = usize::try_from(version >> 32).ok()?;
        let records = u32::try_from(records).ok()?;
        let known = magic == MAGIC
            && version & u64::from(u32::MAX) == u64::from(VERSION)
            && sum == checksum(&words[..HEADER_WORDS - 1], 0);
        let sane = (RECORD_SIZE..=MAX_RECORD_SIZE).contains(&record_size)
            && record_size.is_multiple_of(LINE)
            && (1..=MAX_RECORDS).contains(&records);
        let uuid = u128::from(uuid_high) << 64 | u128::from(uuid_low);
        (known && sane).then_some(Self { record_size, records, uuid })
    }

    /// Where a record begins in the file.
    pub(super) fn offset(&self, slot: u32) -> u64 {
        // Both factors are bounded, see `decode`.
        (HEADER_SIZE as u64) + u64::from(slot) * (self.record_size as u64)
    }

    /// Size of the whole file.
    pub(super) fn file_size(&self) -> u64 {
        self.offset(self.records)
    }

    /// The seed that ties a record's checksum to its place in this very table.
    pub(super) fn seed(&self, slot: u32) -> u64 {
        let [high, low] = halves(self.uuid);
        high ^ low ^ u64::from(slot)
    }
}

/// Both halves, the high one first.
#[allow(clippy::cast_possible_truncation, reason = "halves are what is asked for")]
pub(super) fn halves(value: u128) -> [u64; 2] {
    [(value >> 64) as u64, value as u64]
}

pub(super) fn checksum(words: &[u64], seed: u64) -> u64 {
    let mut bytes = [0; MAX_SUMMED * WORD];
    for (place, word) in bytes.chunks_exact_mut(WORD).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let length = (words.len() * WORD).min(bytes.len());
    xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..length], seed)
}

const MAX_SUMMED: usize = IDENTITY_WORDS;
const _: () = assert!(HEADER_WORDS - 1 <= MAX_SUMMED);
