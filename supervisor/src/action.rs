//! What the machine wants done: the driver executes a list of [`Action`]s in order.
//!
//! An action is never waited for by the machine; where it matters how one ended, an event
//! brings the answer.

use std::path::PathBuf;
use std::sync::Arc;

use baton_handoff::message::{
    Dead, Drain, Generation, HelloWorker, ListenerKey, ListenerWanted, ToWorker, WorkerId,
};
use serde::{Deserialize, Serialize};

use crate::event::{BinaryId, ConfigText, RequestId, Ticket};

/// A message to a worker that carries no descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// First message to a fresh process.
    Hello(HelloWorker),
    /// Serve this generation.
    Activate(Generation),
    /// Forget a prepared generation.
    Abort(Generation),
    /// Stop accepting, stay warm.
    Quiesce,
    /// Finish and exit.
    Drain(Drain),
    /// Show a sign of life.
    Ping,
}

impl From<Order> for ToWorker {
    fn from(order: Order) -> Self {
        match order {
            Order::Hello(hello) => Self::Hello(hello),
            Order::Activate(generation) => Self::Activate(generation),
            Order::Abort(generation) => Self::Abort(generation),
            Order::Quiesce => Self::Quiesce,
            Order::Drain(drain) => Self::Drain(drain),
            Order::Ping => Self::Ping,
        }
    }
}

/// Signals sent to a worker's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// What kind of transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The first worker of this supervisor.
    Start,
    /// A new configuration in the same worker.
    Reload,
    /// A new worker.
    Upgrade,
    /// A replacement for a worker that died.
    Respawn,
    /// The same, of the build before: the present one cannot live.
    Fallback,
    /// The end.
    Stop,
}

impl Kind {
    /// The word in status, logs and progress.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reload => "reload",
            Self::Upgrade => "upgrade",
            Self::Respawn => "respawn",
            Self::Fallback => "fallback",
            Self::Stop => "stop",
        }
    }
}

/// How a transition ended; also the `result` label of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The new side serves.
    Success,
    /// The configuration equals the serving one, so nothing was done.
    Unchanged,
    /// Given up before the new side served.
    Failed,
    /// The new side served, did not stand the test, and the old one was called back.
    Reverted,
}

impl Outcome {
    /// The word in status and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Success => "ok",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
            Self::Reverted => "reverted",
        }
    }

    /// Whether the requester got what was asked for.
    pub(crate) fn is_ok(self) -> bool {
        match self {
            Self::Success | Self::Unchanged => true,
            Self::Failed | Self::Reverted => false,
        }
    }
}

/// The result of a transition, for those who asked and for `last_transition`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// What was tried.
    pub(crate) kind: Kind,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// One line, for people.
    pub(crate) summary: String,
    /// Everything that was wrong; empty after a success.
    pub(crate) problems: Vec<String>,
    /// The generation that is accepted now.
    pub(crate) generation: Generation,
    /// From the beginning of the transition (not of the wait for it) to its end.
    pub(crate) duration_ms: u64,
}

/// States told to the service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notify {
    /// `READY=1`.
    Ready,
    /// `RELOADING=1` with `MONOTONIC_USEC`; `Ready` ends it.
    Reloading,
    /// `STOPPING=1`.
    Stopping,
    /// `STATUS=`.
    Status(String),
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Only when looking for a fault.
    Debug,
    /// The course of things.
    Info,
    /// Something did not go as it should and was dealt with.
    Warn,
    /// Service is impaired.
    Error,
}

/// Everything the machine can ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Read the configuration source; answered by `ConfigRead`.
    ReadConfig {
        /// Comes back with the answer.
        ticket: Ticket,
    },
    /// Open an executable once and keep it open; answered by `Opened`.
    OpenBinary {
        /// Comes back with the answer.
        ticket: Ticket,
        /// `None` is the installed path.
        path: Option<PathBuf>,
    },
    /// Run the opened file's self-check; answered by `Checked`.
    SelfCheck {
        /// Comes back with the answer.
        ticket: Ticket,
        /// What to run.
        binary: BinaryId,
    },
    /// The answer is no longer awaited: end the self-check if it still runs.
    CancelCheck {
        /// Whose check.
        ticket: Ticket,
    },
    /// Close an opened executable: it will not be started again.
    ReleaseBinary {
        /// Which one.
        binary: BinaryId,
    },
    /// Become another image of an opened executable, at the first moment at which nothing is lost
    /// by it; answered by `Replaced`, in the image that goes on.
    ReplaceSelf {
        /// What to become.
        binary: BinaryId,
    },
    /// Start a worker from an opened executable; answered by `Spawned` or `SpawnFailed`.
    Spawn {
        /// The number of the new worker.
        worker: WorkerId,
        /// What to run.
        binary: BinaryId,
    },
    /// Send a message without descriptors.
    Send {
        /// To whom.
        worker: WorkerId,
        /// What.
        order: Order,
    },
    /// Offer a configuration.
    Prepare {
        /// To whom.
        worker: WorkerId,
        /// Its number.
        generation: Generation,
        /// The text.
        config: Arc<ConfigText>,
        /// The worker has no metrics region yet: send it along.
        with_region: bool,
    },
    /// Send the sockets of these keys, in batches.
    HandListeners {
        /// To whom.
        worker: WorkerId,
        /// The generation they are for.
        generation: Generation,
        /// Every key of the plan; all of them are open.
        keys: Vec<ListenerKey>,
    },
    /// Send a signal to the worker's process.
    Signal {
        /// To whom.
        worker: WorkerId,
        /// Which.
        force: Force,
    },
    /// Bind (or adopt) all of these, or none; answered by `Bound`. None of them is open yet.
    Bind {
        /// Comes back with the answer.
        ticket: Ticket,
        /// What to bind.
        wanted: Vec<ListenerWanted>,
    },
    /// Close (never `shutdown`) the supervisor's own descriptor of these sockets, of
    /// those among them that are open.
    CloseListeners {
        /// Which.
        keys: Vec<ListenerKey>,
    },
    /// These sockets now belong to these rules: take over the names and roles.
    NameListeners {
        /// The accepted plan.
        plan: Vec<ListenerWanted>,
    },
    /// The worker's process is gone: fold its metrics lane, drop its channel.
    Forget {
        /// Which.
        worker: WorkerId,
        /// Its lifeline is kept: its connections are to be carried on.
        remains: bool,
    },
    /// Have the connections of one worker move to another; answered by `NotMigrating` if they
    /// cannot be told.
    Migrate {
        /// Whose connections.
        from: WorkerId,
        /// Whose they will be.
        to: WorkerId,
        /// Milliseconds it may take.
        timeout_ms: u64,
    },
    /// Have a worker carry on what dead ones left. The lifeline of each was kept.
    Recover {
        /// Who.
        worker: WorkerId,
        /// What, the one that died last first.
        dead: Vec<Dead>,
    },
    /// Close the kept lifeline of a dead worker: nobody is to carry on what it left any more.
    LetGo {
        /// Whose.
        worker: WorkerId,
    },
    /// A transition went on a phase.
    Progress {
        /// Who waits for it; may be nobody.
        to: Vec<RequestId>,
        /// Of what.
        kind: Kind,
        /// The phase's name.
        phase: &'static str,
        /// What is being done, for people.
        text: String,
    },
    /// The final answer to one requester.
    Reply {
        /// To whom.
        to: RequestId,
        /// What came of it.
        report: Report,
    },
    /// Tell the service manager.
    Notify(Notify),
    /// Count a started replacement of a dead worker.
    CountRestart,
    /// Count a finished reload.
    CountReload(Outcome),
    /// Count a finished upgrade.
    CountUpgrade(Outcome),
    /// Set the time of the last accepted configuration to now.
    StampReload,
    /// Write a log line.
    Log {
        /// How much it matters.
        severity: Severity,
        /// The line.
        text: String,
    },
    /// End the process; no worker is left. The last action ever.
    Exit {
        /// 0 after a stop, 1 after a failed start.
        code: u8,
        /// What to tell before.
        problems: Vec<String>,
    },
}
