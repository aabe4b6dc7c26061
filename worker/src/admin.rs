//! The admin HTTP server: `/healthz`, `/readyz`, `/metrics`, `/status` on the inherited admin listener.
//!
//! Runs on the main thread: it must answer while every shard is busy, and it must not cost the
//! shards anything. The listener is one more inherited socket, so a scrape survives an upgrade:
//! the new worker polls the same accept queue, the old one deregisters when it is quiesced.
//!
//! Limits: loopback peers only, [`MAX_CONNECTIONS`] at a time, one request a connection,
//! [`TIME_LIMIT`] for all of it. A client that is slow takes one place for that long and nothing
//! else; where every place is taken, the longest silent client loses its own.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{io, net};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinHandle, spawn_local};

mod answer;

pub(crate) use answer::{Answers, View};

/// Admin clients served at a time; more wait in the accept queue.
const MAX_CONNECTIONS: usize = 64;
/// What one client may take from accept to close.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, so that a lack of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server while it accepts. Dropping it deregisters the listener; requests being answered
/// go on.
#[derive(Debug)]
pub(crate) struct AdminServer {
    accepting: JoinHandle<()>,
}

impl AdminServer {
    /// Serves on this copy of the listener, within the current local runtime.
    pub(crate) fn start(listener: OwnedFd, view: Rc<dyn View>) -> io::Result<Self> {
        let listener = net::TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        Ok(Self { accepting: spawn_local(accept(listener, Answers::new(view))) })
    }

    /// Returns once the listener is deregistered.
    pub(crate) async fn stop(self) {
        self.accepting.abort();
        // Cancelled is the expected end; a panic has been reported by its own hook.
        let _ended = self.accepting.await;
    }
}

/// A client that has a place.
struct Client {
    serving: AbortHandle,
    /// Its request has come.
    asked: Rc<Cell<bool>>,
}

/// Ends the longest silent of the clients, the oldest of which come first.
fn make_room(clients: &VecDeque<Client>) {
    if let Some(silent) = clients.iter().find(|client| !client.asked.get()) {
        tracing::debug!("an admin client that says nothing makes room");
        silent.serving.abort();
    }
}

async fn accept(listener: TcpListener, answers: Answers) {
    let answers = Rc::new(answers);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut clients = VecDeque::<Client>::new();
    loop {
        clients.retain(|client| !client.serving.is_finished());
        if places.available_permits() == 0 {
            make_room(&clients);
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            // The semaphore is never closed.
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) if is_local(peer) => {
                let asked = Rc::default();
                let serving = serve(stream, Rc::clone(&answers), place, Rc::clone(&asked));
                let serving = spawn_local(serving).abort_handle();
                clients.push_back(Client { serving, asked });
            }
            // Closed without a word, like any client that is not let in.
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "admin accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_local(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

async fn serve(
    stream: TcpStream,
    answers: Rc<Answers>,
    place: OwnedSemaphorePermit,
    asked: Rc<Cell<bool>>,
) {
    // Held until the answer has left, not just until it was made: a slow reader counts.
    let scrape = Rc::default();
    let service = service_fn(|request| {
        asked.set(true);
        let response = answers.answer(request.method(), request.uri().path(), &scrape);
        async move { response }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(TIME_LIMIT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "admin client"),
        Err(_) => tracing::debug!("an admin client took too long"),
    }
    drop(place);
}

#[cfg(test)]
mod tests;
