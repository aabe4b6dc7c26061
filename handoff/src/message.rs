//! What supervisor and worker say to each other: one enum per direction.
//!
//! A conversation, for a fresh worker (an upgrade or a respawn) and for a reload alike:
//!
//! ```text
//! supervisor                          worker
//!   Hello              ───────────▶     (fresh worker only)
//!                      ◀───────────   Hello
//!   Prepare + region   ───────────▶     reads and checks the whole configuration
//!                      ◀───────────   Plan | Refused
//!   Listeners + FDs …  ───────────▶     (batches of at most 200; the last says so)
//!                      ◀───────────   Ready | Refused
//!   Activate           ───────────▶     switches atomically, starts to accept
//!                      ◀───────────   Active
//! ```
//!
//! and for the side that gives way: `Quiesce → Quiesced`, then `Migrate → Migrated …`, then
//! `Drain → Drained` (or `Activate` once more, which takes the same generation up again: that is
//! a revert). A worker that can be recovered sends its `Lifeline` before its first `Ready`; should
//! it die, whoever serves next is told to `Recover → Recovered`.

use crate::codec::{Decode, Encode};

/// Longest text of a [`Query`], in bytes: a whole ClientHello in hexadecimal and room beside it.
pub const QUERY_MAX: usize = 256 * 1024;
/// Longest text of an [`Answer`], in bytes: 256 rules of 128 targets.
pub const ANSWER_MAX: usize = 16 * 1024 * 1024;

mod adopted;
mod living;
mod peer;
#[cfg(test)]
pub(crate) mod samples;
mod wire;
pub use adopted::{Adopted, Returned, Standing};
pub use living::{Dead, MAX_DEAD, Migrate, Migrated, Recover, Recovered, Side};
pub use peer::{
    HelloPeer, MAX_INLINE_BYTES, MAX_OFFERED, NOWHERE, Offer, OfferAnswer, Offered, Peer,
};
pub(crate) use wire::{Message, name, since};

/// One configuration's number: 1 is the first, each accepted reload or upgrade adds one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Generation(pub u64);

/// A worker's number within one supervisor's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct WorkerId(pub u32);

/// The literal `listen` text of a rule (or of the admin section): what a listener is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct ListenerKey(pub String);

/// What a listening socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum ListenerRole {
    /// Clients of a rule.
    Rule,
    /// The admin HTTP server.
    Admin,
}

/// A listening socket the worker's configuration asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerWanted {
    /// Its identity across reloads.
    pub key: ListenerKey,
    /// What it is for.
    pub role: ListenerRole,
    /// The rule's name, for errors and status; `metrics` for the admin listener.
    pub rule: String,
    /// Where to bind. The unspecified IPv6 address with `dual_stack` takes IPv4 too. An IPv6
    /// scope travels, a flow label does not (it has no meaning for a listener).
    pub address: std::net::SocketAddr,
    /// Clear `IPV6_V6ONLY`; where IPv6 is missing, bind the IPv4 wildcard instead.
    pub dual_stack: bool,
}

/// From the supervisor to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToWorker {
    /// First message to a fresh process.
    Hello(HelloWorker),
    /// Here is a configuration: say what it needs. Carries the region's descriptor when fresh.
    Prepare(Prepare),
    /// The sockets asked for; carries one descriptor an entry.
    Listeners(Listeners),
    /// Serve this generation from now on.
    Activate(Generation),
    /// Forget a prepared generation.
    Abort(Generation),
    /// Stop accepting; keep everything else, be ready to be activated again.
    Quiesce,
    /// End: let connections finish, cut what is left when the time is over, then exit.
    Drain(Drain),
    /// Alive? Answered with `Pong`.
    Ping,
    /// A question of an operator about routing, opaque to the supervisor; answered with `Answer`.
    Query(Query),
    /// Keep this socket: should we die, our successor calls there. Carries it.
    AdoptionSocket,
    /// To a worker whose supervisor died, after the greeting: we are its supervisor from here on.
    /// Answered with `Adopted` and `Returned`.
    Adopt,
    /// Move the live connections to another worker, or take them from it. Carries one end of the
    /// channel between the two. Since protocol 2.
    Migrate(Migrate),
    /// These workers are dead: carry on what they left. Carries the lifeline of each: its table
    /// and its keeper's socket. Answered with `Recovered`. Since protocol 2.
    Recover(Recover),
    /// A mandatory message of the worker was not taken.
    Nak(Nak),
}

/// From a worker to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToSupervisor {
    /// First message of a fresh process.
    Hello(HelloSupervisor),
    /// The configuration is good and needs these sockets.
    Plan(Plan),
    /// The configuration is not taken; nothing has changed.
    Refused(Refused),
    /// Everything is compiled and held: can be activated at once.
    Ready(Generation),
    /// The generation serves.
    Active(Generation),
    /// No listener is polled any more.
    Quiesced,
    /// Every connection has ended or was cut; the process exits now.
    Drained {
        /// Connections that were cut by the time limit.
        cut: u64,
    },
    /// Answer to `Ping`, also sent unasked once a second.
    Pong(Pulse),
    /// Answer to `Query`.
    Answer(Answer),
    /// Answer to `Adopt`: how things are.
    Adopted(Adopted),
    /// Goes on with the answer to `Adopt`: the listening sockets; carries one descriptor an entry.
    Returned(Returned),
    /// Should this worker die, its connections can be carried on with these: carries its
    /// connection table and the far end of its keeper's socket. Replaces what was sent before.
    /// Since protocol 2.
    Lifeline,
    /// How the moving to another worker goes on: sent by the one that gives, now and then and at
    /// the end. Since protocol 2.
    Migrated(Migrated),
    /// Answer to `Recover`: what came of it. The lifelines are of no more use. Since protocol 2.
    Recovered(Recovered),
    /// A mandatory message of the supervisor was not taken.
    Nak(Nak),
}

/// Body of [`ToWorker::Hello`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelloWorker {
    /// The number given to the process.
    pub worker: WorkerId,
    /// The supervisor's version, for logs.
    pub version: String,
}

/// Body of [`ToWorker::Prepare`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepare {
    /// The number the configuration will have.
    pub generation: Generation,
    /// How problems name the source: a path, or `-L`.
    pub source: String,
    /// The JSON text, opaque to the supervisor.
    pub config: Vec<u8>,
}

/// Body of [`ToWorker::Listeners`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    /// The generation they are for.
    pub generation: Generation,
    /// One a descriptor, in the same order.
    pub keys: Vec<ListenerKey>,
    /// No more batches follow.
    pub last: bool,
}

/// Body of [`ToWorker::Drain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// Milliseconds until what is left is cut; 0 cuts at once.
    pub timeout_ms: u64,
}

/// Body of [`ToSupervisor::Hello`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelloSupervisor {
    /// `major.minor.patch`.
    pub version: String,
    /// The worker's process id as it sees it.
    pub pid: u32,
}

/// Body of [`ToSupervisor::Plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The generation it is for.
    pub generation: Generation,
    /// Every socket the configuration needs, kept and new alike; keys unique.
    pub listeners: Vec<ListenerWanted>,
    /// The configuration equals the serving one: there is nothing to do.
    pub unchanged: bool,
}

/// Body of [`ToSupervisor::Refused`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The generation it is for.
    pub generation: Generation,
    /// Every problem, one line each, ready to be shown.
    pub problems: Vec<String>,
}

/// A worker's sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// The generation that serves (or served last).
    pub generation: Generation,
    /// Live client connections, all generations.
    pub connections: u64,
    /// Generations that still have connections but serve no new one.
    pub retired_generations: u32,
}

/// Body of [`ToWorker::Query`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Names the answer.
    pub id: u64,
    /// JSON between the command line and the worker, at most [`QUERY_MAX`] bytes.
    pub text: String,
}

/// Body of [`ToSupervisor::Answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The query's.
    pub id: u64,
    /// JSON between the worker and the command line, at most [`ANSWER_MAX`] bytes.
    pub text: String,
}

/// "I did not take that message": its type or a field of it is unknown here, its body is
/// malformed, or its descriptors did not arrive. Sent by the channel itself, under the refused
/// message's transaction; only for mandatory messages, and never in answer to another `Nak`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nak {
    /// The type number that was not taken.
    pub kind: u16,
    /// Why, for people.
    pub reason: String,
}
