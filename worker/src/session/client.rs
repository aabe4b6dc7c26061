//! The client's socket before it has an upstream.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};

use tokio::io::unix::AsyncFd;

use crate::classify::Window;
use crate::dial;
use crate::flow::Moment;
use crate::net::{self, Socket};
use crate::relay::RelayContext;

/// A client without an upstream. Dropped, it is reset: whoever gets no service sees an error and
/// not the end of a stream.
#[derive(Debug)]
pub(crate) struct Client(State);

#[derive(Debug)]
enum State {
    /// Its first bytes are read here.
    Reading(Socket),
    /// The dialler watches whether it leaves.
    Waiting(dial::Client),
    /// Given on, closed, or lost because it could not be registered.
    Gone,
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
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(State::Reading(socket.into()))
    }

    /// Its socket while its first bytes are read.
    pub(super) fn socket(&self) -> Option<&Socket> {
        match &self.0 {
            State::Reading(socket) => Some(socket),
            State::Waiting(_) | State::Gone => None,
        }
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
        let Some(socket) = self.socket() else { return Ok(0) };
        context.with_buffer(|buffer| {
            let room = window.room().min(buffer.len());
            let count = net::recv(socket.as_fd(), &mut buffer[..room])?;
            // Never more than the room it was given.
            window.push(&buffer[..count]).map_err(io::Error::other)?;
            Ok(count)
        })
    }

    fn registered(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        let gone = || io::Error::from(ErrorKind::NotConnected);
        let socket = self.take().ok_or_else(gone)?;
        self.0 = State::Reading(socket.register()?.into());
        match &self.0 {
            State::Reading(Socket::Registered(registered)) => Ok(registered),
            State::Reading(Socket::Plain(_)) | State::Waiting(_) | State::Gone => Err(gone()),
        }
    }

    /// For the dialler, which notices when it leaves; `spoke` when bytes of it have been read.
    /// `None` when it is gone.
    pub(super) fn watched(&mut self, spoke: bool) -> Option<&mut dial::Client> {
        let socket = self.take()?;
        self.0 = State::Waiting(dial::Client::new(socket, spoke));
        match &mut self.0 {
            State::Waiting(client) => Some(client),
            State::Reading(_) | State::Gone => None,
        }
    }

    /// Takes the socket, to give it on.
    pub(super) fn take(&mut self) -> Option<Socket> {
        match std::mem::replace(&mut self.0, State::Gone) {
            State::Reading(socket) => Some(socket),
            State::Waiting(client) => client.into_socket(),
            State::Gone => None,
        }
    }

    /// Closes without a word and without a reset.
    pub(super) fn close(mut self) {
        drop(self.take());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(socket) = self.take() {
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
