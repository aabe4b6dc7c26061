//! What a worker whose supervisor died tells the one that adopts it.
//!
//! ```text
//! supervisor                           worker
//!   Hello              ───────────▶
//!                      ◀───────────   Hello
//!   Adopt              ───────────▶
//!                      ◀───────────   Adopted, then Returned + FDs … (the last says so)
//! ```

use super::{Decode, Encode, Generation, ListenerWanted};

/// What the worker is to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Standing {
    /// It accepts.
    Serving,
    /// It has stopped accepting and could be called back.
    Standby,
    /// It lets its connections end, whatever is said.
    Retiring,
}

/// Body of [`ToSupervisor::Adopted`](super::ToSupervisor::Adopted).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// What it is to its clients.
    pub standing: Standing,
    /// What it serves or served last.
    pub generation: Generation,
    /// How problems name the configuration's source.
    pub source: String,
    /// The configuration as it was offered.
    pub config: Vec<u8>,
}

/// Body of [`ToSupervisor::Returned`](super::ToSupervisor::Returned).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// One a descriptor, in the same order.
    pub listeners: Vec<ListenerWanted>,
    /// No more batches follow.
    pub last: bool,
}
