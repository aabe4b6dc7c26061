//! `baton reload`, `upgrade` and `stop`: ask the supervisor, show each phase, wait for the end.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use baton_supervisor::control::client::{ClientError, Conversation};
use baton_supervisor::control::protocol::{Done, Request, Response};
use clap::Args;

use super::InstanceArgs;
use crate::instance;
use crate::output::{self, FAILED, Failure};

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0 only after the new configuration serves; 1 when it was refused,
with every problem: then nothing has changed."
)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    instance: InstanceArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The new process is checked, started and watched; until the watch is over the old
one stays ready to take over again. Exit code 0 only after that.

Examples:
  baton upgrade                                  (the installed binary was replaced)
  baton upgrade --binary /opt/baton/1.2/baton"
)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    instance: InstanceArgs,
    /// Start this file instead of the installed one.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Also a build that failed three times.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Connections get `supervisor.drainTimeout` to end; a second `baton stop` cuts them."
)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    instance: InstanceArgs,
}

pub(crate) fn reload(args: &ReloadArgs) -> Result<ExitCode, Failure> {
    follow(&args.instance, &Request::Reload)
}

pub(crate) fn upgrade(args: UpgradeArgs) -> Result<ExitCode, Failure> {
    let binary = args.binary.map(std::path::absolute).transpose()?;
    follow(&args.instance, &Request::Upgrade { binary, force: args.force })
}

pub(crate) fn stop(args: &StopArgs) -> Result<ExitCode, Failure> {
    follow(&args.instance, &Request::Stop)
}

/// Sends a request to the instance that `args` name.
pub(super) fn ask(args: &InstanceArgs, request: &Request) -> Result<Conversation, Failure> {
    Conversation::start(&instance::runtime_dir(args)?, request).map_err(failure)
}

/// Tells a missing instance (exit code 3) from every other failure.
pub(super) fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::NoInstance(_) => Failure::NoInstance(error.to_string()),
        ClientError::Io { .. } | ClientError::Ended(_) | ClientError::Answer { .. } => error.into(),
    }
}

fn follow(args: &InstanceArgs, request: &Request) -> Result<ExitCode, Failure> {
    let mut conversation = ask(args, request)?;
    let mut progress = Progress::new(args.json);
    loop {
        let response = match conversation.next_response() {
            Ok(response) => response,
            Err(ClientError::Ended(_)) if *request == Request::Stop => return progress.stopped(),
            Err(error) => return Err(failure(error)),
        };
        if args.json {
            output::print(&format!("{}\n", serde_json::to_string(&response)?))?;
        }
        match response {
            Response::Progress { phase, text } => progress.show(&phase, &text)?,
            Response::Done(done) => return progress.finish(done),
            Response::Status(_) | Response::Answer { .. } => {
                return Err(anyhow::anyhow!("the instance answered with something else").into());
            }
        }
    }
}

/// Phases on standard output: one line that is written over on a terminal, else a line each.
struct Progress {
    json: bool,
    overwrite: bool,
}

impl Progress {
    fn new(json: bool) -> Self {
        Self { json, overwrite: std::io::stdout().is_terminal() }
    }

    fn show(&mut self, phase: &str, text: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        if self.overwrite {
            return output::print(&format!("\r\x1b[K{phase}: {text}"));
        }
        output::print(&format!("{phase}: {text}\n"))
    }

    fn clear(&self) -> Result<(), Failure> {
        if self.overwrite && !self.json { output::print("\r\x1b[K") } else { Ok(()) }
    }

    fn stopped(&self) -> Result<ExitCode, Failure> {
        self.clear()?;
        if !self.json {
            output::print("stopped\n")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn finish(&self, done: Done) -> Result<ExitCode, Failure> {
        self.clear()?;
        if done.ok {
            if !self.json {
                output::print(&format!("{} ({} ms)\n", done.message, done.duration_ms))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        std::io::stdout().flush()?;
        if self.json {
            return Ok(ExitCode::from(FAILED));
        }
        let mut lines = vec![format!("baton: {}", done.message)];
        lines.extend(done.problems);
        Err(Failure::Problems(lines))
    }
}
