//! What can happen to the machine: everything it learns of the world arrives as an [`Event`].
//!
//! Answers to the machine's own actions carry the [`Ticket`] of the transition that asked, so
//! that one arriving after its transition was given up is recognised and dropped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use baton_handoff::message::{ToSupervisor, WorkerId};
use baton_handoff::version::Version;
use serde::{Deserialize, Serialize};

use crate::program::BuildId;
use crate::state::Adoption;

/// Milliseconds of a clock that never goes back; the origin does not matter.
///
/// A number of its own rather than [`std::time::Instant`], so that tests can choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Millis(pub(crate) u64);

impl Millis {
    /// The moment `wait` later; stays at the end of time rather than wrap.
    pub(crate) fn after(self, wait: Duration) -> Self {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(wait))
    }

    /// How long ago `earlier` was; zero if it is still to come.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// One transition's number, unique within a supervisor's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Ticket(pub(crate) u64);

/// Who asked through the control socket and waits for the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct RequestId(pub(crate) u64);

/// An executable file the driver holds open, so that what was checked is what is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct BinaryId(pub(crate) u32);

/// An opened executable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binary {
    /// The driver's handle on the open file.
    pub(crate) id: BinaryId,
    /// Which build it is.
    pub(crate) build: BuildId,
    /// The path it was opened by, for messages only.
    pub(crate) path: PathBuf,
}

/// A configuration as it was read: opaque to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigText {
    /// How problems name the source: a path, or `-L`.
    pub(crate) name: String,
    /// The JSON text.
    pub(crate) text: Vec<u8>,
}

/// What somebody wants done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// Offer the configuration, read anew, to the serving worker.
    Reload,
    /// Replace the worker by one of another build (or of the same).
    Upgrade {
        /// The new executable; `None` is the installed path.
        binary: Option<PathBuf>,
        /// Try a quarantined build nevertheless.
        force: bool,
    },
    /// Let connections finish within the drain time and end.
    Stop,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exit {
    /// For people: `exit status: 1`, `signal: 9 (SIGKILL)`.
    pub(crate) how: String,
    /// It ended by itself and without a failure, so it has left nothing.
    pub(crate) orderly: bool,
}

/// The signals the supervisor acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGHUP: reload.
    Hangup,
    /// SIGUSR2: upgrade to what is installed.
    User2,
    /// SIGTERM or SIGINT: stop; once more: cut what is left.
    Terminate,
}

/// Everything that can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The process is up: begin. Sent once, first.
    Start,
    /// Instead of `Start`: workers of a supervisor that died are there.
    Adopted(Adoption),
    /// A control client asks and waits for the reply.
    Requested {
        /// Where progress and the reply go.
        id: RequestId,
        /// What is asked.
        request: Request,
    },
    /// A signal arrived.
    Signal(Signal),
    /// Answer to `Action::ReadConfig`.
    ConfigRead {
        /// Who asked.
        ticket: Ticket,
        /// The text, or why it could not be read.
        result: Result<Arc<ConfigText>, String>,
    },
    /// Answer to `Action::OpenBinary`.
    Opened {
        /// Who asked.
        ticket: Ticket,
        /// The open file, or why it could not be opened.
        result: Result<Binary, String>,
    },
    /// Answer to `Action::SelfCheck`.
    Checked {
        /// Who asked.
        ticket: Ticket,
        /// The version the binary reports, or what is wrong with it.
        result: Result<String, String>,
    },
    /// Answer to `Action::ReplaceSelf`: the new image is there, or why it is not.
    Replaced {
        /// Done, or the old image goes on, and why.
        result: Result<(), String>,
    },
    /// Answer to `Action::Spawn`.
    Spawned {
        /// The number given in the action.
        worker: WorkerId,
        /// Its process id.
        pid: u32,
    },
    /// The other answer to `Action::Spawn`: no process exists.
    SpawnFailed {
        /// The number given in the action.
        worker: WorkerId,
        /// The system's reason.
        problem: String,
    },
    /// Answer to `Action::Bind`: every socket, or none.
    Bound {
        /// Who asked.
        ticket: Ticket,
        /// Done, or every problem.
        result: Result<(), Vec<String>>,
    },
    /// The greeting has come: both sides settled on a protocol. Before the message itself.
    Agreed {
        /// With whom.
        worker: WorkerId,
        /// On which.
        protocol: Version,
    },
    /// Answer to `Action::Migrate`: nobody was told, because there is no channel for it.
    NotMigrating {
        /// What the system said.
        problem: String,
    },
    /// A well-formed message of a worker; whether it makes sense is for the machine to say.
    Message {
        /// Whose channel it came by.
        worker: WorkerId,
        /// What it says.
        message: ToSupervisor,
    },
    /// A worker's channel reached its end; the process usually follows.
    Closed {
        /// Whose channel.
        worker: WorkerId,
    },
    /// A worker's channel carries nonsense, floods, or cannot be written.
    Broken {
        /// Whose channel.
        worker: WorkerId,
        /// What is wrong.
        problem: String,
    },
    /// A worker's process has ended and was reaped. Last event of any worker.
    Exited {
        /// Which one.
        worker: WorkerId,
        /// How.
        exit: Exit,
    },
    /// The time of `State::next_deadline` has come.
    Tick,
}
