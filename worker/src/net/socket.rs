//! A TCP socket that may or may not be known to the reactor yet.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A non-blocking TCP socket on its way to the relay.
///
/// A socket is registered with epoll once in its life: by the dialler when it must wait for the
/// connect, else by the relay. The type keeps whichever has happened.
#[derive(Debug)]
pub enum Socket {
    /// Not registered.
    Plain(OwnedFd),
    /// Registered for reading, writing and urgent data with the current runtime.
    Registered(AsyncFd<OwnedFd>),
}

impl Socket {
    /// The registered socket; registers it now unless it is already.
    ///
    /// # Errors
    /// When epoll refuses (`ENOMEM`, `ENOSPC`); the socket is then closed with a reset, since a
    /// plain close would look like the end of the stream.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled, as `AsyncFd` does.
    pub fn register(self) -> io::Result<AsyncFd<OwnedFd>> {
        match self {
            Self::Registered(registered) => Ok(registered),
            Self::Plain(fd) => {
                let interest = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
                // SAFETY: an `OwnedFd` is open and names one description for as long as the
                // `AsyncFd` owns it; nothing here closes or replaces the number behind its back.
                let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
                registered.map_err(|error| {
                    let (fd, error) = error.into_parts();
                    super::reset(fd);
                    error
                })
            }
        }
    }

    /// The descriptor, deregistered if it was registered.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        match self {
            Self::Plain(fd) => fd,
            Self::Registered(registered) => registered.into_inner(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(fd) => fd.as_fd(),
            Self::Registered(registered) => registered.get_ref().as_fd(),
        }
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self::Plain(fd)
    }
}

impl From<AsyncFd<OwnedFd>> for Socket {
    fn from(registered: AsyncFd<OwnedFd>) -> Self {
        Self::Registered(registered)
    }
}
