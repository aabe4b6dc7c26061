//! What the tests drive the binary with.

mod address;
mod instance;
mod load;
mod pattern;
mod scratch;
mod upstream;
mod wait;

pub(crate) use address::Loopback;
pub(crate) use instance::{Instance, Outcome, baton};
pub(crate) use load::{Storm, StormReport, Streams};
pub(crate) use pattern::{Pattern, read_pattern, write_pattern};
pub(crate) use scratch::Scratch;
pub(crate) use upstream::Upstream;
pub(crate) use wait::until;
