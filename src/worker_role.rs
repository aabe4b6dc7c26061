//! The worker's role: gives up what it was started with, then runs the engine.

use std::process::ExitCode;

use baton_supervisor::privilege::Identity;
use baton_supervisor::program::SelfCheck;
use baton_worker::Build;
use clap::Args;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use crate::output::{self, Failure};

/// The same as `--version` says.
const BUILD: Build = Build { version: env!("CARGO_PKG_VERSION"), commit: env!("BATON_COMMIT") };

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Become this user and group first.
    #[arg(long, value_name = "UID:GID")]
    identity: Option<Identity>,
}

pub(crate) fn run(args: &WorkerArgs) -> ExitCode {
    if let Some(identity) = args.identity
        && let Err(error) = become_user(identity)
    {
        return output::report(&anyhow::anyhow!("cannot become {identity}: {error}").into());
    }
    // The kernel took the name from the descriptor the program was run through.
    if let Err(error) = nix::sys::prctl::set_name(c"baton-worker") {
        return output::report(&anyhow::anyhow!("cannot set the process name: {error}").into());
    }
    if let Err(error) = nix::sys::prctl::set_no_new_privs() {
        return output::report(&anyhow::anyhow!("cannot set no_new_privs: {error}").into());
    }
    match baton_handoff::inherit::control_socket() {
        Ok(control) => baton_worker::run(control, BUILD),
        Err(error) => output::report(
            &anyhow::anyhow!("baton worker is started by the supervisor, not by hand: {error}")
                .into(),
        ),
    }
}

/// From root to nobody special; the kernel clears every capability with the last call.
fn become_user(identity: Identity) -> nix::Result<()> {
    setgroups(&[])?;
    setgid(Gid::from_raw(identity.gid))?;
    setuid(Uid::from_raw(identity.uid))
}

/// Answers a supervisor that looks at this binary before it starts it.
pub(crate) fn introduce() -> Result<ExitCode, Failure> {
    let check = SelfCheck::of_this_program(env!("CARGO_PKG_VERSION"));
    output::print(&format!("{}\n", serde_json::to_string(&check)?))?;
    Ok(ExitCode::SUCCESS)
}
