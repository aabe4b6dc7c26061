//! The owner's side: a thread opens records in its own range and notes what happens, by stores.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::layout::{
    ATTEMPTS, BUSY, CHECKSUM, FLAGS, HEAD, HEADER_SIZE, Header, IDENTITY, MAX_RECORDS, PIPE,
    RECORD_SIZE, RECORD_WORDS, TOTAL, WORD, checksum,
};
use super::memory::Memory;
use super::record::{
    Busy, FLAG_EOF_SEEN, FLAG_FIN_SENT, FLAG_SPLICES, Identity, PipeNumbers, State, Track, Way,
    head, pipe_word, sequence,
};

pub(super) const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);

/// A table of this process's own.
#[derive(Debug)]
pub struct Table {
    file: OwnedFd,
    uuid: u128,
}

#[derive(Debug)]
struct Shared {
    memory: Memory,
    header: Header,
}

/// One thread's range of records. Made by [`Table::create`] and moved to its thread; there in an
/// `Rc`, since every record it hands out comes back to it.
#[derive(Debug)]
pub struct Lane {
    shared: Arc<Shared>,
    /// Given back by connections that ended; used again first, last in first out, so that few
    /// pages are in use.
    free: RefCell<Vec<u32>>,
    /// Records never used before.
    fresh: RefCell<Range<u32>>,
    open: Cell<u32>,
}

/// One record in use. Dropping it frees the record.
#[derive(Debug)]
pub struct Slot {
    lane: Rc<Lane>,
    index: u32,
}

impl Table {
    /// A table with `lanes` ranges of `records_each` records, all free. Only records that are
    /// used take memory.
    ///
    /// # Errors
    /// `InvalidInput` when that is no record or more than [`MAX_RECORDS`]; what `memfd_create`,
    /// `ftruncate`, the seals and `mmap` report.
    pub fn create(lanes: usize, records_each: u32) -> io::Result<(Self, Vec<Lane>)> {
        let records = u32::try_from(lanes)
            .ok()
            .and_then(|lanes| lanes.checked_mul(records_each))
            .filter(|records| (1..=MAX_RECORDS).contains(records))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "size of the table"))?;
        let header = Header { record_size: RECORD_SIZE, records, uuid: fresh_uuid()? };
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"baton-table", flags)?);
        file.set_len(header.file_size())?;
        fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(SEALS | SealFlag::F_SEAL_SEAL))?;
        let len = usize::try_from(header.file_size())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let shared = Arc::new(Shared { memory: Memory::new(&file, len)?, header });
        for (place, word) in shared.memory.words().iter().zip(header.encode()) {
            place.store(word, Ordering::Release);
        }
        let lanes = (0..records)
            .step_by(usize::try_from(records_each).unwrap_or(usize::MAX))
            .map(|first| Lane {
                shared: Arc::clone(&shared),
                free: RefCell::default(),
                fresh: RefCell::new(first..first + records_each),
                open: Cell::new(0),
            })
            .collect();
        Ok((Self { file: file.into(), uuid: header.uuid }, lanes))
    }

    /// Names this table among all others.
    #[must_use]
    pub fn uuid(&self) -> u128 {
        self.uuid
    }
}

/// The descriptor that whoever is to recover the connections must hold.
impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Lane {
    /// Writes a connection into a free record. `None` when the range is full: the connection
    /// then lives and dies with this process.
    #[must_use]
    pub fn open(self: &Rc<Self>, identity: &Identity, state: State) -> Option<Slot> {
        let recycled = self.free.borrow_mut().pop();
        let index = recycled.or_else(|| self.fresh.borrow_mut().next())?;
        self.open.set(self.open.get() + 1);
        let slot = Slot { lane: Rc::clone(self), index };
        slot.fill(identity, state);
        Some(slot)
    }

    /// Records in use.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.open.get()
    }
}

impl Slot {
    /// Its number in the table.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    fn words(&self) -> &[AtomicU64] {
        let first = HEADER_SIZE / WORD + self.index as usize * RECORD_WORDS;
        // In range: a lane hands out only numbers below the table's, which the memory covers.
        &self.lane.shared.memory.words()[first..first + RECORD_WORDS]
    }

    #[inline]
    fn store(&self, word: usize, value: u64) {
        self.words()[word].store(value, Ordering::Release);
    }

    fn load(&self, word: usize) -> u64 {
        self.words()[word].load(Ordering::Relaxed)
    }

    fn fill(&self, identity: &Identity, state: State) {
        // The next odd number: whatever the record held, it is not valid now.
        let writing = sequence(self.load(HEAD)) | 1;
        self.store(HEAD, head(writing, None));
        for word in HEAD + 1..IDENTITY.start {
            self.store(word, 0);
        }
        let words = identity.encode();
        for (word, value) in IDENTITY.zip(words) {
            self.store(word, value);
        }
        self.store(CHECKSUM, checksum(&words, self.lane.shared.header.seed(self.index)));
        self.store(HEAD, head(writing.wrapping_add(1), Some(state)));
    }

    /// What a direction is about to do. [`Busy::Memory`] must be noted before the read and taken
    /// back only after the last byte was written.
    #[inline]
    pub fn busy(&self, way: Way, busy: Busy) {
        self.store(BUSY + way as usize, busy.word());
    }

    /// The pipe a direction holds: noted before a byte goes in, taken back when it is empty and
    /// before anyone else gets it.
    pub fn pipe(&self, way: Way, pipe: Option<PipeNumbers>) {
        self.store(PIPE + way as usize, pipe_word(pipe));
    }

    /// Bytes a direction has handed to its destination in all.
    #[inline]
    pub fn total(&self, way: Way, bytes: u64) {
        self.store(TOTAL + way as usize, bytes);
    }

    /// Whether a direction moves its bytes through a pipe.
    pub fn splices(&self, way: Way, splices: bool) {
        self.flag(way, FLAG_SPLICES, splices);
    }

    /// A direction has read its source's FIN.
    pub fn eof_seen(&self, way: Way) {
        self.flag(way, FLAG_EOF_SEEN, true);
    }

    /// A direction has passed the FIN on.
    pub fn fin_sent(&self, way: Way) {
        self.flag(way, FLAG_FIN_SENT, true);
    }

    /// All of a direction at once, for a connection that nobody serves at the moment.
    pub fn track(&self, way: Way, track: &Track) {
        self.busy(way, track.busy);
        self.pipe(way, track.pipe);
        self.flag(way, FLAG_SPLICES, track.splices);
        self.flag(way, FLAG_EOF_SEEN, track.eof_seen);
        self.flag(way, FLAG_FIN_SENT, track.fin_sent);
        self.total(way, track.total);
    }

    /// This thread is the only writer, so reading and writing back loses nothing.
    fn flag(&self, way: Way, flag: u64, set: bool) {
        let word = FLAGS + way as usize;
        let rest = self.load(word) & !flag;
        self.store(word, if set { rest | flag } else { rest });
    }

    /// What becomes of the connection.
    pub fn set_state(&self, state: State) {
        self.store(HEAD, head(sequence(self.load(HEAD)), Some(state)));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.store(HEAD, head(sequence(self.load(HEAD)), None));
        self.store(ATTEMPTS, 0);
        self.lane.open.set(self.lane.open.get().saturating_sub(1));
        // Nothing borrows the list while it runs other code, so this cannot fail.
        if let Ok(mut free) = self.lane.free.try_borrow_mut() {
            free.push(self.index);
        }
    }
}

/// 128 random bits; the kernel makes a new one each time the file is read.
fn fresh_uuid() -> io::Result<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the kernel's uuid is none"))
}
