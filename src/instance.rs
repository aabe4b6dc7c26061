//! Finding things: the configuration file, and the runtime directory of an instance.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use baton_config::{model, process};
use nix::unistd::Uid;

use crate::cli::{ConfigArg, InstanceArgs};
use crate::output::Failure;

/// Where the configuration is when nobody says: Moto's place.
const DEFAULT_CONFIG: &str = "config/setting.json";
/// Looked at in this order; empty counts as unset.
const CONFIG_VARIABLES: [&str; 2] = ["BATON_CONFIG", "MOTO_CONFIG"];

/// The configuration file: the option, the environment, the default place.
///
/// # Errors
/// When nobody says where it is and there is none at the default place.
pub(crate) fn config_file(arg: &ConfigArg) -> Result<PathBuf, Failure> {
    let from_env = || {
        CONFIG_VARIABLES
            .iter()
            .filter_map(env::var_os)
            .find(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(file) = arg.config.clone().or_else(from_env) {
        return Ok(file);
    }
    let file = PathBuf::from(DEFAULT_CONFIG);
    // Anything else that is wrong with it is told by reading it.
    if matches!(std::fs::metadata(&file), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        return Err(anyhow::anyhow!(
            "no configuration: ${} and ${} are not set, and there is no {DEFAULT_CONFIG} here; \
             name a file with --config, or give a rule with -L",
            CONFIG_VARIABLES[0],
            CONFIG_VARIABLES[1],
        )
        .into());
    }
    Ok(file)
}

/// The runtime directory of the instance a client command means.
pub(crate) fn runtime_dir(args: &InstanceArgs) -> Result<PathBuf, Failure> {
    if let Some(dir) = &args.runtime_dir {
        return Ok(dir.clone());
    }
    match &args.config {
        Some(config) => configured_runtime_dir(config),
        None => Ok(default_runtime_dir()),
    }
}

fn configured_runtime_dir(config: &Path) -> Result<PathBuf, Failure> {
    let bytes = baton_config::bytes(config)?;
    let section = process::read(&config.display().to_string(), &bytes)
        .map_err(|problems| Failure::Problems(lines(&problems)))?;
    Ok(runtime_dir_of(&section))
}

/// The runtime directory a configuration means.
pub(crate) fn runtime_dir_of(section: &model::Supervisor) -> PathBuf {
    section.runtime_dir.clone().unwrap_or_else(default_runtime_dir)
}

fn default_runtime_dir() -> PathBuf {
    let xdg = env::var_os("XDG_RUNTIME_DIR");
    process::default_runtime_dir(Uid::effective().as_raw(), xdg.as_deref())
}

/// One line a problem.
pub(crate) fn lines(problems: &impl std::fmt::Display) -> Vec<String> {
    problems.to_string().lines().map(str::to_owned).collect()
}
