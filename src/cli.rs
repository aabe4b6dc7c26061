//! The command line: definitions only; each subcommand's work is in a file of its own.

mod check;
mod control;
mod explain;
mod generate;
mod metrics;
mod query;
mod resume;
mod run;
mod status;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::{self, Failure};

/// What `--version` prints; a package build sets the two variables.
const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BATON_COMMIT"), env!("BATON_BUILT"), ")");

/// A TCP gateway that never drops the baton.
#[derive(Debug, Parser)]
#[command(name = "baton", version = VERSION, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  baton check --config /etc/baton/setting.json
  baton run --config /etc/baton/setting.json
  baton run -L 'tcp://:8080/:8081,:8082?strategy=round'
  baton reload && baton status
  baton upgrade --binary /usr/local/bin/baton.new

Exit codes: 0 done, 1 failed, 2 usage, 3 no instance is running.")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Without a subcommand: run in the foreground.
    #[command(flatten)]
    bare: BareArgs,
}

#[derive(Debug, Args)]
struct BareArgs {
    #[command(flatten)]
    run: run::RunArgs,
    /// Check the configuration and exit (the same as `baton check`).
    #[arg(long)]
    check_config: bool,
    /// Introduce this binary to a supervisor and exit.
    #[arg(long, hide = true)]
    self_check: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run in the foreground: supervisor and worker.
    Run(run::RunArgs),
    /// Check a configuration without binding anything.
    Check(check::CheckArgs),
    /// Read the configuration again and switch to it; listeners and connections stay.
    Reload(control::ReloadArgs),
    /// Replace the running worker by a new process, of the installed or a given binary.
    Upgrade(control::UpgradeArgs),
    /// Show processes, listeners, transitions and every line.
    Status(status::StatusArgs),
    /// Show which targets a connection would be tried on, and why not on the others.
    Explain(explain::ExplainArgs),
    /// Print the counters, also when no worker lives.
    Metrics(metrics::MetricsArgs),
    /// Drain and end the instance.
    Stop(control::StopArgs),
    /// Watch a live gateway being reloaded, upgraded and killed under load.
    Demo(crate::demo::DemoArgs),
    /// Print the JSON Schema, the man page or shell completions.
    Generate(generate::GenerateArgs),
    /// The worker's role, started by the supervisor.
    #[command(hide = true)]
    Worker(crate::worker_role::WorkerArgs),
    /// The supervisor's role, taken over from a former image of the same process.
    #[command(hide = true)]
    Resume(resume::ResumeArgs),
}

/// Where the configuration comes from.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArg {
    /// Configuration file [default: $BATON_CONFIG, $MOTO_CONFIG or config/setting.json].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Which instance a client command talks to.
#[derive(Debug, Clone, Args)]
pub(crate) struct InstanceArgs {
    /// Runtime directory of the instance.
    #[arg(long, env = "BATON_RUNTIME_DIR", value_name = "DIR")]
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Find the instance by its configuration file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One JSON object a line instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses the arguments and does what they say.
pub(crate) fn run() -> ExitCode {
    let cli = match Cli::command().try_get_matches().and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(error) => return unusable(&error),
    };
    match dispatch(cli) {
        Ok(code) => code,
        Err(failure) => output::report(&failure),
    }
}

/// Says what is wrong with the arguments; a file in the wrong place is the most common of it.
fn unusable(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when standard error itself is gone.
    let _unreported = error.print();
    let wrong = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
        .into_iter()
        .find_map(|kind| error.get(kind));
    if let Some(ContextValue::String(word)) = wrong
        && is_file(word)
    {
        let tip = format!("\n  tip: a configuration is named with --config {word}\n");
        let _unreported = std::io::stderr().write_all(tip.as_bytes());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(output::FAILED))
}

fn is_file(word: &str) -> bool {
    !word.starts_with('-') && (word.ends_with(".json") || std::path::Path::new(word).is_file())
}

fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let Some(command) = cli.command else {
        return bare(cli.bare);
    };
    match command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::run(&args),
        Command::Reload(args) => control::reload(&args),
        Command::Upgrade(args) => control::upgrade(args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Stop(args) => control::stop(&args),
        Command::Demo(args) => crate::demo::run(&args),
        Command::Generate(args) => generate::run(&args, &Cli::command()),
        Command::Worker(args) => Ok(crate::worker_role::run(&args)),
        Command::Resume(args) => resume::run(args),
    }
}

fn bare(args: BareArgs) -> Result<ExitCode, Failure> {
    if args.self_check {
        return crate::worker_role::introduce();
    }
    if args.check_config {
        return check::run(&check::CheckArgs::of(args.run));
    }
    run::run(args.run)
}
