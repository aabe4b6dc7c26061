//! `baton generate`: files that are made from the program itself.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::StyledStr;
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::output::{self, Failure};

const NAME: &str = "baton";

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
    Man {
        /// Write a page for each subcommand into this directory instead.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

pub(crate) fn run(args: &GenerateArgs, command: &Command) -> Result<ExitCode, Failure> {
    let mut command = visible(command);
    command.build();
    let mut bytes = Vec::new();
    match &args.what {
        What::Schema => bytes = baton_config::schema().into_bytes(),
        What::Man { dir: Some(dir) } => {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            clap_mangen::generate_to(command, dir)
                .with_context(|| format!("cannot write into {}", dir.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        What::Man { dir: None } => manual(&command, &mut bytes)?,
        What::Completions { shell } => {
            clap_complete::generate(*shell, &mut command, NAME, &mut bytes);
        }
    }
    output::print(&String::from_utf8(bytes)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The command without what is between the program's own processes.
fn visible(command: &Command) -> Command {
    let text = |text: Option<&StyledStr>| text.cloned().unwrap_or_default();
    Command::new(NAME)
        .version(super::VERSION)
        .about(text(command.get_about()))
        .after_help(text(command.get_after_help()))
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()))
        .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()))
}

/// One page with everything: the subcommands' options as sections of their own.
fn manual(command: &Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    Man::new(command.clone()).render(page)?;
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let mut section = Vec::new();
        let man = Man::new(subcommand.clone());
        man.render_synopsis_section(&mut section)?;
        man.render_description_section(&mut section)?;
        man.render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace(".SH ", ".SS ");
        writeln!(page, ".SH \"{NAME} {}\"", subcommand.get_name())?;
        page.extend_from_slice(section.as_bytes());
    }
    Ok(())
}
