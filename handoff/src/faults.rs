//! Faults on purpose: a named point of a transition at which a chosen process dies, stands still
//! or runs out of something.
//!
//! Exists with the feature `faults` alone, which only the tests of the whole program switch on.
//! Without it every function here is empty and nothing reads the environment.
//!
//! ```text
//! BATON_FAULT=<process>@<point>:<action>[:<nth time>][,…]
//!             w2@Offer.sent:kill     the second worker, after its first offer has gone out
//!             s@Plan.heard:stop:2    the supervisor, when it hears the second plan
//! ```
//! Processes: `s` a supervisor in any image of it, `s2` in its second one, `w3` worker 3, `w` any
//! worker. Every message has the points `<Name>.due`, `<Name>.sent` and `<Name>.heard` (those
//! between workers `peer.<Name>.…`); the others are where `point` is called.
//!
//! Actions: `kill`, `stop` (SIGSTOP: goes on with SIGCONT), `exit`, `abort`, `hang` (the thread
//! alone), `starve` (no descriptor is free any more), `feed` (as many as before), `lie` (at `.due`
//! points: the header names one descriptor too many).
//!
//! A program whose file is called `….speaks-2-3` speaks protocols 2 to 3.

#[cfg(feature = "faults")]
mod armed;

use crate::frame::Kind;
use crate::version::VersionRange;

/// Which process this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The supervisor's so many-th image.
    Supervisor(u32),
    /// The worker of this number.
    Worker(u32),
}

/// What a message goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is about to be sent.
    Due,
    /// The other side can take it.
    Sent,
    /// It was taken and is good.
    Heard,
}

/// Tells which process this is; nothing happens before it is told.
#[cfg(feature = "faults")]
pub fn i_am(who: Who) {
    armed::i_am(who);
}

/// Tells which process this is.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn i_am(_who: Who) {}

/// A place where this process may be made to fail.
#[cfg(feature = "faults")]
pub fn point(name: &str) {
    armed::reach(name);
}

/// A place where this process may be made to fail.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// The same for a message; how many descriptors too many its header is to name.
#[cfg(feature = "faults")]
pub(crate) fn message(kind: Kind, stage: Stage) -> usize {
    armed::message(kind, stage)
}

#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn message(_kind: Kind, _stage: Stage) -> usize {
    0
}

/// What this process speaks instead of what it really does.
#[cfg(feature = "faults")]
pub(crate) fn spoken() -> Option<VersionRange> {
    armed::spoken()
}

#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn spoken() -> Option<VersionRange> {
    None
}
