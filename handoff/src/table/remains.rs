//! The successor's side: what a dead worker's table says, as far as it can be believed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::unistd::{Whence, lseek};

use super::layout::{ATTEMPTS, HEAD, HEADER_WORDS, Header, RECORD_SIZE, RECORD_WORDS, WORD};
use super::record::{Damage, Record, attempts_word, head};
use super::writer::SEALS;

/// Records read by one system call.
const CHUNK: u32 = 256;

/// Why a table cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Not a memfd that keeps its size.
    #[error("the connection table is not a sealed memfd")]
    Unsealed,
    /// Not a table, or one of a release with another layout.
    #[error("the connection table is of an unknown layout or damaged")]
    Unknown,
    /// A system call failed.
    #[error("cannot {operation} the connection table: {source}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A record that was in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the table.
    pub slot: u32,
    /// What it says, or why it says nothing.
    pub found: Result<Record, Damage>,
}

/// The table of a process that is dead (or that has stopped touching what is read).
#[derive(Debug)]
pub struct Remains {
    file: File,
    header: Header,
}

impl Remains {
    /// Takes a table received from elsewhere.
    ///
    /// # Errors
    /// [`TableError`]: nothing in it can then be believed.
    pub fn open(fd: OwnedFd) -> Result<Self, TableError> {
        let seals = match fcntl(fd.as_fd(), FcntlArg::F_GET_SEALS) {
            Ok(bits) => SealFlag::from_bits_truncate(bits),
            Err(Errno::EINVAL) => return Err(TableError::Unsealed),
            Err(error) => return Err(failed("examine")(error.into())),
        };
        if !seals.contains(SEALS) {
            return Err(TableError::Unsealed);
        }
        let file = File::from(fd);
        let len = file.metadata().map_err(failed("examine"))?.len();
        let mut bytes = [0; HEADER_WORDS * WORD];
        if len < bytes.len() as u64 {
            return Err(TableError::Unknown);
        }
        file.read_exact_at(&mut bytes, 0).map_err(failed("read"))?;
        let header = Header::decode(&to_words(&bytes)).ok_or(TableError::Unknown)?;
        if header.file_size() != len {
            return Err(TableError::Unknown);
        }
        Ok(Self { file, header })
    }

    /// Names this table among all others.
    #[must_use]
    pub fn uuid(&self) -> u128 {
        self.header.uuid
    }

    /// All records that are in use or damaged, in the table's order.
    ///
    /// # Errors
    /// When reading fails.
    pub fn entries(&self) -> Result<Vec<Entry>, TableError> {
        let mut entries = Vec::new();
        let mut buffer = Vec::new();
        let mut next = 0;
        while let Some(first) = self.next_data(next)? {
            let count = CHUNK.min(self.header.records - first);
            buffer.resize(count as usize * self.header.record_size, 0);
            let offset = self.header.offset(first);
            self.file.read_exact_at(&mut buffer, offset).map_err(failed("read"))?;
            for (slot, bytes) in (first..).zip(buffer.chunks_exact(self.header.record_size)) {
                let Some(bytes) = bytes.first_chunk::<RECORD_SIZE>() else { continue };
                let words: [u64; RECORD_WORDS] = to_words(bytes);
                match Record::decode(&words, &self.header, slot) {
                    Ok(None) => {}
                    Ok(Some(record)) => entries.push(Entry { slot, found: Ok(record) }),
                    Err(damage) => entries.push(Entry { slot, found: Err(damage) }),
                }
            }
            next = first + count;
        }
        Ok(entries)
    }

    /// The first record from `next` on that is not in a hole of the file: a table is large and
    /// hardly used, and reading a hole's zeros takes time.
    fn next_data(&self, next: u32) -> Result<Option<u32>, TableError> {
        if next >= self.header.records {
            return Ok(None);
        }
        let from = self.header.offset(next);
        let start = i64::try_from(from).map_err(|_| TableError::Unknown)?;
        let data = match lseek(&self.file, start, Whence::SeekData) {
            Ok(data) => u64::try_from(data).map_err(|_| TableError::Unknown)?,
            Err(Errno::ENXIO) => return Ok(None),
            Err(error) => return Err(failed("search")(error.into())),
        };
        let beyond = data.saturating_sub(from) / self.header.record_size as u64;
        let slot = u64::from(next) + beyond;
        Ok(u32::try_from(slot).ok().filter(|slot| *slot < self.header.records))
    }

    /// Notes that the connection of `slot` is about to be adopted for the `count`th time out of
    /// this table: should the adopter die of it, the next one knows.
    ///
    /// # Errors
    /// When writing fails.
    pub fn note_attempt(&self, slot: u32, count: u16, at_ms: u64) -> Result<(), TableError> {
        self.write(slot, ATTEMPTS, attempts_word(count, at_ms))
    }

    /// Frees a record: its connection has a record elsewhere now, or is over.
    ///
    /// # Errors
    /// When writing fails.
    pub fn release(&self, slot: u32) -> Result<(), TableError> {
        self.write(slot, HEAD, head(0, None))
    }

    fn write(&self, slot: u32, word: usize, value: u64) -> Result<(), TableError> {
        if slot >= self.header.records {
            return Err(TableError::Unknown);
        }
        let offset = self.header.offset(slot) + (word * WORD) as u64;
        self.file.write_all_at(&value.to_ne_bytes(), offset).map_err(failed("write"))
    }
}

fn to_words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> TableError {
    move |source| TableError::Io { operation, source }
}
