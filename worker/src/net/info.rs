//! What the kernel knows about a socket: state, identity, queue lengths.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;

/// The TCP state of a socket, as far as the gateway tells states apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TcpState {
    /// Open in both directions.
    Established,
    /// Our SYN is unanswered.
    Connecting,
    /// The peer sent its FIN, we have not sent ours.
    CloseWait,
    /// We sent our FIN, the peer has not sent its own.
    FinSent,
    /// Both FINs are on their way or acknowledged.
    Closing,
    /// Gone: reset, timed out, or never connected.
    Closed,
    /// A listening socket.
    Listening,
    /// A state this build does not know (the kernel's number).
    Unknown(u8),
}

impl TcpState {
    fn from_kernel(state: u8) -> Self {
        // include/net/tcp_states.h
        match state {
            1 => Self::Established,
            2 | 3 | 12 => Self::Connecting,
            4 | 5 => Self::FinSent,
            6 | 9 | 11 => Self::Closing,
            7 => Self::Closed,
            8 => Self::CloseWait,
            10 => Self::Listening,
            other => Self::Unknown(other),
        }
    }
}

/// The TCP state of `socket`. Reads no error and so swallows none, unlike `SO_ERROR`.
///
/// # Errors
/// Whatever `getsockopt` reports, for example when `socket` is not TCP.
pub fn tcp_state(socket: BorrowedFd<'_>) -> io::Result<TcpState> {
    // `tcpi_state` is the first byte; the kernel copies as much as the buffer holds.
    let mut head = [0u8; 4];
    let mut len: libc::socklen_t = 4;
    // SAFETY: the kernel writes at most `len` bytes to `head`, which lives across the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            head.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpState::from_kernel(head[0]))
}

/// Whether the next operation on `socket` will report that the connection broke. Unlike
/// `SO_ERROR` it leaves the error where it is.
///
/// # Errors
/// Whatever `poll` reports.
pub fn has_error(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    loop {
        match poll(&mut polled, PollTimeout::ZERO) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(polled[0].revents().is_some_and(|found| found.contains(PollFlags::POLLERR)))
}

/// The kernel's identity of this socket (`SO_COOKIE`): unique within a boot, the same through
/// every descriptor of it.
///
/// # Errors
/// Whatever `getsockopt` reports.
pub fn cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    SockRef::from(&socket).cookie()
}

/// Bytes received and not yet read (`FIONREAD`).
///
/// # Errors
/// Whatever `ioctl` reports, for example when `socket` listens.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<usize> {
    queue_length(socket, libc::FIONREAD)
}

/// Bytes written and not yet acknowledged by the peer (`SIOCOUTQ`).
///
/// Counts on after a reset, when the queue is already gone: look at [`tcp_state`] too.
///
/// # Errors
/// Whatever `ioctl` reports, for example when `socket` listens.
pub fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // SIOCOUTQ is the same number as TIOCOUTQ on Linux; libc has only the latter.
    queue_length(socket, libc::TIOCOUTQ)
}

fn queue_length(socket: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<usize> {
    let mut length: libc::c_int = 0;
    // SAFETY: both requests store one `int` through the pointer, which lives across the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request, &raw mut length) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(length).unwrap_or(0))
}
