//! What the tests drive the binary with.

mod address;
mod client;
mod delaynet;
mod echo;
mod hello;
mod instance;
mod load;
mod pattern;
mod program;
mod scratch;
mod slow_lines;
mod upstream;
mod wait;

pub(crate) use address::Loopback;
pub(crate) use client::{converse, deliver, hear};
pub(crate) use delaynet::DelayNet;
pub(crate) use echo::{Echo, Parked, copy_program, faulty};
pub(crate) use hello::{Hello, records};
pub(crate) use instance::{Instance, Outcome, baton};
pub(crate) use load::{Storm, StormReport, Streams};
pub(crate) use pattern::{Pattern, read_pattern, write_pattern};
pub(crate) use program::{Program, certificate, find, missing};
pub(crate) use scratch::Scratch;
pub(crate) use slow_lines::SlowLines;
pub(crate) use upstream::Upstream;
pub(crate) use wait::{PATIENCE, until};
