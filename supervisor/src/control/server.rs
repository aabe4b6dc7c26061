//! The supervisor's end: accepts local clients of the same user (or root) and turns their lines
//! into requests for the driver. A client that is slow or talks nonsense costs one of a bounded
//! number of places for a bounded time; one that is silent costs nobody else anything.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nix::unistd::Uid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use super::places::{Asked, Places};
use super::protocol::{Done, REQUEST_MAX, Request, Response};
use crate::underway::{Hold, Underway};

/// Clients served at once; a reload storm of a hundred callers still fits.
const CLIENTS: usize = 256;
/// How long a client may take to send its line, or to take one of ours.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request, where its answers go, and who asked.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// What is asked for.
    pub(crate) request: Request,
    /// The way back.
    pub(crate) answers: Answers,
    /// The client's connection, for whoever has to pass it on.
    pub(crate) socket: OwnedFd,
}

/// The way back to one client. Dropping it ends the client's connection.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Unbounded in type only: a request has a handful of phases.
    sender: mpsc::UnboundedSender<(Response, Hold)>,
    underway: Underway,
}

impl Answers {
    fn new(underway: Underway) -> (Self, mpsc::UnboundedReceiver<(Response, Hold)>) {
        let (sender, outgoing) = mpsc::unbounded_channel();
        (Self { sender, underway }, outgoing)
    }

    /// Goes on with a client that a former image of this process was talking to.
    ///
    /// # Errors
    /// When the socket cannot be registered.
    pub(crate) fn resume(socket: OwnedFd, underway: Underway) -> io::Result<Self> {
        let mut stream = UnixStream::from_std(socket.into())?;
        let (answers, outgoing) = Self::new(underway);
        spawn_local(async move {
            if let Err(error) = deliver(&mut stream, outgoing).await {
                tracing::debug!(%error, "control client");
            }
        });
        Ok(answers)
    }

    /// Queues a line; a client that is gone misses it.
    pub(crate) fn send(&self, response: Response) {
        let _gone = self.sender.send((response, self.underway.hold()));
    }

    /// Keeps this process from replacing itself as long as the value lives.
    pub(crate) fn hold(&self) -> Hold {
        self.underway.hold()
    }

    /// Whether the client has its last line, or is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits for that.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

/// What a conversation needs of the driver.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    /// Where requests go.
    pub(crate) requests: mpsc::Sender<Incoming>,
    /// Counts answers that are not written yet.
    pub(crate) underway: Underway,
    /// Counts clients whose line has not come yet.
    pub(crate) callers: Underway,
}

/// The bound control socket; its file goes with the value.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: Rc<UnixListener>,
    path: PathBuf,
    /// What is there by that name; unknown where nothing was.
    file: Option<FileId>,
    places: Rc<Places>,
}

/// Device and inode.
type FileId = (u64, u64);

fn file_at(path: &Path) -> Option<FileId> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

impl ControlSocket {
    /// Binds `path`. The caller holds the runtime directory's lock, so a file that is there
    /// belongs to a dead instance.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self::of(listen(path)?, path))
    }

    /// Binds its path anew, as in [`bind`](Self::bind). Clients that wait at the former socket are
    /// lost with it; conversations that have begun go on.
    ///
    /// # Errors
    /// What the system said; everything is as before.
    pub(crate) fn rebind(&mut self) -> io::Result<()> {
        self.listener = Rc::new(listen(&self.path)?);
        self.file = file_at(&self.path);
        Ok(())
    }

    /// Whether clients that look for it still find it.
    pub(crate) fn is_in_place(&self) -> bool {
        self.file.is_some() && file_at(&self.path) == self.file
    }

    /// Goes on with the socket of a former image of this process.
    ///
    /// # Errors
    /// When it cannot be registered.
    pub(crate) fn resume(socket: OwnedFd, path: &Path) -> io::Result<Self> {
        Ok(Self::of(UnixListener::from_std(socket.into())?, path))
    }

    fn of(listener: UnixListener, path: &Path) -> Self {
        let places = Rc::new(Places::new(CLIENTS));
        let file = file_at(path);
        Self { listener: Rc::new(listener), path: path.into(), file, places }
    }

    /// Serves clients until it is dropped; must run on a local task set. Dropping it leaves the
    /// conversations that have begun to their end, and new clients in the socket's queue.
    pub(crate) fn serve(&self, desk: Desk) -> impl Future<Output = ()> + 'static {
        accept(Rc::clone(&self.listener), Rc::clone(&self.places), desk)
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Somebody else's, where ours was removed before.
        if !self.is_in_place() {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "control socket: remove");
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

async fn accept(listener: Rc<UnixListener>, places: Rc<Places>, desk: Desk) {
    loop {
        let Some(place) = places.wait().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (desk, caller) = (desk.clone(), desk.callers.hold());
                places.occupy(place, |asked| async move {
                    if let Err(error) = converse(stream, desk, caller, asked).await {
                        tracing::debug!(%error, "control client");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "control socket: accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, desk: Desk, caller: Hold, asked: Asked) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer != 0 && peer != Uid::effective().as_raw() {
        tracing::warn!(uid = peer, "control socket: refused a client of another user");
        return Ok(());
    }
    let socket = stream.as_fd().try_clone_to_owned()?;
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let limit = u64::try_from(REQUEST_MAX).unwrap_or(u64::MAX);
    let mut reader = BufReader::new(reader).take(limit);
    within(reader.read_line(&mut line)).await?;
    asked.set(true);
    let request = match serde_json::from_str(&line) {
        Ok(request) => request,
        Err(error) => {
            let problem = format!("not a request: {error}");
            return write(&mut writer, &Response::Done(Done::refused(problem))).await;
        }
    };
    let (answers, outgoing) = Answers::new(desk.underway);
    if desk.requests.send(Incoming { request, answers, socket }).await.is_err() {
        let problem = "the supervisor is ending".to_owned();
        return write(&mut writer, &Response::Done(Done::refused(problem))).await;
    }
    drop(caller);
    deliver(&mut writer, outgoing).await
}

/// Writes answers up to the last.
async fn deliver(
    writer: &mut (impl AsyncWrite + Unpin),
    mut outgoing: mpsc::UnboundedReceiver<(Response, Hold)>,
) -> io::Result<()> {
    while let Some((response, hold)) = outgoing.recv().await {
        write(writer, &response).await?;
        drop(hold);
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

async fn write(writer: &mut (impl AsyncWrite + Unpin), response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    within(writer.write_all(&line)).await
}

async fn within<T>(operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, operation).await?
}
