//! What the command line decides for a supervisor.

use std::io;
use std::path::PathBuf;

use baton_config::model::Supervisor;

use crate::event::ConfigText;
use crate::privilege::IdentityError;
use crate::runtime_dir::RuntimeDirError;

/// Everything [`run`](crate::run) needs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Absolute path of the installed program: what an upgrade starts, and the first worker.
    pub binary: PathBuf,
    /// Where the configuration comes from.
    pub source: ConfigSource,
    /// Section `supervisor` of it, fixed for the life of the process.
    pub process: Supervisor,
    /// The directory of lock, control socket and metrics region.
    pub runtime_dir: PathBuf,
    /// `major.minor.patch` of this program.
    pub version: String,
}

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub enum ConfigSource {
    /// A file, read anew at every reload and upgrade.
    File(PathBuf),
    /// Text from the command line: a reload finds it unchanged.
    Inline {
        /// How problems name it: `-L`.
        name: String,
        /// The text.
        json: String,
    },
}

impl ConfigSource {
    /// Reads it; may block on a slow disk, or for ever on a pipe.
    pub(crate) fn read(&self) -> Result<ConfigText, String> {
        match self {
            Self::File(path) => {
                let text = baton_config::bytes(path).map_err(|error| error.to_string())?;
                Ok(ConfigText { name: path.display().to_string(), text })
            }
            Self::Inline { name, json } => {
                Ok(ConfigText { name: name.clone(), text: json.clone().into_bytes() })
            }
        }
    }
}

/// Why there is no running instance.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The runtime directory cannot be used, or another instance lives there.
    #[error(transparent)]
    RuntimeDir(#[from] RuntimeDirError),
    /// `supervisor.user` cannot be honoured.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The metrics region can neither be opened nor made.
    #[error("metrics region: {0}")]
    Region(#[from] baton_metrics::RegionError),
    /// The variables of socket activation make no sense.
    #[error("socket activation: {0}")]
    Activation(#[from] baton_handoff::inherit::InheritError),
    /// The installed program cannot be opened.
    #[error("{path}: {source}", path = path.display())]
    Binary {
        /// Its path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {operation}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The first worker did not come to serve: every problem, one line each.
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
}
