//! About connections that outlive the worker they came to: moved on purpose, or left by a death.

use super::{Decode, Encode, WorkerId};

/// Most dead workers in one [`Recover`]. More have never left anything: each of them but the
/// first died while it carried on what the others had left.
pub const MAX_DEAD: usize = 8;

/// Which way connections go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Side {
    /// To the other worker.
    Give,
    /// From the other worker.
    Take,
}

/// Body of [`ToWorker::Migrate`](super::ToWorker::Migrate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrate {
    /// What the receiver does.
    pub side: Side,
    /// The other worker: a `Recover` that names it says that it is dead.
    pub other: WorkerId,
    /// Milliseconds until the giver stops to offer; what it still has then, it keeps.
    pub timeout_ms: u64,
}

/// A worker whose death was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Dead {
    /// Its number.
    pub worker: WorkerId,
    /// Milliseconds since its death.
    pub since_ms: u64,
}

/// Body of [`ToWorker::Recover`](super::ToWorker::Recover).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recover {
    /// At least one and at most [`MAX_DEAD`], the one that died last first: it may have died
    /// while it carried on what the others had left.
    pub dead: Vec<Dead>,
}

/// Body of [`ToSupervisor::Migrated`](super::ToSupervisor::Migrated).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Migrated {
    /// Connections that are the other's now.
    pub moved: u64,
    /// Connections that have no upstream yet and move as soon as they have one.
    pub waiting: u64,
    /// Connections that could not move and stay: given back by the other, or broken off.
    pub kept: u64,
    /// The longest time that a connection stood still, in microseconds.
    pub longest_pause_us: u64,
    /// There is nothing more to come: all have moved, the time is over or the channel failed.
    pub over: bool,
}

/// Body of [`ToSupervisor::Recovered`](super::ToSupervisor::Recovered).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Connections that go on.
    pub resumed: u64,
    /// Connections that were given up and reset.
    pub lost: u64,
    /// Sources that could not be dealt with to their end.
    pub failures: u32,
}
