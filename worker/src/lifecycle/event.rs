//! What the machine learns.

use baton_handoff::message::{
    Drain, Generation, ListenerKey, Migrate, Plan, Prepare, Recover, ToSupervisor,
};
use std::collections::BTreeSet;

/// What came in, or what the driver has found out.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// The supervisor's first message.
    Hello,
    /// A configuration to look at; `retired` is the number of generations still draining.
    Prepare {
        /// The message.
        prepare: Prepare,
        /// Generations still draining.
        retired: u32,
    },
    /// The compiler has finished.
    Compiled(Generation, Compiled),
    /// Listening sockets have arrived (the driver keeps the descriptors until `TakeListeners`).
    Listeners {
        /// The generation they are for.
        generation: Generation,
        /// One a descriptor.
        keys: Vec<ListenerKey>,
        /// No more batches follow.
        last: bool,
    },
    /// Serve this generation.
    Activate(Generation),
    /// Forget this generation.
    Abort(Generation),
    /// Stop accepting.
    Quiesce,
    /// End.
    Drain(Drain),
    /// Are you there?
    Ping,
    /// A second has passed.
    Tick,
    /// The control pair was closed by the other side or broke.
    ControlLost,
    /// Somebody called who could adopt an orphan; the channel to it takes the control pair's place.
    Called,
    /// It is a supervisor, and ours from here on.
    Adopt,
    /// It cannot be talked to.
    Stranger(String),
    /// Connections are to go to another worker, or come from it (the driver keeps the socket).
    Migrate(Migrate),
    /// Connections of dead workers are to be carried on (the driver keeps the descriptors).
    Recover(Recover),
    /// Something is to be said about a move or a recovery.
    Report(ToSupervisor),
    /// The last connection has ended (only asked for while retiring).
    Empty,
    /// A generation could not be put in service; what was serving goes on.
    ServiceFailed(Generation, String),
    /// A signal asks the process to end at once.
    Terminate,
    /// Somebody has killed the keeper.
    KeeperLost,
    /// Something only a new process can repair.
    Broken,
}

/// The result of looking at a configuration.
#[derive(Debug, Clone)]
pub(crate) enum Compiled {
    /// It equals the serving one.
    Unchanged(Plan),
    /// It can be served with these sockets.
    Good {
        /// What to ask the supervisor for.
        plan: Plan,
        /// Keys whose sockets the worker already has.
        held: BTreeSet<ListenerKey>,
    },
    /// It is not taken.
    Bad(Vec<String>),
}
