//! The file of a region: made whole under a temporary name, opened with care.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{self, FallocateFlags, OFlag, fallocate};
use nix::sys::stat::Mode;

use super::mapping::{Access, Mapping};
use crate::layout::{Identity, Layout, LayoutError};
use crate::shared::Shared;
use crate::sync::unix_ms;
use crate::words::Words;

/// The region's name in the run-time directory.
pub const FILE_NAME: &str = "metrics.region";
pub(super) const TEMPORARY_NAME: &str = ".metrics.region.new";

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

/// A complete region under its temporary name: nobody else sees it yet.
pub(super) struct Fresh {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    pub(super) shared: Shared,
    identity: Identity,
}

impl Fresh {
    /// Makes a region of `size` bytes. Whoever calls holds the directory's lock.
    pub(super) fn new(dir: &Path, size: u64) -> Result<Self, RegionError> {
        let layout = Layout::plan(size)?;
        let temporary = dir.join(TEMPORARY_NAME);
        let wrong = |operation, source| {
            let path = temporary.clone();
            RegionError::File { operation, path, source }
        };
        // What an earlier attempt left.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(wrong("remove", error));
            }
            Ok(()) | Err(_) => {}
        }
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let fd = fcntl::open(&temporary, flags, mode).map_err(|e| wrong("create", e.into()))?;
        let file = File::from(fd);
        let length = i64::try_from(size).map_err(|_| LayoutError::Size(size))?;
        fallocate(&file, FallocateFlags::empty(), 0, length)
            .map_err(|e| wrong("allocate", e.into()))?;
        let words = map(&file, size, Access::Write).map_err(|e| wrong("map", e))?;
        let identity = Identity {
            uuid: kernel_uuid(UUID)?,
            boot: kernel_uuid(BOOT_ID)?,
            created_unix_ms: unix_ms(),
        };
        layout.write(&words, &identity);
        let shared = Shared { words, layout };
        Ok(Self { file, path: dir.join(FILE_NAME), temporary, shared, identity })
    }

    /// Gives the region its name, in place of any other.
    pub(super) fn publish(self) -> Result<(File, Shared, Identity), RegionError> {
        match fs::rename(&self.temporary, &self.path) {
            Ok(()) => Ok((self.file, self.shared, self.identity)),
            Err(source) => {
                Err(RegionError::File { operation: "rename", path: self.temporary, source })
            }
        }
    }
}

/// Opens a region file that should exist.
pub(super) fn open(path: &Path, access: OFlag) -> Result<File, RegionError> {
    // Not blocking: the name might be a FIFO.
    let flags = access | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    match fcntl::open(path, flags, Mode::empty()) {
        Ok(fd) => Ok(File::from(fd)),
        Err(errno) => Err(RegionError::File {
            operation: "open",
            path: path.to_owned(),
            source: errno.into(),
        }),
    }
}

/// Why a file was not mapped, before it is said which file.
pub(super) enum Unmapped {
    Call(&'static str, io::Error),
    Layout(LayoutError),
}

impl Unmapped {
    pub(super) fn of_file(self, path: &Path) -> RegionError {
        match self {
            Self::Call(operation, source) => {
                RegionError::File { operation, path: path.to_owned(), source }
            }
            Self::Layout(layout) => layout.into(),
        }
    }

    pub(super) fn of_descriptor(self) -> RegionError {
        match self {
            Self::Call(operation, source) => RegionError::Descriptor { operation, source },
            Self::Layout(layout) => layout.into(),
        }
    }
}

/// Maps a whole file and checks its header.
pub(super) fn check(file: &File, access: Access) -> Result<(Shared, Identity), Unmapped> {
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
pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A number that the kernel prints as a UUID.
pub(super) fn kernel_uuid(path: &'static str) -> Result<[u64; 2], RegionError> {
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
