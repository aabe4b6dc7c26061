//! The directory one instance lives in: lock, control socket, metrics region.
//!
//! The lock is an `flock` on a file that is never removed: a lock file that is unlinked can be
//! locked twice. The directory must belong to us alone, because whoever can write into it could
//! put a socket of its own where clients look for ours.

use std::fs::TryLockError;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton_handoff::message::WorkerId;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, Uid};

/// The control socket's file name.
pub const CONTROL_SOCKET: &str = "control.sock";
const LOCK_FILE: &str = "lock";

/// How long a lock is waited for whose holder is dead. A process that it was just starting has a
/// copy until it runs its program, which takes a moment, and longer on a busy machine.
const HEIR_PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Longest path a Unix socket address can hold, without the terminating NUL (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Why the runtime directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// An operation on it failed.
    #[error("runtime directory {path}: cannot {operation}: {source}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// Somebody else could write into it.
    #[error(
        "runtime directory {path}: {what}; it must be a directory of user {uid} with mode 0700"
    )]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// Our user id.
        uid: u32,
    },
    /// The socket's path would not fit into an address.
    #[error(
        "runtime directory {path}: the path is too long for a socket inside it ({len} bytes, at most {SOCKET_PATH_MAX})"
    )]
    TooLong {
        /// The directory.
        path: PathBuf,
        /// Length of the socket's path.
        len: usize,
    },
    /// Another instance holds the lock.
    #[error(
        "another instance is running in {path} ({holder}); give this one a directory of its own with --runtime-dir"
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// `pid N`, or that it is unknown.
        holder: String,
    },
}

/// A locked runtime directory; the lock lasts as long as the value.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    /// The lock goes when its last descriptor is closed.
    lock: File,
}

impl RuntimeDir {
    /// Creates the directory (0700) where it is missing, checks it, and locks it.
    ///
    /// # Errors
    /// When it cannot be created, is open to others, or another instance holds it.
    pub fn open(path: &Path) -> Result<Self, RuntimeDirError> {
        let longest = adoption_socket(WorkerId(u32::MAX));
        let socket_len = path.join(longest).as_os_str().len();
        if socket_len > SOCKET_PATH_MAX {
            return Err(RuntimeDirError::TooLong { path: path.into(), len: socket_len });
        }
        let io_error =
            |operation| move |source| RuntimeDirError::Io { path: path.into(), operation, source };
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_error("create it")(error)),
        }
        check_ownership(path)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(path.join(LOCK_FILE))
            .map_err(io_error("open the lock"))?;
        let patience = Instant::now() + HEIR_PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(io_error("lock it")(source)),
            }
            let holder = holder(&mut lock).map_err(io_error("read the lock"))?;
            if holder.is_none_or(|pid| !is_dead(pid)) || Instant::now() >= patience {
                let holder =
                    holder.map_or_else(|| "pid unknown".into(), |pid| format!("pid {pid}"));
                return Err(RuntimeDirError::Locked { path: path.into(), holder });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(io_error("write the lock"))?;
        Ok(Self { path: path.into(), lock })
    }

    /// The directory as the former image of this process held it: the lock belongs to the open
    /// file, and that has stayed.
    pub(crate) fn resume(path: PathBuf, lock: OwnedFd) -> Self {
        Self { path, lock: lock.into() }
    }

    /// Makes sure that a process that looks for the directory finds it locked by us: as it is, or
    /// made and locked anew where it was removed. Whether it was.
    ///
    /// # Errors
    /// As of [`open`](Self::open); another instance may have taken its place. Nothing has changed.
    pub(crate) fn restore(&self) -> Result<Option<Self>, RuntimeDirError> {
        let which = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let ours = self.lock.metadata().map(which);
        let there = fs::symlink_metadata(self.path.join(LOCK_FILE)).map(which);
        if let (Ok(ours), Ok(there)) = (ours, there)
            && ours == there
        {
            return Ok(None);
        }
        Self::open(&self.path).map(Some)
    }

    /// The locked file.
    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a worker waits for our successor.
    pub(crate) fn adoption_socket(&self, worker: WorkerId) -> PathBuf {
        self.path.join(adoption_socket(worker))
    }

    /// Every place where a worker may wait.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(crate) fn adoption_sockets(&self) -> io::Result<Vec<(WorkerId, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix("worker-")?.strip_suffix(".sock"))
                .and_then(|number| number.parse().ok());
            found.extend(number.map(|number| (WorkerId(number), self.path.join(&name))));
        }
        Ok(found)
    }

    /// Where the control socket is.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.path.join(CONTROL_SOCKET)
    }
}

fn check_ownership(path: &Path) -> Result<(), RuntimeDirError> {
    let uid = Uid::effective();
    let unsafe_dir =
        |what: String| RuntimeDirError::Unsafe { path: path.into(), what, uid: uid.as_raw() };
    let inspect = |result: io::Result<fs::Metadata>| {
        let operation = "inspect it";
        result.map_err(|source| RuntimeDirError::Io { path: path.into(), operation, source })
    };
    let mut meta = inspect(fs::symlink_metadata(path))?;
    // A service manager's own link (systemd's dynamic users have one) may be followed; a
    // stranger's could lead anywhere.
    if meta.is_symlink() && (meta.uid() == 0 || meta.uid() == uid.as_raw()) {
        meta = inspect(fs::metadata(path))?;
    }
    if !meta.is_dir() {
        return Err(unsafe_dir("it is not a directory".into()));
    }
    if meta.uid() != uid.as_raw() {
        return Err(unsafe_dir(format!("it belongs to user {}", meta.uid())));
    }
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(unsafe_dir(format!("others may write to it (mode {mode:04o})")));
    }
    Ok(())
}

fn adoption_socket(worker: WorkerId) -> String {
    format!("worker-{}.sock", worker.0)
}

/// The process that says it is the instance; `None` where the file does not say.
fn holder(lock: &mut File) -> io::Result<Option<Pid>> {
    let mut text = Vec::new();
    lock.rewind()?;
    lock.take(32).read_to_end(&mut text)?;
    let pid = str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    Ok(pid.map(Pid::from_raw))
}

/// Whether there is no such process here. One of another namespace looks dead, and is waited for in
/// vain.
fn is_dead(pid: Pid) -> bool {
    pid.as_raw() > 0 && kill(pid, None) == Err(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("baton-rtd-{}-{name}", std::process::id()));
        let _gone = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_second_instance_is_told_who_holds_the_directory() {
        let path = scratch("lock");
        let first = RuntimeDir::open(&path).unwrap();
        let error = RuntimeDir::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        // A process that a neighbouring test is just starting holds a copy of the lock for a
        // moment.
        let start = Instant::now();
        while let Err(error) = RuntimeDir::open(&path) {
            assert!(start.elapsed().as_secs() < 60, "{error}");
            std::thread::yield_now();
        }
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_lock_that_a_dead_instance_has_left_for_a_moment_is_waited_for() {
        let path = scratch("heir");
        let first = RuntimeDir::open(&path).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        fs::write(path.join(LOCK_FILE), format!("{dead}\n")).unwrap();
        // Its last copy goes while the other one is waiting.
        let heir = std::thread::spawn({
            let path = path.clone();
            move || RuntimeDir::open(&path).map(|_| ())
        });
        std::thread::yield_now();
        drop(first);
        heir.join().unwrap().unwrap();
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_directory_that_was_removed_is_locked_anew_unless_another_instance_has_it() {
        let path = scratch("gone");
        let first = RuntimeDir::open(&path).unwrap();
        assert!(first.restore().unwrap().is_none());
        fs::remove_dir_all(&path).unwrap();
        let second = first.restore().unwrap().expect("it was removed");
        assert!(second.restore().unwrap().is_none());
        assert!(matches!(first.restore(), Err(RuntimeDirError::Locked { .. })));
        drop(second);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let path = scratch("mode");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let error = RuntimeDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("others may write to it (mode 0777)"), "{error}");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_link_of_our_own_is_followed_to_a_directory_that_is_checked() {
        let (path, link) = (scratch("linked"), scratch("link"));
        let _gone = fs::remove_file(&link);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        drop(RuntimeDir::open(&link).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(RuntimeDir::open(&link), Err(RuntimeDirError::Unsafe { .. })));
        fs::remove_file(&link).unwrap();
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_before_anything_is_made() {
        let path = std::env::temp_dir().join("x".repeat(120));
        assert!(matches!(RuntimeDir::open(&path), Err(RuntimeDirError::TooLong { .. })));
        assert!(!path.exists());
    }
}
