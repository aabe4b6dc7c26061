//! The words of the control socket. `status` is a stable interface: fields are only added.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Longest request line that is read, in bytes: twice a question, whose quotes are escaped.
pub(crate) const REQUEST_MAX: usize = 512 * 1024;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Read the configuration again and switch to it.
    Reload,
    /// Replace the worker by a new process.
    Upgrade {
        /// The file to start; absent for the installed one.
        binary: Option<PathBuf>,
        /// Also a build that failed repeatedly.
        force: bool,
    },
    /// How things are.
    Status,
    /// A question about routing, for the serving worker.
    Query {
        /// JSON that the supervisor passes on unread.
        text: String,
    },
    /// End after draining.
    Stop,
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Response {
    /// A phase has begun.
    Progress {
        /// The phase's name, as in `status`.
        phase: String,
        /// A sentence for people.
        text: String,
    },
    /// Answer to [`Request::Status`]; nothing follows.
    Status(Box<Status>),
    /// Answer to [`Request::Query`]; nothing follows. A question that could not be asked is
    /// answered with `Done`.
    Answer {
        /// JSON of the worker.
        text: String,
    },
    /// The request is finished; nothing follows.
    Done(Done),
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Whether what was asked for has happened.
    pub ok: bool,
    /// A sentence for people.
    pub message: String,
    /// Everything that was wrong, one line each; empty when `ok`.
    pub problems: Vec<String>,
    /// Milliseconds from the request to this line.
    pub duration_ms: u64,
}

/// The state of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The supervisor itself.
    pub supervisor: SupervisorStatus,
    /// Every worker that has or takes connections.
    pub workers: Vec<WorkerStatus>,
    /// Every listening socket.
    pub listeners: Vec<ListenerStatus>,
    /// What is going on right now.
    pub transition: Option<TransitionStatus>,
    /// What is carried on of workers that died, right now.
    #[serde(default)]
    pub recovery: Option<RecoveryStatus>,
    /// What went on last.
    pub last_transition: Option<LastTransition>,
}

/// [`Status::supervisor`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorStatus {
    /// Process id.
    pub pid: u32,
    /// `major.minor.patch`.
    pub version: String,
    /// How many programs this process has been: 1 at the start, one more after each upgrade.
    #[serde(default = "one")]
    pub images: u64,
    /// Whole seconds since the start.
    pub uptime_seconds: u64,
    /// `starting`, `running`, `degraded` (nothing serves, listeners are held), `crash-loop`
    /// (the same, after repeated failures) or `stopping`.
    pub state: String,
    /// Where the configuration comes from: an absolute path, or `-L`. Empty from a release that
    /// did not say it.
    #[serde(default)]
    pub config: String,
}

/// What a release says that does not say it.
fn one() -> u64 {
    1
}

/// One of [`Status::workers`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its number in this instance's life; 0 from a release that did not say it.
    #[serde(default)]
    pub worker: u32,
    /// Process id.
    pub pid: u32,
    /// `major.minor.patch`.
    pub version: String,
    /// The configuration it serves or served last.
    pub generation: u64,
    /// What it is to us.
    pub role: WorkerRole,
    /// Live client connections, as of its last sign of life.
    pub connections: u64,
}

/// [`WorkerStatus::role`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerRole {
    /// Accepts new connections.
    Serving,
    /// Accepts none; its connections go on. During the watch it may be taken up again.
    Retiring,
}

/// One of [`Status::listeners`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// The rule's name; `metrics` for the admin listener.
    pub rule: String,
    /// `ip:port` as bound.
    pub address: String,
    /// The socket's inode: the same number is the same socket.
    pub inode: u64,
}

/// [`Status::transition`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionStatus {
    /// `start`, `reload`, `upgrade`, `respawn`, `fallback` (a replacement of the build before) or
    /// `stop`.
    pub kind: String,
    /// Where it is.
    pub phase: String,
    /// Milliseconds since it began.
    pub since: u64,
    /// How far connections have moved to the new worker, once they do.
    #[serde(default)]
    pub migration: Option<MigrationStatus>,
}

/// [`TransitionStatus::migration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationStatus {
    /// Connections that are the new worker's.
    pub moved: u64,
    /// Connections that move as soon as they have an upstream.
    pub waiting: u64,
    /// Connections that stay and drain.
    pub kept: u64,
}

/// [`Status::recovery`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryStatus {
    /// The number of the worker that carries on.
    pub worker: u32,
    /// The numbers of those that died, the last one first.
    pub of: Vec<u32>,
    /// Milliseconds since it began.
    pub since: u64,
}

/// [`Status::last_transition`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTransition {
    /// As in [`TransitionStatus::kind`].
    pub kind: String,
    /// `ok`, `unchanged`, `failed` or `reverted`.
    pub result: String,
    /// How long it took.
    pub duration_ms: u64,
    /// Milliseconds since it ended. Absent from a release that did not say it.
    #[serde(default)]
    pub age_ms: Option<u64>,
    /// Everything that was wrong.
    pub problems: Vec<String>,
}
