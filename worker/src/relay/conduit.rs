//! One socket of a connection, with what is known about its readiness.
//!
//! Why not `AsyncRead`/`AsyncWrite`: three savings of a system call each need the raw call.
//! A *short read means drained* (no second read to meet `EAGAIN`), until the peer's FIN is on
//! its way, for then no further edge will come. *Writes are tried without asking*, and only a
//! refused one consults the reactor. A socket whose stream has ended is *watched through its
//! write side*, because its read side stays "ready" for ever.
//!
//! Readiness is cleared only inside `try_io` (or where a lost "writable" does no harm), so an
//! edge that comes during the call is never lost, whichever thread polls the reactor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::net::{self, Pipe};

/// What a splice from a socket found.
pub(super) enum Spliced {
    /// So many bytes are in the pipe now; 0 is the end of the stream.
    Moved(usize),
    /// There is something that splice cannot take, such as an urgent mark: copy.
    Unfit,
}

#[derive(Debug)]
pub(super) struct Conduit {
    socket: AsyncFd<OwnedFd>,
    /// The send queue was full at the last write.
    blocked: bool,
    /// The peer uses urgent data: a short read says nothing, and splice would stop at the mark.
    urgent: bool,
    /// An operation on it has failed: nothing will be written to it, and what it still has is
    /// read without waiting.
    broken: bool,
}

impl Conduit {
    pub(super) fn new(socket: AsyncFd<OwnedFd>) -> Self {
        Self { socket, blocked: false, urgent: false, broken: false }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }

    /// The socket, no longer registered.
    pub(super) fn into_fd(self) -> OwnedFd {
        self.socket.into_inner()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn set_broken(&mut self) {
        self.broken = true;
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether the peer has used urgent data.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Reads into `buffer`; 0 is the end of the stream.
    pub(super) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.broken {
            return Poll::Ready(or_end(net::recv(self.fd(), buffer)));
        }
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            let closing = guard.ready().is_read_closed();
            if !closing && !self.urgent {
                self.urgent = notice_urgent(&self.socket);
            }
            let drains = !closing && !self.urgent;
            let mut short = None;
            let attempt = guard.try_io(|socket| {
                let count = net::recv(socket.get_ref().as_fd(), buffer)?;
                if count > 0 && count < buffer.len() && drains {
                    short = Some(count);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(count)
            });
            match (short, attempt) {
                (Some(count), _) => return Poll::Ready(Ok(count)),
                (None, Ok(result)) => return Poll::Ready(result),
                (None, Err(_)) if closing => return Poll::Ready(Err(inconsistent())),
                (None, Err(_)) => {}
            }
        }
    }

    /// Moves up to `limit` bytes into `pipe`, which must be empty: only then does `EAGAIN` mean
    /// that the socket has nothing.
    pub(super) fn poll_splice_in(
        &mut self,
        cx: &mut Context<'_>,
        pipe: &Pipe,
        limit: usize,
    ) -> Poll<io::Result<Spliced>> {
        if self.broken {
            let result = or_end(net::splice_in(self.fd(), pipe, limit));
            return Poll::Ready(result.map(Spliced::Moved));
        }
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            let closing = guard.ready().is_read_closed();
            if !closing && !self.urgent {
                self.urgent = notice_urgent(&self.socket);
            }
            if self.urgent {
                return Poll::Ready(Ok(Spliced::Unfit));
            }
            match guard.try_io(|socket| net::splice_in(socket.get_ref().as_fd(), pipe, limit)) {
                Ok(result) => return Poll::Ready(result.map(Spliced::Moved)),
                // A closing socket is never empty: an urgent mark is in the way.
                Err(_) if closing => return Poll::Ready(Ok(Spliced::Unfit)),
                Err(_) => {}
            }
        }
    }

    /// Writes as much of `bytes` as the socket takes.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.poll_write(cx, |socket| net::send(socket, bytes)))?;
        // The kernel has noted that the queue was full and will say when it no longer is.
        self.blocked = count < bytes.len();
        if count == 0 { Poll::Ready(Err(inconsistent())) } else { Poll::Ready(Ok(count)) }
    }

    /// Moves as much of the `held` bytes in `pipe` as the socket takes.
    pub(super) fn poll_splice_out(
        &mut self,
        cx: &mut Context<'_>,
        pipe: &Pipe,
        held: usize,
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.poll_write(cx, |socket| net::splice_out(pipe, socket, held)))?;
        if count == 0 { Poll::Ready(Err(inconsistent())) } else { Poll::Ready(Ok(count)) }
    }

    /// Ready unless the send queue is known to be full.
    pub(super) fn poll_unblocked(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.blocked {
            let _guard = ready!(self.socket.poll_write_ready(cx))?;
            self.blocked = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the peer of a socket that we have read to its end is gone altogether. Only
    /// while the socket is not blocked: a blocked one is waited for by whoever writes.
    pub(super) fn poll_hangup(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Ok(mut guard) = ready!(self.socket.poll_write_ready(cx)) else {
                return Poll::Ready(());
            };
            if guard.ready().is_write_closed() {
                return Poll::Ready(());
            }
            // "Writable" is not what we wait for. Losing it does no harm: writes are tried
            // without asking, and a refused one brings a new edge.
            guard.clear_ready();
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if !self.blocked {
            match call(self.fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.blocked = true,
                result => return Poll::Ready(result),
            }
        }
        loop {
            let mut guard = ready!(self.socket.poll_write_ready(cx))?;
            let closed = guard.ready().is_write_closed();
            match guard.try_io(|socket| call(socket.get_ref().as_fd())) {
                Ok(result) => {
                    self.blocked = false;
                    return Poll::Ready(result);
                }
                Err(_) if closed => return Poll::Ready(Err(inconsistent())),
                Err(_) => {}
            }
        }
    }
}

/// Whether urgent data has come; from then on it stays in the stream as ordinary bytes.
/// Costs no system call until it happens.
fn notice_urgent(socket: &AsyncFd<OwnedFd>) -> bool {
    let seen = socket.try_io(Interest::PRIORITY, |_| Ok(())).is_ok();
    if seen && let Err(error) = net::inline_urgent(socket.get_ref().as_fd()) {
        tracing::debug!(%error, "cannot keep urgent data in the stream");
    }
    seen
}

/// On a broken socket nothing more will come: what is not there now is the end.
fn or_end(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

/// The kernel said "closed" and "try again" at once. Has not been seen; waiting would spin.
fn inconsistent() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}
