//! Socket options.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::libc;
use socket2::{SockRef, TcpKeepalive};

/// How long a connection is silent before the kernel probes its peer, and how long it waits for
/// an answer before it probes again: 30 s, on both sides. A peer that has vanished is noticed
/// after 30 s and nine unanswered probes (`net.ipv4.tcp_keepalive_probes`), 5 minutes; with the
/// system's interval of 75 s it would be 12.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Sets what every relayed socket has: no Nagle delay, keep-alive after [`KEEPALIVE_IDLE`].
///
/// Four calls, so do it once on a listener: what is accepted from it inherits all of them.
///
/// # Errors
/// Whatever `setsockopt` reports.
pub fn tune(socket: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_nodelay(true)?;
    keep_alive(socket)
}

/// Has the kernel probe a silent peer after [`KEEPALIVE_IDLE`]. Three calls and a timer, which a
/// connection of a few milliseconds has no use for.
///
/// # Errors
/// Whatever `setsockopt` reports.
pub fn keep_alive(socket: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_keepalive(
        &TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_IDLE),
    )
}

/// Makes the close of `socket` a reset: the peer sees `ECONNRESET`, not the end of a stream.
///
/// Linger 0: what is still in the send queue is thrown away with it. Has no effect while
/// another descriptor of the same socket is open.
///
/// # Errors
/// Whatever `setsockopt` reports.
pub fn discard_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))
}

/// Closes `socket` with a reset, see [`discard_on_close`].
pub fn reset(socket: OwnedFd) {
    // The option cannot fail on a TCP socket; if it did, closing is still all that is left.
    if let Err(error) = discard_on_close(socket.as_fd()) {
        tracing::debug!(%error, "cannot make a close a reset");
    }
}

/// Resets the connection of `socket` at once, whoever else has copies of it; both queues are
/// thrown away. No allocation, one system call.
///
/// # Errors
/// Whatever `connect` reports.
pub fn abort(socket: BorrowedFd<'_>) -> io::Result<()> {
    // An address of the family AF_UNSPEC, which is 0.
    let nowhere = libc::sockaddr { sa_family: 0, sa_data: [0; 14] };
    #[allow(clippy::cast_possible_truncation, reason = "16")]
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `nowhere`, which is that large. There is no safe
    // way: socket2 has no such address.
    let result = unsafe { libc::connect(socket.as_raw_fd(), &raw const nowhere, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Leaves urgent data in the stream instead of taking it out, so that a relay passes it on as
/// ordinary bytes.
///
/// # Errors
/// Whatever `setsockopt` reports.
pub fn inline_urgent(socket: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&socket).set_out_of_band_inline(true)
}
