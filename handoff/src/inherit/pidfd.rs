//! A handle on a process that is not a number: its end can be waited for, and a signal through it
//! never reaches a stranger who got the number later. Works for a process of any parent, which
//! is what a supervisor needs for workers that its predecessor started.
//!
//! Neither `std` nor `nix` has a stable call for it, and tokio waits for a descriptor that is no
//! socket only through an `unsafe` constructor.

use nix::errno::Errno;
use nix::libc;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// See the module's head.
#[derive(Debug)]
pub struct Handle {
    fd: AsyncFd<OwnedFd>,
}

impl Handle {
    /// Opens one, CLOEXEC set. Must be called inside a tokio runtime.
    ///
    /// The number may have a new owner by now unless the process is an unreaped child.
    ///
    /// # Errors
    /// `ESRCH`: no such process. `EMFILE`: no descriptor is free.
    pub fn open(pid: u32) -> io::Result<Self> {
        let fd = open(pid)?;
        // SAFETY: an `OwnedFd` is open until it is dropped and always has the same number, and
        // the one in here is not given away before the registration ends.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self { fd: fd.map_err(|error| error.into_parts().1)? })
    }

    /// Waits until the process has ended, whether or not somebody reaps it.
    ///
    /// # Errors
    /// The runtime ends.
    pub async fn ended(&self) -> io::Result<()> {
        // It stays readable from then on.
        self.fd.readable().await.map(drop)
    }

    /// Sends the process a signal by its number.
    ///
    /// # Errors
    /// `ESRCH`: it has ended. `EPERM`: it belongs to somebody else.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let none: *const libc::siginfo_t = std::ptr::null();
        let fd = self.as_fd().as_raw_fd();
        // SAFETY: numbers and a null pointer, which the call takes for "no further information".
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) };
        Errno::result(result).map(drop).map_err(io::Error::from)
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.get_ref().as_fd()
    }
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = libc::pid_t::try_from(pid)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not a process number"))?;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(result).map_err(io::Error::from)?;
    let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this number, and nobody else has seen it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
