//! The region as a file: made by the supervisor, mapped by every process.
//!
//! A new region is made under a temporary name, filled and then renamed, so a file under
//! [`FILE_NAME`] is always complete. Its space is allocated at once: a full file system shows
//! now as an error, not later as SIGBUS.
//!
//! Limit: a process that holds the descriptor for writing can shrink the file, and a mapping of
//! what is then missing raises SIGBUS. Nothing in Baton does; the size is checked at attach.

mod file;
pub(crate) mod mapping;
mod reader;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::OFlag;

use self::file::{BOOT_ID, Fresh, Unmapped, check, kernel_uuid};
pub use self::file::{FILE_NAME, RegionError};
use self::mapping::Access;
pub use self::reader::Reader;
use crate::collector::EncodeError;
use crate::lane::Lane;
use crate::layout::Identity;
use crate::owner::{Owner, Role};
use crate::shared::{Holder, Shared};
use crate::snapshot::{Busy, Guard, Snapshot};

const BAD_NAME: &str = "metrics.region.bad";

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
        let fresh = Fresh::new(dir, size)?;
        let (file, shared, identity) = fresh.publish()?;
        Ok(Self::new(shared, file, identity))
    }

    /// The region in `dir` if there is a usable one, else a fresh one of `size` bytes. An
    /// unusable file is set aside. Only for the holder of the directory's lock.
    ///
    /// A kept region is made ready: a fold that was interrupted is ended, and the lanes of
    /// processes that no longer run are folded. When no lane is left and `size` is another one,
    /// counters and learned state move into a fresh region of that size; while processes still
    /// count in it, it keeps its size (see [`size`](Self::size)).
    ///
    /// # Errors
    /// When no fresh region can be made or an unusable file cannot be renamed.
    pub fn open_or_create(dir: &Path, size: u64) -> Result<Opened, RegionError> {
        let path = dir.join(FILE_NAME);
        let reason = match Self::open(&path) {
            Ok(region) => {
                region.inner.shared.recover();
                // A number of another namespace belongs to an instance that is gone: its
                // directory is ours.
                region.fold_where(|holder| !holder.local || holder.is_dead());
                let region = region.resized(dir, size)?;
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

    /// This region, or its contents in a fresh one of `size` bytes when nobody counts here.
    fn resized(self, dir: &Path, size: u64) -> Result<Self, RegionError> {
        if self.size() == size || self.inner.shared.held_lanes().next().is_some() {
            return Ok(self);
        }
        let fresh = Fresh::new(dir, size)?;
        fresh.shared.import(&self.inner.shared);
        let (file, shared, identity) = fresh.publish()?;
        Ok(Self::new(shared, file, identity))
    }

    fn open(path: &Path) -> Result<Self, RegionError> {
        let file = file::open(path, OFlag::O_RDWR)?;
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
        self.fold_where(|holder| holder.owner.pid() == pid && holder.is_dead())
    }

    /// Folds the lanes of every process that no longer runs. Only for the supervisor.
    pub fn fold_all_dead(&self) -> usize {
        self.fold_where(Holder::is_dead)
    }

    fn fold_where(&self, dead: impl Fn(&Holder) -> bool) -> usize {
        let shared = &self.inner.shared;
        let lanes: Vec<usize> =
            shared.held_lanes().filter(|holder| dead(holder)).map(|holder| holder.lane).collect();
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

    /// Checks every descriptor: how many are damaged, their series missing from every export.
    /// Zero unless somebody has written over the region; worth a warning after an attach.
    #[must_use]
    pub fn damaged(&self) -> usize {
        self.inner.shared.damaged()
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

#[cfg(test)]
mod tests;
