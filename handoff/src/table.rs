//! The connection table: what a worker's successor must know to carry its connections on.
//!
//! One memfd a worker, made of fixed records, one a relayed connection. The worker writes it
//! while it relays; the supervisor holds the descriptor and never looks inside; after the
//! worker's death (or when connections are moved) a successor reads it. Why not messages: a
//! killed process sends none. Why not one shared file for all workers: a damaged writer must not
//! reach the records of a healthy one.
//!
//! Writing ([`Table`], [`Lane`], [`Slot`]): each thread owns a range of records and hands them
//! out by itself, so nothing is locked, and every update while relaying is one store. Reading
//! ([`Remains`]): only `pread`, so that no writer can make a reader fault; every value is checked
//! and what fails a check is a [`Damage`], never a panic.
//!
//! # What survives what
//! A store made before the writer is killed is seen by a later reader: the memory is shared and
//! the kernel sits between the two. So order *within* a thread is all that matters, and
//! [`Slot::busy`] with [`Busy::Memory`] before a read into user memory is enough to know, for
//! sure, that a connection has bytes nobody can get back.
//!
//! # Limits
//! 192 bytes a connection. The file is sparse and sealed against growing and shrinking; pages
//! are touched when records are first used and stay.
//!
//! # Changing it
//! A successor may be of another release. Records may grow at their end (a reader takes any size
//! from its own up); anything else is a new version of the layout.

mod layout;
mod memory;
mod record;
mod remains;
mod writer;

pub use layout::{MAX_RECORDS, RECORD_SIZE};
pub use record::{
    Busy, Damage, Endpoint, Identity, PipeNumbers, Record, RuleKey, State, TargetKey, Track, Way,
};
pub use remains::{Entry, Remains, TableError};
pub use writer::{Lane, Slot, Table};

#[cfg(test)]
mod tests;
