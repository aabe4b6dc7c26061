//! A handle on a process that is not a number: its end can be waited for, and a signal through it
//! never reaches a stranger who got the number later. Works for a process of any parent, which
//! is what a supervisor needs for workers that its predecessor started.
//!
//! Neither `std` nor `nix` has a stable call for it.

use nix::errno::Errno;
use nix::libc;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Opens a handle, CLOEXEC set; it becomes readable when the process has ended.
///
/// The number may have a new owner by now unless the process is an unreaped child.
///
/// # Errors
/// `ESRCH`: no such process. `EMFILE`: no descriptor is free.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = libc::pid_t::try_from(pid)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not a process number"))?;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(result).map_err(io::Error::from)?;
    let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this number, and nobody else has seen it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends the process a signal by its number.
///
/// # Errors
/// `ESRCH`: it has ended. `EPERM`: it belongs to somebody else.
pub fn signal(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: numbers and a null pointer, which the call takes for "no further information".
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, none, 0) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}
