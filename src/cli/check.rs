//! `baton check`: every problem of a configuration, or one line that it is good.
//!
//! The worker's own compile step runs too, so that a pattern that does not compile is found here
//! and not at the reload.

use std::process::ExitCode;

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
    let checked = run::load(&args.source).and_then(|checked| {
        baton_worker::check(&checked.name, &checked.text).map_err(Failure::Problems)?;
        Ok(checked)
    });
    match checked {
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
