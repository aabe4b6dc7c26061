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

use crate::sync::Ordering;
use crate::words::Words;

/// "BATONMET" as bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"BATONMET");
/// A reader refuses another major version.
pub(crate) const MAJOR: u32 = 1;
/// Later minor versions only add.
pub(crate) const MINOR: u32 = 0;
/// Reads differently on a machine of the other endianness.
const ENDIAN: u64 = 0x0102_0304_0506_0708;
/// Stored last, with release: the header is complete.
pub(crate) const READY: u64 = u64::from_le_bytes(*b"READY\0\0\0");

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

/// The head of the region.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Header {
    magic: u64,
    major: u32,
    minor: u32,
    endian: u64,
    total_words: u64,
    uuid: [u64; 2],
    boot: [u64; 2],
    created_unix_ms: u64,
    layout: Layout,
    /// CRC-32 of all words before it.
    crc: u64,
    ready: u64,
    /// From here on words change during the region's life; new line.
    pad: [u64; 1],
    /// Which copy of the base counts and which lane is already in it (see `fold`).
    commit: u64,
    /// Hints and bump pointers of allocation.
    next_descriptor: u64,
    next_cell: u64,
    next_arena: u64,
    next_record: u64,
    free_descriptors: u64,
    /// Claims so far: orders lanes by age.
    claims: u64,
    /// Series that found no room.
    dropped: u64,
    tail: [u64; 8],
}

const _: () = {
    assert!(size_of::<Section>() == 16);
    assert!(SECTIONS == 10);
    assert!(offset_of!(Header, uuid) == 32);
    assert!(offset_of!(Header, layout) == 72);
    assert!(offset_of!(Header, crc) == 232);
    assert!(offset_of!(Header, ready) == 240);
    assert!(offset_of!(Header, commit) == 256);
    assert!(offset_of!(Header, dropped) == 312);
    assert!(size_of::<Header>() == 384);
    assert!(size_of::<Header>().is_multiple_of(ALIGN_WORDS as usize * 8));
};

/// Word indices of the header's mutable part.
pub(crate) mod head {
    use super::{Header, offset_of};

    pub(crate) const COMMIT: usize = offset_of!(Header, commit) / 8;
    pub(crate) const NEXT_DESCRIPTOR: usize = offset_of!(Header, next_descriptor) / 8;
    pub(crate) const NEXT_CELL: usize = offset_of!(Header, next_cell) / 8;
    pub(crate) const NEXT_ARENA: usize = offset_of!(Header, next_arena) / 8;
    pub(crate) const NEXT_RECORD: usize = offset_of!(Header, next_record) / 8;
    pub(crate) const FREE_DESCRIPTORS: usize = offset_of!(Header, free_descriptors) / 8;
    pub(crate) const CLAIMS: usize = offset_of!(Header, claims) / 8;
    pub(crate) const DROPPED: usize = offset_of!(Header, dropped) / 8;
}

const CRC_WORD: usize = offset_of!(Header, crc) / 8;
const READY_WORD: usize = offset_of!(Header, ready) / 8;
const LAYOUT_WORD: usize = offset_of!(Header, layout) / 8;
const HEADER_WORDS: u32 = words_of::<Header>();

/// An entry of `lanes`.
#[repr(C)]
pub(crate) struct LaneEntry {
    /// See [`Owner`](crate::owner::Owner); 0 is free.
    owner: u64,
    /// The claim's number; the newest lane has the highest.
    claim: u64,
    reserved: [u64; 14],
}

pub(crate) const LANE_OWNER: usize = offset_of!(LaneEntry, owner) / 8;
pub(crate) const LANE_CLAIM: usize = offset_of!(LaneEntry, claim) / 8;
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

/// Who made a region and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uuid: [u64; 2],
    pub(crate) boot: [u64; 2],
    pub(crate) created_unix_ms: u64,
}

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

/// Why bytes are no region of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Outside of [`MIN_SIZE`] to [`MAX_SIZE`], or no multiple of 4096.
    #[error("a region of {0} bytes: must be 64 KiB to 64 MiB and a multiple of 4096")]
    Size(u64),
    /// Another kind of file.
    #[error("not a metrics region: wrong magic number")]
    Magic,
    /// Written by a machine of the other endianness.
    #[error("the region's byte order is not this machine's")]
    Endian,
    /// A layout this program does not know.
    #[error("the region has layout version {0}, this program knows version {MAJOR}")]
    Version(u32),
    /// Its maker died while making it.
    #[error("the region was never completed")]
    NotReady,
    /// The header's checksum does not fit.
    #[error("the region's header is damaged: wrong checksum")]
    Checksum,
    /// The header says another length than the file has.
    #[error("the region's header says {said} bytes, the file has {found}")]
    Length {
        /// From the header.
        said: u64,
        /// Of the file.
        found: u64,
    },
    /// A table that does not lie inside.
    #[error("the region's table {0} does not lie inside")]
    Section(&'static str),
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

    /// Writes the header of a fresh, zeroed region.
    pub(crate) fn write(&self, words: &Words, identity: &Identity) {
        let put = |byte_offset: usize, value: u64| {
            words.store(byte_offset / 8, value, Ordering::Relaxed);
        };
        put(offset_of!(Header, magic), MAGIC);
        put(offset_of!(Header, major), u64::from(MAJOR) | u64::from(MINOR) << 32);
        put(offset_of!(Header, endian), ENDIAN);
        put(offset_of!(Header, total_words), words.all().len() as u64);
        for (i, word) in identity.uuid.into_iter().chain(identity.boot).enumerate() {
            put(offset_of!(Header, uuid) + i * 8, word);
        }
        put(offset_of!(Header, created_unix_ms), identity.created_unix_ms);
        for (i, section) in self.sections().into_iter().enumerate() {
            let at = offset_of!(Header, layout) + i * size_of::<Section>();
            put(at, u64::from(section.offset) | u64::from(section.count) << 32);
            put(at + 8, u64::from(section.stride));
        }
        put(offset_of!(Header, crc), u64::from(header_crc(words)));
        put(offset_of!(Header, commit), crate::fold::Commit::START.0);
        words.store(READY_WORD, READY, Ordering::Release);
    }

    /// Reads and checks the header: nothing that follows has to look at an offset again.
    pub(crate) fn read(words: &Words) -> Result<(Self, Identity), LayoutError> {
        let get = |byte_offset: usize| words.load(byte_offset / 8, Ordering::Relaxed);
        let found = words.all().len() as u64;
        if !(MIN_SIZE / 8..=MAX_SIZE / 8).contains(&found) {
            return Err(LayoutError::Size(found * 8));
        }
        if get(offset_of!(Header, magic)) != MAGIC {
            return Err(LayoutError::Magic);
        }
        if words.load(READY_WORD, Ordering::Acquire) != READY {
            return Err(LayoutError::NotReady);
        }
        if get(offset_of!(Header, endian)) != ENDIAN {
            return Err(LayoutError::Endian);
        }
        if u64::from(header_crc(words)) != words.load(CRC_WORD, Ordering::Relaxed) {
            return Err(LayoutError::Checksum);
        }
        let major = low(get(offset_of!(Header, major)));
        if major != MAJOR {
            return Err(LayoutError::Version(major));
        }
        let said = get(offset_of!(Header, total_words));
        if said != found {
            return Err(LayoutError::Length { said: said.saturating_mul(8), found: found * 8 });
        }
        let section = |i: usize| {
            let at = LAYOUT_WORD + i * 2;
            let place = words.load(at, Ordering::Relaxed);
            Section {
                offset: low(place),
                count: high(place),
                stride: low(words.load(at + 1, Ordering::Relaxed)),
                reserved: 0,
            }
        };
        let layout = Self {
            lanes: section(0),
            tables: section(1),
            slots: section(2),
            descriptors: section(3),
            arena: section(4),
            base: section(5),
            base_b: section(6),
            records: section(7),
            owners: section(8),
            pool: section(9),
        };
        layout.check(found)?;
        let word = |at: usize, i: usize| get(at + i * 8);
        let identity = Identity {
            uuid: [word(offset_of!(Header, uuid), 0), word(offset_of!(Header, uuid), 1)],
            boot: [word(offset_of!(Header, boot), 0), word(offset_of!(Header, boot), 1)],
            created_unix_ms: get(offset_of!(Header, created_unix_ms)),
        };
        Ok((layout, identity))
    }

    /// Every section inside, behind the one before it, and wide enough for its entries.
    fn check(&self, words: u64) -> Result<(), LayoutError> {
        const NAMES: [&str; SECTIONS] = [
            "lanes",
            "tables",
            "slots",
            "descriptors",
            "arena",
            "base",
            "base_b",
            "records",
            "owners",
            "pool",
        ];
        let cells_in_a_table = self.tables.stride.saturating_mul(self.pool.stride);
        let least = [LANE_WORDS, 1, 1, words_of::<DescriptorEntry>(), 1, 1, 1, RECORD_WORDS, 1, 1];
        let mut next = u64::from(HEADER_WORDS);
        for ((section, name), least) in self.sections().iter().zip(NAMES).zip(least) {
            if u64::from(section.offset) < next || section.end() > words || section.stride < least {
                return Err(LayoutError::Section(name));
            }
            next = section.end();
        }
        let fits = [
            (self.lanes.count >= 1 && self.lanes.count <= MAX_LANES, "lanes"),
            (self.tables.count == self.lanes.count, "tables"),
            (cells_in_a_table >= self.base.count, "tables"),
            (self.slots.count.is_power_of_two() && self.slots.stride == 1, "slots"),
            (self.slots.count / 2 >= self.descriptors.count, "slots"),
            (self.arena.stride == 1, "arena"),
            (self.base.stride == 1, "base"),
            (self.base_b.stride == 1 && self.base_b.count == self.base.count, "base_b"),
            (self.owners.count == self.pool.count && self.owners.stride == 1, "owners"),
        ];
        match fits.into_iter().find(|(fit, _)| !fit) {
            Some((_, name)) => Err(LayoutError::Section(name)),
            None => Ok(()),
        }
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

/// CRC-32 of the words before the CRC.
fn header_crc(words: &Words) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for word in words.all().iter().take(CRC_WORD) {
        crc.update(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    crc.finalize()
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
