//! The header: which version the region is and where its sections lie, and the words of it
//! that change.

use std::mem::offset_of;

use super::{
    ALIGN_WORDS, DescriptorEntry, LANE_WORDS, Layout, MAX_LANES, MAX_SIZE, MIN_SIZE, RECORD_WORDS,
    SECTIONS, Section, high, low, words_of,
};
use crate::fold::Commit;
use crate::sync::Ordering;
use crate::words::Words;

/// "BATONMET" as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"BATONMET");
/// A reader refuses another major version.
const MAJOR: u32 = 1;
/// Later minor versions only add.
const MINOR: u32 = 0;
/// Reads differently on a machine of the other endianness.
const ENDIAN: u64 = 0x0102_0304_0506_0708;
/// Stored last, with release: the header is complete.
const READY: u64 = u64::from_le_bytes(*b"READY\0\0\0");

/// The head of the region.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Header {
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
pub(super) const HEADER_WORDS: u32 = words_of::<Header>();

/// Who made a region and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uuid: [u64; 2],
    pub(crate) boot: [u64; 2],
    pub(crate) created_unix_ms: u64,
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
        put(offset_of!(Header, commit), Commit::START.0);
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

    /// Makes the header's checksum right, for tests of what comes behind it.
    pub(crate) fn repair(words: &Words) {
        words.store(CRC_WORD, u64::from(header_crc(words)), Ordering::Relaxed);
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
}

/// CRC-32 of the words before the CRC.
fn header_crc(words: &Words) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for word in words.all().iter().take(CRC_WORD) {
        crc.update(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    crc.finalize()
}
