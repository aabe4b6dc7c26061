//! Where everything lies in the region, and the header that says so.
//!
//! The region is a run of little-endian 64-bit words in sections. The header names each
//! section's place, count and stride; a reader uses those numbers, never its own idea of them,
//! so a later minor version may append words to an entry. Everything after the header's CRC
//! changes during the region's life.
//!
//! ```text
//! header │ lanes │ block tables │ slots │ descriptors │ arena │ base ×2 │ records │ owners │ pool
//! ```
//! * *lanes*: one entry per live process.
//! * *block tables*: per lane, which block of the pool holds which run of its cells. A lane owns
//!   blocks only for the series it uses, so the supervisor's few cost it 1 KiB, not a full lane.
//! * *slots*, *descriptors*, *arena*: the directory, its entries and their keys.
//! * *base*: the totals of dead lanes, twice: a fold writes the copy that is not current and
//!   then makes it current with one store (see `fold`).
//! * *records*: learned line state. *owners*, *pool*: the blocks and whose they are.

use std::mem::offset_of;

mod header;

use header::HEADER_WORDS;
pub use header::LayoutError;
#[cfg_attr(loom, allow(unused_imports))]
pub(crate) use header::{Identity, head};

/// Smallest region, bytes.
pub const MIN_SIZE: u64 = 64 * 1024;
/// Largest region, bytes.
pub const MAX_SIZE: u64 = 64 * 1024 * 1024;

/// Bytes of region for each series it can hold: a descriptor (64), two slots (16), key (64), two
/// cells in each base copy (32), a sixteenth of a record (8), leave 72 for lanes: about four full
/// ones of two cells a series.
const BYTES_PER_SERIES: u64 = 256;
const ARENA_WORDS_PER_SERIES: u32 = 8;
const CELLS_PER_SERIES: u32 = 2;
const SERIES_PER_RECORD: u32 = 16;
/// One bit each in a descriptor's users word.
pub(crate) const MAX_LANES: u32 = 32;
/// Cells in a block, 1 KiB: the largest histogram fits many times.
const BLOCK_WORDS: u32 = 128;
/// Processes never share one: two cache lines, because the prefetcher fetches pairs.
const ALIGN_WORDS: u32 = 16;
/// A key longer than this many bytes gets no place.
pub(crate) const MAX_KEY: usize = 1024;
/// Words of an entry in `records`: sequence, checksum, payload.
const RECORD_WORDS: u32 = 16;
/// Words a [`Record`](crate::Record) can carry.
pub const RECORD_PAYLOAD_WORDS: usize = RECORD_WORDS as usize - 2;

/// A table in the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Section {
    /// In words, from the start of the region.
    pub(crate) offset: u32,
    /// Entries.
    pub(crate) count: u32,
    /// Words an entry.
    pub(crate) stride: u32,
    reserved: u32,
}

impl Section {
    /// The index of an entry's first word; `None` when there is no such entry.
    #[inline]
    pub(crate) fn at(&self, entry: usize) -> Option<usize> {
        (entry < self.count as usize).then(|| self.offset as usize + entry * self.stride as usize)
    }

    /// Entries, as an index range's end.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.count) * u64::from(self.stride)
    }
}

/// The sections in the order in which they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Layout {
    pub(crate) lanes: Section,
    /// Entry = a lane; word = 1 + block of the pool, 0 for none.
    pub(crate) tables: Section,
    pub(crate) slots: Section,
    pub(crate) descriptors: Section,
    /// Entry = one word.
    pub(crate) arena: Section,
    /// Entry = one cell; the first copy.
    pub(crate) base: Section,
    /// The second copy.
    pub(crate) base_b: Section,
    pub(crate) records: Section,
    /// Entry = a block's owner: 1 + lane, 0 for free.
    pub(crate) owners: Section,
    /// Entry = a block.
    pub(crate) pool: Section,
}

const SECTIONS: usize = size_of::<Layout>() / size_of::<Section>();

/// An entry of `lanes`.
#[repr(C)]
pub(crate) struct LaneEntry {
    /// See [`Owner`](crate::owner::Owner); 0 is free.
    owner: u64,
    /// The claim's number; the newest lane has the highest.
    claim: u64,
    /// Inode of the process-number namespace in which the owner's number counts; 0 unknown.
    namespace: u64,
    reserved: [u64; 13],
}

pub(crate) const LANE_OWNER: usize = offset_of!(LaneEntry, owner) / 8;
pub(crate) const LANE_CLAIM: usize = offset_of!(LaneEntry, claim) / 8;
pub(crate) const LANE_NAMESPACE: usize = offset_of!(LaneEntry, namespace) / 8;
const LANE_WORDS: u32 = words_of::<LaneEntry>();

/// An entry of `descriptors`: one family, series or record.
#[repr(C)]
pub(crate) struct DescriptorEntry {
    /// A bit for each lane that uses it, and flags (see `directory`).
    users: u64,
    /// Phase, the claiming lane, and a number that changes whenever the entry changes hands.
    state: u64,
    /// xxh3 of the key.
    hash: u64,
    /// Type, aggregation, unit, family.
    meta: u64,
    /// Place, length and room of the key in the arena.
    key: u64,
    /// First cell (or the record) and how many.
    cells: u64,
    /// Unix milliseconds.
    created: u64,
    /// CRC-32 of the four words from `hash` on, `created` and the key.
    crc: u64,
}

pub(crate) const DESCRIPTOR_WORDS: usize = size_of::<DescriptorEntry>() / 8;
/// Word indices inside a descriptor.
pub(crate) mod desc {
    use super::{DescriptorEntry, offset_of};

    pub(crate) const USERS: usize = offset_of!(DescriptorEntry, users) / 8;
    pub(crate) const STATE: usize = offset_of!(DescriptorEntry, state) / 8;
    pub(crate) const HASH: usize = offset_of!(DescriptorEntry, hash) / 8;
    pub(crate) const META: usize = offset_of!(DescriptorEntry, meta) / 8;
    pub(crate) const KEY: usize = offset_of!(DescriptorEntry, key) / 8;
    pub(crate) const CELLS: usize = offset_of!(DescriptorEntry, cells) / 8;
    pub(crate) const CREATED: usize = offset_of!(DescriptorEntry, created) / 8;
    pub(crate) const CRC: usize = offset_of!(DescriptorEntry, crc) / 8;
}

const _: () = {
    assert!(size_of::<LaneEntry>() == 128);
    assert!(size_of::<DescriptorEntry>() == 64);
    assert!(offset_of!(DescriptorEntry, crc) == 56);
    assert!(MAX_LANES <= 56);
};

/// How many of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) lanes: u32,
    pub(crate) series: u32,
    pub(crate) cells: u32,
    pub(crate) arena: u32,
    pub(crate) records: u32,
    pub(crate) block: u32,
}

impl Layout {
    /// The layout of a fresh region of `size` bytes.
    pub(crate) fn plan(size: u64) -> Result<Self, LayoutError> {
        if !(MIN_SIZE..=MAX_SIZE).contains(&size) || !size.is_multiple_of(4096) {
            return Err(LayoutError::Size(size));
        }
        // At most 2^18 series and 2^23 words: everything below fits u32.
        let series = u32::try_from(size / BYTES_PER_SERIES).map_err(|_| LayoutError::Size(size))?;
        let words = u32::try_from(size / 8).map_err(|_| LayoutError::Size(size))?;
        let counts = Counts {
            lanes: MAX_LANES,
            series,
            cells: series * CELLS_PER_SERIES,
            arena: series * ARENA_WORDS_PER_SERIES,
            records: series / SERIES_PER_RECORD,
            block: BLOCK_WORDS,
        };
        Self::pack(&counts, words).ok_or(LayoutError::Size(size))
    }

    /// Lays the sections out one after the other; what is left becomes the pool. `None` when
    /// nothing is left.
    pub(crate) fn pack(counts: &Counts, words: u32) -> Option<Self> {
        let mut next = HEADER_WORDS;
        let lanes = place(&mut next, counts.lanes, LANE_WORDS);
        let tables = place(&mut next, counts.lanes, counts.cells.div_ceil(counts.block));
        // A power of two, at most half full when every descriptor is in use.
        let slots = place(&mut next, (counts.series * 2).next_power_of_two(), 1);
        let descriptors = place(&mut next, counts.series, words_of::<DescriptorEntry>());
        let arena = place(&mut next, counts.arena, 1);
        let base = place(&mut next, counts.cells, 1);
        let base_b = place(&mut next, counts.cells, 1);
        let records = place(&mut next, counts.records, RECORD_WORDS);
        // A block and its owner word; the alignment of both sections is set aside first.
        let left = words.checked_sub(next + 2 * ALIGN_WORDS)?;
        let blocks = left / (counts.block + 1);
        let owners = place(&mut next, blocks, 1);
        let pool = place(&mut next, blocks, counts.block);
        let layout =
            Self { lanes, tables, slots, descriptors, arena, base, base_b, records, owners, pool };
        (blocks > 0 && next <= words).then_some(layout)
    }

    /// Cells in a block.
    pub(crate) fn block_words(&self) -> usize {
        self.pool.stride as usize
    }

    fn sections(&self) -> [Section; SECTIONS] {
        [
            self.lanes,
            self.tables,
            self.slots,
            self.descriptors,
            self.arena,
            self.base,
            self.base_b,
            self.records,
            self.owners,
            self.pool,
        ]
    }
}

/// The next section, behind `next`.
fn place(next: &mut u32, count: u32, stride: u32) -> Section {
    let offset = next.next_multiple_of(ALIGN_WORDS);
    *next = offset + count * stride;
    Section { offset, count, stride, reserved: 0 }
}

/// Words of an entry.
#[expect(clippy::cast_possible_truncation, reason = "at most 48, asserted above")]
const fn words_of<T>() -> u32 {
    (size_of::<T>() / 8) as u32
}

/// The low half of a word.
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// The high half of a word.
pub(crate) const fn high(word: u64) -> u32 {
    low(word >> 32)
}
