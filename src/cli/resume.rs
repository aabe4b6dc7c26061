//! `baton resume`: the next image of a supervisor that replaces itself. Started by the former
//! image in the same process, never by hand.

use std::os::fd::RawFd;
use std::process::ExitCode;

use baton_logging::Log;
use baton_supervisor::Resume;
use clap::Args;

use crate::instance;
use crate::output::{self, Failure};

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Descriptor of the former image's memory.
    #[arg(long, value_name = "N", required_unless_present = "rehearse")]
    state_fd: Option<RawFd>,
    /// Descriptor of the former image's executable.
    #[arg(long, value_name = "N")]
    back_fd: Option<RawFd>,
    /// Why the image in between did not take over.
    #[arg(long, value_name = "REASON")]
    failed: Option<String>,
    /// Only say whether it could be done; the memory is on standard input.
    #[arg(long, conflicts_with_all = ["state_fd", "back_fd", "failed"])]
    rehearse: bool,
}

pub(crate) fn run(args: ResumeArgs) -> Result<ExitCode, Failure> {
    let version = env!("CARGO_PKG_VERSION").into();
    let ResumeArgs { state_fd, back_fd, failed, rehearse: _ } = args;
    let Some(state_fd) = state_fd else { return rehearse(version) };
    // Taking over without a log is better than not taking over. The former image has held
    // signals back, so the log's threads never take one.
    let log = Log::start().ok();
    let call = Resume { state_fd, back_fd, failed, version };
    baton_supervisor::resume(call, |level| {
        if let Some(log) = &log {
            log.set_level(level);
        }
    })
    .map_err(|error| Failure::Problems(instance::lines(&error)))
}

/// The supervisor that asks reads the reason on standard output.
fn rehearse(version: String) -> Result<ExitCode, Failure> {
    match baton_supervisor::rehearse(version) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            output::print(&format!("{}\n", instance::lines(&error).join("; ")))?;
            Ok(ExitCode::FAILURE)
        }
    }
}
