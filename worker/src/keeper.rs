//! A process that keeps the worker's connections open when the worker is killed.
//!
//! At its start the worker makes one child with `clone(CLONE_FILES)` and without
//! `CLONE_VM`: it shares the worker's descriptor *table*, not its memory. So it holds every
//! descriptor the worker ever opens, at no cost a connection, and `close()` in the worker stays
//! a real close, because there is only one reference. Why not copies of each connection in the
//! supervisor: a message and two descriptors a connection, and closing would no longer end it.
//!
//! The child sleeps until the worker is dead, then answers whoever holds the other end of its
//! socket (`baton_handoff::keeper`): first the supervisor, which passes it on to the
//! replacement. Descriptors so travel once, and the supervisor need not understand connections.
//!
//! # When it ends
//! * Told to, by the successor or by the worker ([`Keeper::dismiss`]).
//! * The worker is dead and nobody has asked anything for [`PATIENCE`].
//! * The worker is dead and nobody holds the other end any more. What the worker itself had not
//!   handed over yet does not count: the child closes it.
//!
//! In the last two cases it resets every TCP connection in the table first: their peers must
//! not take the kernel's FIN for an orderly end. While the worker lives it touches nothing, and
//! refuses to answer: whoever wants the connections must have seen the worker die.
//!
//! # Consequences for others
//! * The child also holds the worker's end of the control pair: the supervisor sees **no end of
//!   stream** when the worker dies, only its exit (pidfd, SIGCHLD).
//! * A worker that ends in order must dismiss it, or its last descriptors stay open.
//! * Nothing in the worker may `unshare(CLONE_FILES)`, `close_range` all of its descriptors or
//!   exec. The child's own two descriptors have high numbers and no owner in the worker, so no
//!   stray `close` meets them; [`Keeper::is_intact`] tells.
//! * It is the worker's child until the worker dies, then that of the nearest subreaper, or
//!   init: the supervisor reaps it among its strangers.
//!
//! # Limits
//! After the copy only system calls are made, on the copy's stack: no allocation, no lock, no
//! panic. Its memory is what the worker had touched when it was made, shared until the worker
//! writes to it. Made early, that is little. Made late (for a supervisor that adopts the worker)
//! it is as sound, for the same reason: no lock that another thread may have held is ever taken.
//! Then the child keeps whatever the worker has in memory at that moment.
#![allow(unsafe_code)]

mod calls;
mod child;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

pub use watch::PATIENCE;

/// The child's own descriptors go here, or below a lower limit: far from numbers that come and
/// go, and low enough that the kernel's table stays small (64 KiB).
const RESERVED: u64 = 8192;

/// The worker's handle of its keeper. Dropping it changes nothing: the keeper is there for the
/// case that the worker ends without a word.
#[derive(Debug)]
pub struct Keeper {
    pid: Pid,
    /// It was found dead and reaped.
    ended: bool,
    /// Not owned: it is the child's, and closing it would end the child's usefulness.
    socket: RawFd,
    /// The same with its pidfd of this process.
    worker: RawFd,
    cookie: u64,
}

/// The end of its socket that is to go to the supervisor.
#[derive(Debug, Clone, Copy)]
struct OtherEnd {
    number: RawFd,
    cookie: u64,
}

impl Keeper {
    /// Makes the child; returns the handle and the other end of its socket, which goes to the
    /// supervisor and must not stay open in the worker.
    ///
    /// To be called after the process has raised its limit of descriptors; best before it starts
    /// a thread, see the module's limits.
    ///
    /// # Errors
    /// What `socketpair`, `pidfd_open` and `clone` report: the worker can do without.
    pub fn start() -> io::Result<(Self, OwnedFd)> {
        let (near, far) = baton_handoff::pair()?;
        let worker = calls::pidfd_of_this_process()?;
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let base = RawFd::try_from(soft.min(RESERVED).saturating_sub(16)).unwrap_or(0);
        let socket = raise(&near, base)?;
        drop(near);
        let cookie = socket2::SockRef::from(&socket).cookie()?;
        let other_end =
            OtherEnd { number: far.as_raw_fd(), cookie: socket2::SockRef::from(&far).cookie()? };
        let worker = raise(&worker, base)?;
        let (socket, worker) = (socket.into_raw_fd(), worker.into_raw_fd());
        // The child keeps all signals blocked: TERM, INT and HUP are meant for the worker.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let cloned = calls::clone_sharing_files();
        if !matches!(cloned, Ok(None)) {
            before.thread_set_mask()?;
        }
        match cloned {
            Ok(None) => child::run(socket, worker, other_end),
            Ok(Some(pid)) => {
                let pid = Pid::from_raw(pid);
                Ok((Self { pid, ended: false, socket, worker, cookie }, far))
            }
            Err(error) => {
                calls::close(socket);
                calls::close(worker);
                Err(error)
            }
        }
    }

    /// The child's process number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the child's socket is still what it was: for debug builds and tests.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        calls::cookie(self.socket) == Some(self.cookie)
    }

    /// Whether the child has ended, which it does not by itself while the worker lives: somebody
    /// has killed it. True once; then [`Keeper::dismiss`] is what is left to do.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        if self.ended {
            return false;
        }
        self.ended = match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => false,
            Ok(_) | Err(_) => true,
        };
        self.ended
    }

    /// Ends the child: this process ends in order and has no connection left, or has another one.
    ///
    /// # Errors
    /// What `kill` and `waitpid` report; a child that is gone already is none.
    pub fn dismiss(self) -> io::Result<()> {
        // The number of one that was reaped may be another process's by now.
        if !self.ended {
            end(self.pid)?;
        }
        // Nobody uses them any more, and a worker that lives on would keep them for ever.
        calls::close(self.socket);
        calls::close(self.worker);
        Ok(())
    }
}

/// Kills and reaps a child.
fn end(pid: Pid) -> io::Result<()> {
    match kill(pid, Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(error.into()),
    }
    loop {
        match waitpid(pid, None) {
            Ok(_) | Err(Errno::ECHILD) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A copy of a descriptor with a number of at least `least`.
fn raise(fd: &OwnedFd, least: RawFd) -> io::Result<OwnedFd> {
    let number = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(least.max(fd.as_raw_fd())))?;
    Ok(calls::own(number))
}
