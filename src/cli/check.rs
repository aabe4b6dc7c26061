//! `baton check`: every problem of a configuration, or one line that it is good.
//!
//! The worker's own compile step runs too, so that a pattern that does not compile is found here
//! and not at the reload.

use std::process::ExitCode;

use clap::Args;

use super::run::{self, Checked, RunArgs};
use crate::output::{self, Failure};

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    source: RunArgs,
    /// Print the configuration as understood, with every default, as JSON.
    #[arg(long)]
    print: bool,
}

impl CheckArgs {
    /// The form without options of its own (`--check-config`).
    pub(super) fn of(source: RunArgs) -> Self {
        Self { source, print: false }
    }
}

pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let Checked { name, text, config } = run::load(&args.source)?;
    baton_worker::check(&name, &text).map_err(Failure::Problems)?;
    if args.print {
        output::print(&baton_config::print::to_json(&config))?;
    } else {
        let rules = config.rules.len();
        let noun = if rules == 1 { "rule" } else { "rules" };
        output::print(&format!("config ok: {name} ({rules} {noun})\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
