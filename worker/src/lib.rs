//! The routing and relay engine: accepts, classifies, routes, selects, dials and relays.
//!
//! A worker is started by the supervisor, over a control socket, and does everything that has
//! to do with clients. Read [`session`] first: it is the life of one connection. `boot` is the
//! main thread's part, `lifecycle` its decisions, `shard` a relay thread.

// Written for people who read the source: a stage's page may point into its own files.
#![allow(rustdoc::private_intra_doc_links)]

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use baton_config::Problem;
use baton_handoff::message::{Generation, Prepare};
use baton_logging::Log;

pub mod accept;
mod admin;
mod boot;
mod build;
pub mod classify;
pub mod dial;
pub mod flow;
mod generation;
mod inspect;
pub mod keeper;
mod lifecycle;
mod limiter;
pub mod migrate;
mod names;
pub mod net;
mod prewarm;
#[doc(hidden)]
pub mod probe;
mod process;
pub mod relay;
pub mod route;
pub mod select;
mod session;
mod shard;
#[cfg(test)]
mod testkit;
pub mod upstream;

pub use build::Build;

/// Checks a configuration as far as it can be without a socket: what a worker would refuse.
/// `source` is how problems name it.
///
/// # Errors
/// Every problem, in the order of the file.
pub fn check(source: &str, config: &[u8]) -> Result<(), Vec<Problem>> {
    let prepare =
        Prepare { generation: Generation(0), source: source.to_owned(), config: config.to_owned() };
    generation::blueprint::examine(&prepare, None).map(|_| ())
}

/// Runs this process as a worker until its supervisor or a signal ends it.
///
/// `control` is the worker's end of the control pair; `build` is what the program is known by.
/// Logs go to standard output. The code is 0 after an orderly drain; anything else means that
/// the supervisor should look.
#[must_use]
pub fn run(control: OwnedFd, build: Build) -> ExitCode {
    build::set(build);
    let early = boot::Early::start();
    // Serving without a log is better than not serving.
    let log = Log::start().ok();
    baton_logging::log_panics();
    boot::run(control, log.as_ref(), Some(early))
}
