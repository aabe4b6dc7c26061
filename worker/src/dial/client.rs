//! Noticing that the client leaves while its upstream is still being dialled.

use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::unix::AsyncFd;

use crate::net::{self, Socket, TcpState};

/// The waiting client. Its socket is registered with epoll as soon as the dial has to be waited
/// for, and not before: a dial on loopback needs no watch.
#[derive(Debug)]
pub struct Client {
    socket: Watched,
    /// Some of its bytes were read already: its FIN may be the end of a request whose answer
    /// it waits for.
    spoke: bool,
}

#[derive(Debug)]
enum Watched {
    NotYet(Socket),
    Registered(AsyncFd<OwnedFd>),
    /// It could not be registered and has been reset.
    Lost,
}

impl Client {
    /// Watches `socket`; `spoke` when bytes of the client have been read.
    #[must_use]
    pub fn new(socket: Socket, spoke: bool) -> Self {
        Self { socket: Watched::NotYet(socket), spoke }
    }

    /// The socket, for the relay. `None` after [`Stopped::ClientGone`](super::Stopped) when
    /// epoll had refused it; it is then closed already.
    #[must_use]
    pub fn into_socket(self) -> Option<Socket> {
        match self.socket {
            Watched::NotYet(socket) => Some(socket),
            Watched::Registered(socket) => Some(socket.into()),
            Watched::Lost => None,
        }
    }

    fn watch(&mut self) -> Option<&AsyncFd<OwnedFd>> {
        if let Watched::NotYet(_) = self.socket
            && let Watched::NotYet(socket) = std::mem::replace(&mut self.socket, Watched::Lost)
        {
            match socket.register() {
                Ok(registered) => self.socket = Watched::Registered(registered),
                Err(error) => tracing::debug!(%error, "cannot register a client socket"),
            }
        }
        match &self.socket {
            Watched::Registered(socket) => Some(socket),
            Watched::NotYet(_) | Watched::Lost => None,
        }
    }

    /// Ready when the client is gone: reset, or finished without ever sending a byte.
    ///
    /// Waits on the *write* side: each event on the socket reports it anew, and forgetting
    /// "writable" does no harm to the relay, whereas forgetting "readable" would.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let spoke = self.spoke;
        let Some(socket) = self.watch() else { return Poll::Ready(()) };
        loop {
            let Ok(mut guard) = std::task::ready!(socket.poll_write_ready(cx)) else {
                return Poll::Ready(());
            };
            let fd = socket.get_ref().as_fd();
            let gone = match net::tcp_state(fd) {
                Ok(TcpState::Closed) | Err(_) => true,
                Ok(TcpState::CloseWait) => {
                    !spoke && net::unread(fd).is_ok_and(|waiting| waiting == 0)
                }
                Ok(
                    TcpState::Established
                    | TcpState::Connecting
                    | TcpState::FinSent
                    | TcpState::Closing
                    | TcpState::Listening
                    | TcpState::Unknown(_),
                ) => false,
            };
            if gone || guard.ready().is_write_closed() {
                return Poll::Ready(());
            }
            guard.clear_ready();
        }
    }
}
