//! The client's socket before it has an upstream.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::classify::Window;
use crate::flow::Moment;
use crate::net::{self, Socket};
use crate::relay::RelayContext;

/// A client that is being looked at. Dropped, it is reset: whoever gets no service sees an error
/// and not the end of a stream.
#[derive(Debug)]
pub(super) struct Client {
    /// `None` only while `self` is being taken apart.
    socket: Option<Socket>,
}

/// What came of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// More bytes are in the window.
    More,
    /// The client sent its FIN.
    Eof,
    /// Nothing in time.
    Deadline,
    /// The client is gone.
    Broken,
}

impl Client {
    /// A client just accepted.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket: Some(socket.into()) }
    }

    /// Reads what is there now, if anything is; never waits.
    pub(super) fn glance(&mut self, window: &mut Window, context: &RelayContext) -> Filled {
        match self.read(window, context) {
            Ok(0) => Filled::Eof,
            Ok(_) => Filled::More,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Filled::Deadline,
            Err(_) => Filled::Broken,
        }
    }

    /// Reads more into the window, waiting until `deadline` for it.
    pub(super) async fn fill(
        &mut self,
        window: &mut Window,
        context: &RelayContext,
        deadline: Moment,
    ) -> Filled {
        loop {
            match self.glance(window, context) {
                Filled::Deadline => {}
                done @ (Filled::More | Filled::Eof | Filled::Broken) => return done,
            }
            let Ok(registered) = self.registered() else { return Filled::Broken };
            let left = deadline.since(net::now());
            match tokio::time::timeout(left, readable(registered)).await {
                Ok(true) => {}
                Ok(false) => return Filled::Broken,
                Err(_) => return Filled::Deadline,
            }
        }
    }

    fn read(&mut self, window: &mut Window, context: &RelayContext) -> io::Result<usize> {
        let Some(socket) = &self.socket else { return Ok(0) };
        context.with_buffer(|buffer| {
            let room = window.room().min(buffer.len());
            let count = net::recv(socket.as_fd(), &mut buffer[..room])?;
            // Never more than the room it was given.
            window.push(&buffer[..count]).map_err(io::Error::other)?;
            Ok(count)
        })
    }

    /// Runs `work`, unless the client leaves first: then `None`.
    ///
    /// A client has left when its connection is reset, or when it sent its FIN without a single
    /// byte before it (`spoke` says whether it had sent one). A FIN after bytes is the end of a
    /// request whose answer may still be wanted.
    pub(super) async fn unless_left<T>(
        &mut self,
        spoke: bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = std::pin::pin!(work);
        // Most dials are over at once; then nobody has to be watched.
        let first = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(done) = first.await {
            return Some(done);
        }
        let registered = self.registered().ok()?;
        tokio::select! {
            biased;
            done = work => Some(done),
            () = left(registered, spoke) => None,
        }
    }

    fn registered(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        let gone = || io::Error::from(ErrorKind::NotConnected);
        let registered = self.socket.take().ok_or_else(gone)?.register()?;
        match self.socket.insert(registered.into()) {
            Socket::Registered(registered) => Ok(registered),
            Socket::Plain(_) => Err(gone()),
        }
    }

    /// Gives the socket on.
    pub(super) fn into_socket(mut self) -> Option<Socket> {
        self.socket.take()
    }

    /// Closes without a word and without a reset.
    pub(super) fn close(mut self) {
        drop(self.socket.take());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            net::reset(socket.into_fd());
        }
    }
}

/// Waits until a read may give something. False when the reactor is gone.
async fn readable(socket: &AsyncFd<OwnedFd>) -> bool {
    match socket.readable().await {
        Ok(mut ready) => {
            // The caller has just read until the queue was empty: only a new edge counts, unless
            // there will be none any more.
            if !ready.ready().is_read_closed() && nothing_to_read(socket) {
                ready.clear_ready();
            }
            true
        }
        Err(_) => false,
    }
}

fn nothing_to_read(socket: &AsyncFd<OwnedFd>) -> bool {
    let peeked = net::peek(socket.get_ref().as_fd(), &mut [0]);
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Returns when the client has left.
async fn left(socket: &AsyncFd<OwnedFd>, spoke: bool) {
    if !spoke {
        loop {
            let Ok(mut ready) = socket.readable().await else { return };
            match net::peek(socket.get_ref().as_fd(), &mut [0]) {
                Ok(0) => return,
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                Err(_) => return,
            }
        }
    }
    // Only a reset counts from here on; epoll reports it whatever else is pending.
    while let Ok(mut ready) = socket.ready(Interest::ERROR).await {
        match net::tcp_state(socket.get_ref().as_fd()) {
            Ok(net::TcpState::Closed) | Err(_) => return,
            Ok(_) => ready.clear_ready(),
        }
    }
}
