//! `baton run`: checks the configuration, then becomes the supervisor.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baton_config::model::Config;
use baton_logging::Log;
use baton_supervisor::{ConfigSource, Options};
use clap::Args;

use super::ConfigArg;
use crate::instance;
use crate::output::Failure;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(super) config: ConfigArg,
    /// A rule as a URL, tcp://LISTEN/TARGET,TARGET?strategy=…&maxFails=…; may be repeated.
    #[arg(short = 'L', value_name = "URL", conflicts_with = "config")]
    pub(super) listen: Vec<String>,
    /// Runtime directory, instead of the configured one.
    #[arg(long, env = "BATON_RUNTIME_DIR", value_name = "DIR")]
    pub(super) runtime_dir: Option<PathBuf>,
}

/// A configuration that the reader found good.
pub(super) struct Checked {
    /// How people know it: the file as it was named, or `-L`.
    pub(super) name: String,
    /// Its JSON text.
    pub(super) text: Vec<u8>,
    /// What it means.
    pub(super) config: Config,
}

pub(crate) fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    let Checked { name, text, config } = load(&args)?;
    // Before there is a second thread that could take one.
    baton_supervisor::hold_signals()?;
    let log = Log::start()?;
    log.set_level(config.log.level);
    baton_logging::log_panics();
    let source = if args.listen.is_empty() {
        ConfigSource::File(std::path::absolute(name)?)
    } else {
        ConfigSource::Inline { name, json: String::from_utf8(text)? }
    };
    let runtime_dir =
        args.runtime_dir.unwrap_or_else(|| instance::runtime_dir_of(&config.supervisor));
    let runtime_dir = std::path::absolute(runtime_dir)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = source.name(),
        runtime_dir = %runtime_dir.display(),
        listeners = listeners(&config),
        "baton starts"
    );
    let options = Options {
        binary: installed()?,
        source,
        process: config.supervisor,
        runtime_dir,
        version: env!("CARGO_PKG_VERSION").into(),
        log: config.log.level,
    };
    baton_supervisor::run(options).map_err(|error| Failure::Problems(instance::lines(&error)))
}

/// Every listener of a configuration as `rule=address`.
fn listeners(config: &Config) -> String {
    let rules = config.rules.iter().map(|rule| format!("{}={}", rule.name, rule.listen.text));
    let admin = config.metrics.enabled.then(|| format!("metrics={}", config.metrics.listen));
    rules.chain(admin).collect::<Vec<_>>().join(" ")
}

/// Reads and checks what the arguments name.
pub(super) fn load(args: &RunArgs) -> Result<Checked, Failure> {
    let (name, text) = source(args)?;
    match baton_config::parse(&name, &text) {
        Ok(loaded) => Ok(Checked { name, text, config: loaded.config }),
        Err(problems) => {
            // The worker's check also finds what this one cannot.
            let all = baton_worker::check(&name, &text).err().unwrap_or(problems.0);
            Err(Failure::Problems(all.iter().map(ToString::to_string).collect()))
        }
    }
}

/// The name and the JSON text of what the arguments name.
pub(super) fn source(args: &RunArgs) -> Result<(String, Vec<u8>), Failure> {
    if args.listen.is_empty() {
        let file = instance::config_file(&args.config)?;
        let text = baton_config::bytes(&file)?;
        return Ok((file.display().to_string(), text));
    }
    let json = baton_config::url::compile(&args.listen)
        .map_err(|problems| Failure::Problems(instance::lines(&problems)))?;
    Ok(("-L".to_owned(), json.into_bytes()))
}

/// The path this program was started by, symbolic links kept: an upgrade starts what is there
/// then. The kernel's own answer (`/proc/self/exe`) would follow the links to what is there now.
fn installed() -> io::Result<PathBuf> {
    let started_as = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let is_here = |path: &Path| path.is_file();
    if started_as.components().count() > 1 {
        let path = std::path::absolute(&started_as)?;
        if is_here(&path) {
            return Ok(path);
        }
    } else if let Some(path) = env::var_os("PATH").and_then(|list| {
        env::split_paths(&list).map(|dir| dir.join(&started_as)).find(|path| is_here(path))
    }) {
        return std::path::absolute(path);
    }
    env::current_exe()
}
