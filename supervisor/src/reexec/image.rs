//! `exec`, and what surrounds it: which descriptors stay, which signals wait, what is said.

use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nix::fcntl::{AtFlags, FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

use super::RESUME_ARGUMENT;

/// Variables that name descriptors by number: true at the start of the process, not after.
const SPENT: [&str; 3] = ["LISTEN_FDS=", "LISTEN_PID=", "LISTEN_FDNAMES="];

/// What the next image is told on its command line.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The name it goes by.
    pub(crate) name: PathBuf,
    /// Where the memory is.
    pub(crate) state: RawFd,
    /// The way back.
    pub(crate) back: Option<RawFd>,
    /// On the way back: why.
    pub(crate) failed: Option<String>,
}

impl Call {
    fn arguments(&self) -> Vec<CString> {
        let mut arguments = vec![
            self.name.as_os_str().as_bytes().to_vec(),
            RESUME_ARGUMENT.into(),
            format!("--state-fd={}", self.state).into(),
        ];
        arguments.extend(self.back.map(|back| format!("--back-fd={back}").into()));
        arguments.extend(self.failed.as_ref().map(|why| format!("--failed={why}").into()));
        arguments.into_iter().map(terminated).collect()
    }
}

/// Becomes the opened executable; returns only with the reason why not.
pub(crate) fn exec(image: BorrowedFd<'_>, call: &Call) -> io::Error {
    let environment: Vec<CString> = std::env::vars_os()
        .map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='))
        .filter(|entry| !SPENT.iter().any(|spent| entry.starts_with(spent.as_bytes())))
        .map(terminated)
        .collect();
    let flags = AtFlags::AT_EMPTY_PATH;
    // What is still on its way to the log would go with this image.
    baton_logging::flush();
    let result: Result<Infallible, _> =
        nix::unistd::execveat(image, c"", &call.arguments(), &environment, flags);
    match result {
        Err(error) => error.into(),
    }
}

fn terminated(mut bytes: Vec<u8>) -> CString {
    bytes.retain(|&byte| byte != 0);
    CString::new(bytes).unwrap_or_default()
}

/// The process is found under its name by those who look: started from a descriptor, it would be
/// called by that one's number.
pub(super) fn name_process() {
    if let Err(error) = nix::sys::prctl::set_name(c"baton") {
        tracing::debug!(%error, "cannot name the process");
    }
}

/// Descriptors that stay open over `exec`, as long as the value lives: if there is no `exec`
/// after all, they are as before.
#[derive(Debug, Default)]
pub(crate) struct Left<'a> {
    fds: Vec<BorrowedFd<'a>>,
}

impl<'a> Left<'a> {
    /// Leaves one more; its number.
    pub(crate) fn leave(&mut self, fd: BorrowedFd<'a>) -> RawFd {
        self.fds.push(fd);
        fd.as_raw_fd()
    }

    /// From here on.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn open(&self) -> io::Result<()> {
        self.mark(FdFlag::empty())
    }

    fn mark(&self, flag: FdFlag) -> io::Result<()> {
        for fd in &self.fds {
            fcntl(fd, FcntlArg::F_SETFD(flag))?;
        }
        Ok(())
    }
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.mark(FdFlag::FD_CLOEXEC) {
            tracing::warn!(%error, "a descriptor stays open for children");
        }
    }
}

/// The signals the supervisor acts on.
fn ours() -> SigSet {
    [
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGCHLD,
    ]
    .into_iter()
    .collect()
}

/// Has this thread, and those it starts from here on, leave the supervisor's signals alone. They
/// wait, over `exec` too, until [`run`](crate::run) or [`resume`](crate::resume) has its handlers
/// in place. To be called before the process has a second thread: a signal could be taken by one
/// that an `exec` ends before the supervisor has heard of it.
///
/// # Errors
/// What the system said.
pub fn hold_signals() -> io::Result<()> {
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&ours()), None).map_err(io::Error::from)
}

/// This thread takes our signals, those that have waited first.
///
/// # Errors
/// What the system said.
pub(crate) fn let_signals_in() -> io::Result<()> {
    pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&ours()), None).map_err(io::Error::from)
}

/// For helper threads: signals are the main thread's.
pub(crate) fn without_signals() {
    if let Err(error) = hold_signals() {
        tracing::warn!(%error, "a helper thread cannot leave signals alone");
    }
}
