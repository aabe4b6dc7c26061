//! Moving bytes between a socket and memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{self, MsgFlags, Shutdown};

/// Reads what is there, up to `buffer`'s length; 0 is the end of the stream.
///
/// # Errors
/// `WouldBlock` when nothing is there; the connection's error after its last byte.
pub fn recv(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    again(|| socket::recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT))
}

/// Like [`recv`], and leaves the bytes in the queue.
///
/// # Errors
/// As [`recv`]; reports a pending error and thereby takes it.
pub fn peek(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    again(|| socket::recv(socket.as_raw_fd(), buffer, flags))
}

/// Writes as much of `bytes` as the send queue takes.
///
/// # Errors
/// `WouldBlock` when it takes nothing; otherwise the connection's error.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    again(|| socket::send(socket.as_raw_fd(), bytes, flags))
}

/// As [`send`], for bytes that others follow at once: the kernel holds back the last segment
/// until they come, or for 200 ms (`MSG_MORE` in tcp(7), `send(2)`).
///
/// # Errors
/// As [`send`].
pub fn send_more(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    // nix has no name for this one.
    let flags = flags | MsgFlags::from_bits_retain(nix::libc::MSG_MORE);
    again(|| socket::send(socket.as_raw_fd(), bytes, flags))
}

/// Sends our FIN after everything written so far; reading goes on. Repeating it is harmless.
///
/// # Errors
/// `ENOTCONN` when the connection is gone.
pub fn shut_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(socket::shutdown(socket.as_raw_fd(), Shutdown::Write)?)
}

/// Repeats `call` while a signal interrupts it.
pub(super) fn again(mut call: impl FnMut() -> Result<usize, Errno>) -> io::Result<usize> {
    loop {
        match call() {
            Ok(count) => return Ok(count),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
