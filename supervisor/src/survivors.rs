//! Workers of a supervisor that died: found by their adoption sockets, and asked for everything
//! that went with it: which configuration they serve, and the listening sockets themselves.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_handoff::adoption;
use baton_handoff::message::{
    Adopted, HelloWorker, ListenerWanted, Returned, ToSupervisor, ToWorker, WorkerId,
};
use baton_handoff::{Fault, Received, RecvError, SendError, SupervisorEnd};
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::driver::Lifeline;
use crate::runtime_dir::RuntimeDir;

/// A worker answers between two events of its main thread; compiling is no event.
const PATIENCE: Duration = Duration::from_secs(5);

/// A worker that was adopted.
pub(crate) struct Survivor {
    pub(crate) id: WorkerId,
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) end: SupervisorEnd,
    pub(crate) adopted: Adopted,
    pub(crate) listeners: Vec<(ListenerWanted, OwnedFd)>,
    /// What its connections can be carried on with, if it has said so already.
    pub(crate) lifeline: Option<Lifeline>,
}

/// Why one was not.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("nobody holds it any more")]
    Gone,
    #[error("it speaks another protocol and drains: {0}")]
    Stranger(String),
    #[error("it does not answer")]
    Silent,
    #[error("it hung up")]
    HungUp,
    #[error("it said something else")]
    Nonsense,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Send(#[from] SendError),
}

/// Adopts every worker that waits in the directory, whose lock we hold.
pub(crate) async fn adopt(directory: &RuntimeDir, version: &str) -> Vec<Survivor> {
    let waiting = match directory.adoption_sockets() {
        Ok(waiting) => waiting,
        Err(error) => {
            tracing::warn!(%error, "cannot look for workers of a former supervisor");
            return Vec::new();
        }
    };
    let calls: Vec<_> = waiting
        .into_iter()
        .map(|(id, path)| {
            let version = version.to_owned();
            spawn_local(async move { (id, call(id, &path, version).await, path) })
        })
        .collect();
    let mut survivors = Vec::new();
    for task in calls {
        match task.await {
            Ok((_, Ok(survivor), _)) => survivors.push(survivor),
            Ok((_, Err(Lost::Gone), path)) => remove(&path),
            Ok((id, Err(lost), _)) => {
                tracing::warn!(worker = id.0, "a worker of a former supervisor is lost: {lost}");
            }
            Err(error) => tracing::error!(%error, "adoption"),
        }
    }
    survivors
}

/// Removes the file of a worker that is gone.
pub(crate) fn remove(path: &PathBuf) {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::debug!(%error, path = %path.display(), "remove"),
    }
}

async fn call(id: WorkerId, path: &Path, version: String) -> Result<Survivor, Lost> {
    let socket = match adoption::call(path) {
        Ok(socket) => socket,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ) =>
        {
            return Err(Lost::Gone);
        }
        Err(error) => return Err(error.into()),
    };
    let end = SupervisorEnd::new(socket)?;
    match timeout(PATIENCE, converse(id, end, version)).await {
        Ok(result) => result,
        Err(_) => Err(Lost::Silent),
    }
}

async fn converse(id: WorkerId, end: SupervisorEnd, version: String) -> Result<Survivor, Lost> {
    let mut lifeline = None;
    end.send(&ToWorker::Hello(HelloWorker { worker: id, version }), &[]).await?;
    let hello = match hear(&end, &mut lifeline).await? {
        (ToSupervisor::Hello(hello), _) => hello,
        _ => return Err(Lost::Nonsense),
    };
    end.send(&ToWorker::Adopt, &[]).await?;
    let adopted = match hear(&end, &mut lifeline).await? {
        (ToSupervisor::Adopted(adopted), _) => adopted,
        _ => return Err(Lost::Nonsense),
    };
    let mut listeners = Vec::new();
    loop {
        let (Returned { listeners: wanted, last }, sockets) =
            match hear(&end, &mut lifeline).await? {
                (ToSupervisor::Returned(returned), sockets) => (returned, sockets),
                _ => return Err(Lost::Nonsense),
            };
        listeners.extend(wanted.into_iter().zip(sockets));
        if last {
            let (pid, version) = (hello.pid, hello.version);
            return Ok(Survivor { id, pid, version, end, adopted, listeners, lifeline });
        }
    }
}

/// The next message that matters here.
async fn hear(
    end: &SupervisorEnd,
    lifeline: &mut Option<Lifeline>,
) -> Result<(ToSupervisor, Vec<OwnedFd>), Lost> {
    loop {
        match end.recv().await {
            Ok(Received { message, fds, .. }) => match message {
                ToSupervisor::Pong(_) | ToSupervisor::Answer(_) => {}
                ToSupervisor::Lifeline => *lifeline = Lifeline::of(fds),
                message @ (ToSupervisor::Hello(_)
                | ToSupervisor::Plan(_)
                | ToSupervisor::Refused(_)
                | ToSupervisor::Ready(_)
                | ToSupervisor::Active(_)
                | ToSupervisor::Quiesced
                | ToSupervisor::Drained { .. }
                | ToSupervisor::Adopted(_)
                | ToSupervisor::Returned(_)
                | ToSupervisor::Migrated(_)
                | ToSupervisor::Recovered(_)
                | ToSupervisor::Nak(_)) => return Ok((message, fds)),
            },
            Err(RecvError::Refused(Fault::Version(refusal))) => {
                return Err(stranger(end, refusal.to_string()).await);
            }
            Err(RecvError::Refused(fault)) => tracing::warn!(%fault, "adoption"),
            Err(RecvError::Closed) => return Err(Lost::HungUp),
            Err(RecvError::Io(error)) => return Err(error.into()),
        }
    }
}

/// A worker that cannot be talked to lets go of its listeners before it hangs up; until then
/// nobody else can bind them.
async fn stranger(end: &SupervisorEnd, problem: String) -> Lost {
    while !matches!(end.recv().await, Err(RecvError::Closed | RecvError::Io(_))) {}
    Lost::Stranger(problem)
}
