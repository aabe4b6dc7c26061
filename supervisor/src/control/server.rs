//! The supervisor's end: accepts local clients of the same user (or root) and turns their lines
//! into requests for the driver. A client that is silent, slow or talks nonsense costs one of a
//! bounded number of places for a bounded time.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Uid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use super::protocol::{Done, REQUEST_MAX, Request, Response};

/// Clients served at once; a reload storm of a hundred callers still fits.
const CLIENTS: usize = 256;
/// How long a client may take to send its line, or to take one of ours.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request and where its answers go. Dropping the sender ends the client's connection.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// What is asked for.
    pub(crate) request: Request,
    /// Unbounded in type only: a request has a handful of phases.
    pub(crate) answers: mpsc::UnboundedSender<Response>,
}

/// The bound control socket; its file goes with the value.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Binds `path`. The caller holds the runtime directory's lock, so a file that is there
    /// belongs to a dead instance.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
        Ok(Self { listener, path: path.into() })
    }

    /// Serves clients for ever; must run on a local task set.
    pub(crate) async fn serve(self, requests: mpsc::Sender<Incoming>) {
        let places = Arc::new(Semaphore::new(CLIENTS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let requests = requests.clone();
                    tokio::task::spawn_local(async move {
                        if let Err(error) = converse(stream, requests).await {
                            tracing::debug!(%error, "control client");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "control socket: accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "control socket: remove");
        }
    }
}

async fn converse(stream: UnixStream, requests: mpsc::Sender<Incoming>) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer != 0 && peer != Uid::effective().as_raw() {
        tracing::warn!(uid = peer, "control socket: refused a client of another user");
        return Ok(());
    }
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let limit = u64::try_from(REQUEST_MAX).unwrap_or(u64::MAX);
    let mut reader = BufReader::new(reader).take(limit);
    within(reader.read_line(&mut line)).await?;
    let request = match serde_json::from_str(&line) {
        Ok(request) => request,
        Err(error) => {
            let problem = format!("not a request: {error}");
            return write(&mut writer, &Response::Done(Done::refused(problem))).await;
        }
    };
    let (answers, mut outgoing) = mpsc::unbounded_channel();
    if requests.send(Incoming { request, answers }).await.is_err() {
        let problem = "the supervisor is ending".to_owned();
        return write(&mut writer, &Response::Done(Done::refused(problem))).await;
    }
    while let Some(response) = outgoing.recv().await {
        write(&mut writer, &response).await?;
        match response {
            Response::Progress { .. } => {}
            // Nothing follows; ending here lets the driver see that the answer is out.
            Response::Status(_) | Response::Answer { .. } | Response::Done(_) => break,
        }
    }
    Ok(())
}

impl Done {
    /// What was asked for was not even begun.
    pub(crate) fn refused(problem: String) -> Self {
        Self { ok: false, message: problem.clone(), problems: vec![problem], duration_ms: 0 }
    }
}

async fn write(
    writer: &mut tokio::net::unix::OwnedWriteHalf,
    response: &Response,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    within(writer.write_all(&line)).await
}

async fn within<T>(operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, operation).await?
}
