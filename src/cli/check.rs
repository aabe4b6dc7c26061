//! `baton check`: every problem of a configuration, or one line that it is good.
//!
//! The worker's own compile step runs too, also on what can be read of a file that is wrong, so that a pattern that does not compile is found here
//! and not at the reload.

use std::process::ExitCode;

use baton_config::Problem;
use baton_supervisor::privilege::Identity;
use clap::Args;
use serde_json::json;

use super::run::{self, Checked, RunArgs};
use crate::output::{self, FAILED, Failure};

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0 and one line when it is good; 1 and every problem when it is not."
)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    source: RunArgs,
    /// Print the configuration as understood, with every default, as JSON.
    #[arg(long)]
    print: bool,
    /// The verdict as one JSON object on standard output.
    #[arg(long, conflicts_with = "print")]
    json: bool,
}

impl CheckArgs {
    /// The form without options of its own (`--check-config`).
    pub(super) fn of(source: RunArgs) -> Self {
        Self { source, print: false, json: false }
    }
}

pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    match checked(&args.source) {
        Err(Failure::Problems(problems)) if args.json => {
            output::print(&format!("{}\n", json!({ "ok": false, "problems": problems })))?;
            Ok(ExitCode::from(FAILED))
        }
        Err(failure) => Err(failure),
        Ok(checked) => {
            output::print(&verdict(args, &checked))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Everything that would keep an instance from starting or reloading with it, but for what only
/// the attempt can tell (an address in use, say).
fn checked(args: &RunArgs) -> Result<Checked, Failure> {
    let (name, text) = run::source(args)?;
    let mut problems = baton_worker::check(&name, &text).err().unwrap_or_default();
    problems.extend(unknown_user(&name, &text));
    problems.sort_by_key(Problem::place);
    if problems.is_empty() {
        return run::load(args);
    }
    Err(Failure::Problems(problems.iter().map(ToString::to_string).collect()))
}

/// A user whom only root could become is looked up only as root: others check for a service.
fn unknown_user(name: &str, text: &[u8]) -> Option<Problem> {
    // What is wrong with the section itself has been told.
    let user = baton_config::process::read(name, text).ok()?.user?;
    if !nix::unistd::Uid::effective().is_root() {
        return None;
    }
    let error = Identity::resolve(&user).err()?;
    let positions = baton_config::written(name, text)?.positions;
    Some(positions.problem("$.supervisor.user", error.to_string()))
}

fn verdict(args: &CheckArgs, Checked { name, config, .. }: &Checked) -> String {
    let rules = config.rules.len();
    if args.print {
        return baton_config::print::to_json(config);
    }
    if args.json {
        return format!("{}\n", json!({ "ok": true, "source": name, "rules": rules }));
    }
    let noun = if rules == 1 { "rule" } else { "rules" };
    format!("config ok: {name} ({rules} {noun})\n")
}
