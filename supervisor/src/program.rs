//! An executable file that workers are started from.
//!
//! The file is opened once, and what was opened is what is checked and what is run: a package
//! upgrade in the middle, a rename or a deletion changes nothing for a program already in hand.
//! The way to run an opened file is its path under `/proc/self/fd`, never `/proc/self/exe`, which
//! names the supervisor's own image: after an upgrade that is the old one.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::child::Child;
use crate::privilege::Identity;
use crate::reexec::{REHEARSE_ARGUMENT, RESUME_ARGUMENT};

/// The argument that starts the worker role.
pub const WORKER_ARGUMENT: &str = "worker";
/// The option that makes a binary introduce itself with a [`SelfCheck`] line and exit.
pub const SELF_CHECK_ARGUMENT: &str = "--self-check";

/// Environment that is between the service manager and the supervisor alone.
const PRIVATE_ENVIRONMENT: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// What people are told of a file that does not introduce itself.
const NO_BATON: &str = "is not a baton binary (scripts are not supported)";

/// Longest answer to a self-check or of a rehearsal that is read, in bytes.
const SELF_CHECK_MAX: u64 = 4096;

/// What tells two builds apart: device, inode, size and modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BuildId {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl SelfCheck {
    /// How this program introduces itself.
    #[must_use]
    pub fn of_this_program(version: &str) -> Self {
        let ours = baton_handoff::version::ours();
        Self {
            version: version.into(),
            protocol_min: ours.min().0,
            protocol_max: ours.max().0,
            state_formats: vec![crate::reexec::FORMAT],
            rehearses: true,
        }
    }
}

impl BuildId {
    /// A build that exists only in tests of the state machine.
    #[cfg(test)]
    pub(crate) fn fake(inode: u64) -> Self {
        Self { device: 0, inode, size: 0, modified: (0, 0) }
    }
}

/// How a binary introduces itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfCheck {
    /// `major.minor.patch`.
    pub version: String,
    /// Lowest handoff protocol it speaks.
    pub protocol_min: u16,
    /// Highest handoff protocol it speaks.
    pub protocol_max: u16,
    /// Formats of the supervisor's state from which it can take over; a release that does not
    /// name any cannot.
    #[serde(default)]
    pub state_formats: Vec<u32>,
    /// It can show that it understands such a state without taking over; a release that does not
    /// say so cannot.
    #[serde(default)]
    pub rehearses: bool,
}

/// An opened executable.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    file: OwnedFd,
    build: BuildId,
    /// How it introduced itself, if it did.
    introduced: RefCell<Option<SelfCheck>>,
}

impl Program {
    /// Opens the file at an absolute path.
    ///
    /// # Errors
    /// When it is missing, no regular file, or not executable for anyone.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file: File =
            OpenOptions::new().read(true).custom_flags(nix::libc::O_PATH).open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if meta.mode() & 0o111 == 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not executable"));
        }
        Self::of(path.into(), file.into())
    }

    /// A file that is open, and the path it was opened by. If it was fit to be run once, it is taken
    /// as it is: whoever holds it must be able to go on holding it, and hears what is wrong with it
    /// when it is to be run.
    ///
    /// # Errors
    /// The system does not tell what file it is.
    pub(crate) fn of(path: PathBuf, file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let meta = file.metadata()?;
        let build = BuildId {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        };
        Ok(Self { path, file: file.into(), build, introduced: RefCell::default() })
    }

    /// The open file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Remembers how it introduced itself.
    pub(crate) fn note(&self, check: &SelfCheck) {
        *self.introduced.borrow_mut() = Some(check.clone());
    }

    /// Whether it said that it can take over from a supervisor that leaves this format.
    pub(crate) fn reads(&self, format: u32) -> bool {
        let introduced = self.introduced.borrow();
        introduced.as_ref().is_some_and(|check| check.state_formats.contains(&format))
    }

    /// Whether it said that it can be asked to [`rehearse`](Self::rehearse).
    pub(crate) fn rehearses(&self) -> bool {
        self.introduced.borrow().as_ref().is_some_and(|check| check.rehearses)
    }

    /// Where it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Which build it is.
    pub(crate) fn build(&self) -> BuildId {
        self.build
    }

    fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.as_std_mut().env_clear().envs(public_environment());
        command.arg0(&self.path).kill_on_drop(true);
        command
    }

    /// Runs the file with [`SELF_CHECK_ARGUMENT`].
    ///
    /// # Errors
    /// A sentence about what is wrong: it does not run, takes longer than `limit`, exits with a
    /// failure, or does not introduce itself.
    pub(crate) async fn self_check(&self, limit: Duration) -> Result<SelfCheck, String> {
        let path = self.path.display();
        let mut command = self.command();
        command.arg(SELF_CHECK_ARGUMENT).stdin(Stdio::null()).stderr(Stdio::null());
        let (status, answer) = match tokio::time::timeout(limit, introduction(command)).await {
            Err(_) => {
                return Err(format!(
                    "{path}: {NO_BATON}: no answer to its self-check within {limit:?}"
                ));
            }
            Ok(Err(error)) => {
                return Err(format!("{path}: {NO_BATON}: it cannot be run ({error})"));
            }
            Ok(Ok(introduced)) => introduced,
        };
        if !status.success() {
            return Err(format!("{path}: {NO_BATON}: its self-check failed ({status})"));
        }
        serde_json::from_slice(&answer).map_err(|error| {
            tracing::debug!(%error, "self-check");
            format!("{path}: {NO_BATON}: it did not introduce itself as one")
        })
    }

    /// Has the file show, as a process of its own, that it starts and could take over from a
    /// supervisor that leaves this state.
    ///
    /// # Errors
    /// A sentence about what is wrong: it does not run, takes longer than `limit`, dies, or cannot
    /// take over and says why.
    pub(crate) async fn rehearse(&self, state: OwnedFd, limit: Duration) -> Result<(), String> {
        let path = self.path.display();
        let mut command = self.command();
        command.args([RESUME_ARGUMENT, REHEARSE_ARGUMENT]).stdin(state).stderr(Stdio::null());
        let (status, answer) = match tokio::time::timeout(limit, introduction(command)).await {
            Err(_) => {
                return Err(format!("{path}: its rehearsal as supervisor took over {limit:?}"));
            }
            Ok(Err(error)) => return Err(format!("{path}: it cannot be run ({error})")),
            Ok(Ok(ended)) => ended,
        };
        let reason = String::from_utf8_lossy(&answer);
        match (status.success(), reason.trim()) {
            (true, _) => Ok(()),
            (false, "") => Err(format!("{path}: its rehearsal as supervisor failed ({status})")),
            (false, reason) => Err(format!("{path}: it cannot take over: {reason}")),
        }
    }

    /// Starts a worker with `control` as its standard input, in a process group of its own so
    /// that a terminal's signals reach the supervisor alone.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn spawn_worker(
        &self,
        control: OwnedFd,
        identity: Option<Identity>,
    ) -> io::Result<Child> {
        let mut command = self.command();
        command.arg(WORKER_ARGUMENT).stdin(Stdio::from(control)).process_group(0);
        if let Some(identity) = identity {
            command.arg("--identity").arg(identity.to_string());
        }
        Child::start(command.into_std())
    }
}

/// Runs a self-check or a rehearsal to its end: how it exited, and the beginning of what it said.
/// One that says more finds its pipe closed; whatever it is, it does not fill our memory.
async fn introduction(mut command: Command) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(SELF_CHECK_MAX).read_to_end(&mut answer).await?;
    }
    Ok((child.wait().await?, answer))
}

fn public_environment() -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| !PRIVATE_ENVIRONMENT.iter().any(|private| name == private))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_is_not_opened() {
        assert!(Program::open(Path::new("/")).is_err());
        assert!(Program::open(Path::new("/etc/passwd")).is_err());
        assert!(Program::open(Path::new("/nowhere/baton")).is_err());
    }

    #[test]
    fn the_same_file_is_the_same_build() {
        let shell = Program::open(Path::new("/bin/sh")).unwrap();
        assert_eq!(shell.build(), Program::open(Path::new("/bin/sh")).unwrap().build());
        assert_ne!(shell.build(), Program::open(Path::new("/bin/cat")).unwrap().build());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_program_that_is_no_baton_fails_its_self_check() {
        let limit = Duration::from_secs(30);
        let echo = Program::open(&std::fs::canonicalize("/bin/echo").unwrap()).unwrap();
        let problem = echo.self_check(limit).await.unwrap_err();
        assert!(problem.contains("is not a baton binary"), "{problem}");
        let fails = Program::open(&std::fs::canonicalize("/bin/false").unwrap()).unwrap();
        let problem = fails.self_check(limit).await.unwrap_err();
        assert!(problem.contains("self-check failed"), "{problem}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_way_a_rehearsal_ends_is_its_result() {
        let limit = Duration::from_secs(30);
        let state = || baton_handoff::seal(b"state").unwrap();
        let program = |path: &str| Program::open(&std::fs::canonicalize(path).unwrap()).unwrap();
        assert_eq!(program("/bin/true").rehearse(state(), limit).await, Ok(()));
        let problem = program("/bin/false").rehearse(state(), limit).await.unwrap_err();
        assert!(
            problem.ends_with("its rehearsal as supervisor failed (exit status: 1)"),
            "{problem}"
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_script_is_refused_with_the_reason() {
        let script = std::env::temp_dir().join(format!("baton-script-{}", std::process::id()));
        // Written by a process of its own: a neighbouring test that starts one now would hold a
        // copy of our descriptor, and what is open for writing cannot be run.
        let write = "printf '#!/bin/sh\\nexit 0\\n' >\"$0\" && chmod 700 \"$0\"";
        let written =
            std::process::Command::new("/bin/sh").args(["-c", write]).arg(&script).status();
        assert!(written.unwrap().success());
        let opened = Program::open(&script).unwrap();
        let problem = opened.self_check(Duration::from_secs(30)).await.unwrap_err();
        std::fs::remove_file(&script).unwrap();
        assert!(problem.contains("is not a baton binary"), "{problem}");
        assert!(problem.contains("scripts are not supported"), "{problem}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn of_a_program_that_never_stops_talking_only_the_beginning_is_kept() {
        let mut endless = Command::new("/bin/sh");
        endless.args(["-c", "while :; do echo 0123456789; done"]).kill_on_drop(true);
        endless.stderr(Stdio::null());
        let (status, answer) = introduction(endless).await.unwrap();
        assert_eq!(answer.len() as u64, SELF_CHECK_MAX);
        assert!(!status.success(), "{status}");
    }
}
