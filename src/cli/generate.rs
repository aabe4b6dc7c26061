//! `baton generate`: files that are made from the program itself.

use std::process::ExitCode;

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use crate::output::{self, Failure};

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The JSON Schema of the configuration, for editors (name it in "$schema").
    Schema,
    /// The manual page, in roff.
    Man,
    /// Completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

pub(crate) fn run(args: &GenerateArgs, command: &mut Command) -> Result<ExitCode, Failure> {
    let mut bytes = Vec::new();
    match args.what {
        What::Schema => bytes = baton_config::schema().into_bytes(),
        What::Man => clap_mangen::Man::new(command.clone()).render(&mut bytes)?,
        What::Completions { shell } => {
            clap_complete::generate(shell, command, "baton", &mut bytes);
        }
    }
    output::print(&String::from_utf8(bytes)?)?;
    Ok(ExitCode::SUCCESS)
}
