//! The region as a file: made by the supervisor, mapped by every process.
//!
//! A new region is made under a temporary name, filled and then renamed, so a file under
//! [`FILE_NAME`] is always complete. Its space is allocated at once: a full file system shows
//! now as an error, not later as SIGBUS.
//!
//! Limit: a process that holds the descriptor for writing can shrink the file, and a mapping of
//! what is then missing raises SIGBUS. Nothing in Baton does; the size is checked at attach.

pub(crate) mod mapping;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{FallocateFlags, OFlag, fallocate, open};
use nix::sys::stat::Mode;

use self::mapping::{Access, Mapping};
use crate::collector::EncodeError;
use crate::lane::Lane;
use crate::layout::{Identity, Layout, LayoutError};
use crate::owner::{Owner, Role};
use crate::shared::Shared;
use crate::snapshot::{Busy, Guard, Snapshot};
use crate::words::Words;

/// The region's name in the run-time directory.
pub const FILE_NAME: &str = "metrics.region";
const TEMPORARY_NAME: &str = ".metrics.region.new";
const BAD_NAME: &str = "metrics.region.bad";

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// A system call on the file or its directory failed.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A system call on a descriptor handed over failed.
    #[error("{operation} the metrics region handed over: {source}")]
    Descriptor {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The contents are no region of this version.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// From before the last boot of this machine.
    #[error("the region is from an earlier boot of this machine")]
    Boot,
    /// `/proc` does not tell this boot, or gives no random number.
    #[error("read {path}: {source}")]
    Kernel {
        /// Which file.
        path: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// The region, for reading and writing. Clones are the same region.
#[derive(Clone)]
pub struct Region {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    file: File,
    identity: Identity,
    guard: Mutex<Guard>,
}

/// What [`Region::open_or_create`] found.
pub struct Opened {
    /// The region to use.
    pub region: Region,
    /// Whether it was there before, so that counters go on.
    pub kept: bool,
    /// An earlier file that could not be used; to be logged as a warning.
    pub set_aside: Option<SetAside>,
}

/// A region file that could not be used and was renamed.
#[derive(Debug)]
pub struct SetAside {
    /// Where it is now.
    pub path: PathBuf,
    /// Why.
    pub reason: RegionError,
}

impl Region {
    /// Makes a fresh region of `size` bytes in `dir`, in place of any other under this name.
    ///
    /// # Errors
    /// When the size is not allowed, or a system call fails (`ENOSPC` when the file system has
    /// not that much room).
    pub fn create(dir: &Path, size: u64) -> Result<Self, RegionError> {
        let layout = Layout::plan(size)?;
        let path = dir.join(TEMPORARY_NAME);
        let wrong = |operation| {
            let path = path.clone();
            move |errno: nix::errno::Errno| RegionError::File {
                operation,
                path,
                source: errno.into(),
            }
        };
        // What an earlier attempt left; whoever calls holds the directory's lock.
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(RegionError::File { operation: "remove", path, source });
            }
            Ok(()) | Err(_) => {}
        }
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = File::from(open(&path, flags, mode).map_err(wrong("create"))?);
        let length = i64::try_from(size).map_err(|_| LayoutError::Size(size))?;
        fallocate(&file, FallocateFlags::empty(), 0, length).map_err(wrong("allocate"))?;
        let words = map(&file, size, Access::Write).map_err(|source| RegionError::File {
            operation: "map",
            path: path.clone(),
            source,
        })?;
        let identity = Identity {
            uuid: kernel_uuid(UUID)?,
            boot: kernel_uuid(BOOT_ID)?,
            created_unix_ms: unix_ms(),
        };
        layout.write(&words, &identity);
        fs::rename(&path, dir.join(FILE_NAME)).map_err(|source| RegionError::File {
            operation: "rename",
            path: path.clone(),
            source,
        })?;
        Ok(Self::new(Shared { words, layout }, file, identity))
    }

    /// The region in `dir` if there is a usable one, else a fresh one of `size` bytes. An
    /// unusable file is set aside. Only for the holder of the directory's lock.
    ///
    /// A kept region is made ready: a fold that was interrupted is ended, and the lanes of
    /// processes that no longer run are folded. Its size stays what it was.
    ///
    /// # Errors
    /// When no fresh region can be made or an unusable file cannot be renamed.
    pub fn open_or_create(dir: &Path, size: u64) -> Result<Opened, RegionError> {
        let path = dir.join(FILE_NAME);
        let reason = match Self::open(&path) {
            Ok(region) => {
                region.inner.shared.recover();
                region.fold_all_dead();
                return Ok(Opened { region, kept: true, set_aside: None });
            }
            Err(RegionError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let region = Self::create(dir, size)?;
                return Ok(Opened { region, kept: false, set_aside: None });
            }
            Err(reason) => reason,
        };
        let bad = dir.join(BAD_NAME);
        fs::rename(&path, &bad).map_err(|source| RegionError::File {
            operation: "set aside",
            path,
            source,
        })?;
        let region = Self::create(dir, size)?;
        Ok(Opened { region, kept: false, set_aside: Some(SetAside { path: bad, reason }) })
    }

    fn open(path: &Path) -> Result<Self, RegionError> {
        let file = open_file(path, OFlag::O_RDWR)?;
        let (shared, identity) =
            check(&file, Access::Write).map_err(|wrong| wrong.of_file(path))?;
        if identity.boot != kernel_uuid(BOOT_ID)? {
            return Err(RegionError::Boot);
        }
        Ok(Self::new(shared, file, identity))
    }

    /// Maps the region behind a descriptor that the supervisor handed over.
    ///
    /// # Errors
    /// When it is no regular file of an allowed size or its header does not check out. The
    /// contents can cause nothing else: no panic and no access outside.
    pub fn attach(fd: OwnedFd) -> Result<Self, RegionError> {
        let file = File::from(fd);
        let (shared, identity) = check(&file, Access::Write).map_err(Unmapped::of_descriptor)?;
        Ok(Self::new(shared, file, identity))
    }

    fn new(shared: Shared, file: File, identity: Identity) -> Self {
        let inner = Inner { shared: Arc::new(shared), file, identity, guard: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Claims a lane for a worker, `pid` being its own number. When all are taken the lane is
    /// detached: it counts, but in process memory only.
    #[must_use]
    pub fn claim_lane(&self, pid: u32) -> Lane {
        Lane::claim(Arc::clone(&self.inner.shared), Owner::of(pid, Role::Worker))
    }

    /// The supervisor's own lane: the one it had before it replaced itself, else a fresh one.
    #[must_use]
    pub fn claim_supervisor_lane(&self, pid: u32) -> Lane {
        Lane::resume(Arc::clone(&self.inner.shared), Owner::of(pid, Role::Supervisor))
    }

    /// Folds the lanes of process `pid`, which has ended, into the base: its counts stay, its
    /// gauges go. A process that still runs is left alone. Only for the supervisor. How many
    /// lanes were folded.
    pub fn fold_dead(&self, pid: u32) -> usize {
        self.fold_where(|owner| owner.pid() == pid && !owner.is_alive())
    }

    /// Folds the lanes of every process that no longer runs. Only for the supervisor.
    pub fn fold_all_dead(&self) -> usize {
        self.fold_where(|owner| !owner.is_alive())
    }

    fn fold_where(&self, dead: impl Fn(Owner) -> bool) -> usize {
        let shared = &self.inner.shared;
        let lanes: Vec<usize> =
            shared.held_lanes().filter(|(_, owner)| dead(*owner)).map(|(lane, _)| lane).collect();
        for lane in &lanes {
            shared.fold(*lane);
        }
        lanes.len()
    }

    /// Gives the room of vanished rules and targets to others: of every rule and target that no
    /// live lane holds anything of. To be called by the supervisor alone, when a worker serves,
    /// no transition is under way and the dead are folded; at another moment it could take the
    /// counts of a rule whose worker is just being replaced. How many series and records went.
    pub fn sweep(&self) -> usize {
        self.inner.shared.sweep()
    }

    /// What the region says now. No counter is lower than in an earlier snapshot from this
    /// handle.
    ///
    /// # Errors
    /// When the region changes too fast for a whole look.
    pub fn snapshot(&self) -> Result<Snapshot, Busy> {
        let mut guard = self.inner.guard.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.shared.snapshot(|_| true, &mut guard)
    }

    /// The text of a scrape, in the format of [`CONTENT_TYPE`](crate::CONTENT_TYPE).
    ///
    /// # Errors
    /// When the region changes too fast for a whole look or the encoder refuses a family.
    pub fn encode_text(&self) -> Result<String, EncodeError> {
        self.snapshot()?.encode_text()
    }

    /// Size of the region in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner.shared.words.all().len() as u64 * 8
    }

    /// The region's own random number, in hexadecimal; says in a log which region this is.
    #[must_use]
    pub fn id(&self) -> String {
        let [high, low] = self.inner.identity.uuid;
        format!("{high:016x}{low:016x}")
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

/// The region, for reading only: what `baton metrics` uses beside a running instance or after
/// its end.
pub struct Reader {
    shared: Shared,
}

impl Reader {
    /// Opens the region in `dir`.
    ///
    /// # Errors
    /// When there is none ([`RegionError::File`] with `NotFound`) or it cannot be read.
    pub fn open(dir: &Path) -> Result<Self, RegionError> {
        let path = dir.join(FILE_NAME);
        let file = open_file(&path, OFlag::O_RDONLY)?;
        let (shared, _) = check(&file, Access::Read).map_err(|wrong| wrong.of_file(&path))?;
        Ok(Self { shared })
    }

    /// What the region says now. The gauges of processes that have ended are left out even when
    /// nobody has folded them.
    ///
    /// # Errors
    /// When the region changes too fast for a whole look.
    pub fn snapshot(&self) -> Result<Snapshot, Busy> {
        self.shared.snapshot(Owner::is_alive, &mut Guard::default())
    }

    /// See [`Region::encode_text`].
    ///
    /// # Errors
    /// As there.
    pub fn encode_text(&self) -> Result<String, EncodeError> {
        self.snapshot()?.encode_text()
    }
}

fn open_file(path: &Path, access: OFlag) -> Result<File, RegionError> {
    // Not blocking: the name might be a FIFO.
    let flags = access | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    match open(path, flags, Mode::empty()) {
        Ok(fd) => Ok(File::from(fd)),
        Err(errno) => Err(RegionError::File {
            operation: "open",
            path: path.to_owned(),
            source: errno.into(),
        }),
    }
}

/// Why a file was not mapped, before it is said which file.
enum Unmapped {
    Call(&'static str, io::Error),
    Layout(LayoutError),
}

impl Unmapped {
    fn of_file(self, path: &Path) -> RegionError {
        match self {
            Self::Call(operation, source) => {
                RegionError::File { operation, path: path.to_owned(), source }
            }
            Self::Layout(layout) => layout.into(),
        }
    }

    fn of_descriptor(self) -> RegionError {
        match self {
            Self::Call(operation, source) => RegionError::Descriptor { operation, source },
            Self::Layout(layout) => layout.into(),
        }
    }
}

/// Maps a whole file and checks its header.
fn check(file: &File, access: Access) -> Result<(Shared, Identity), Unmapped> {
    let metadata = file.metadata().map_err(|source| Unmapped::Call("examine", source))?;
    let size = metadata.len();
    if !metadata.is_file() || Layout::plan(size).is_err() {
        return Err(Unmapped::Layout(LayoutError::Size(size)));
    }
    let words = map(file, size, access).map_err(|source| Unmapped::Call("map", source))?;
    let (layout, identity) = Layout::read(&words).map_err(Unmapped::Layout)?;
    Ok((Shared { words, layout }, identity))
}

fn map(file: &File, size: u64, access: Access) -> io::Result<Words> {
    let length = usize::try_from(size).map_err(io::Error::other)?;
    Ok(Words::Mapped(Mapping::new(file, length, access)?))
}

const UUID: &str = "/proc/sys/kernel/random/uuid";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A number that the kernel prints as a UUID.
fn kernel_uuid(path: &'static str) -> Result<[u64; 2], RegionError> {
    let wrong = |source| RegionError::Kernel { path, source };
    let mut text = String::new();
    File::open(path).and_then(|mut file| file.read_to_string(&mut text)).map_err(wrong)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|e| wrong(io::Error::other(e)))?;
    let bytes = number.to_be_bytes();
    let half = |from: &[u8]| from.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let (high, low) = bytes.split_at(8);
    Ok([half(high), half(low)])
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
