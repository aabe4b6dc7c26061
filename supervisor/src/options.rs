//! What the command line decides for a supervisor.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use baton_config::model::{Handover, Level, Supervisor};

use crate::event::ConfigText;
use crate::privilege::IdentityError;
use crate::reexec::StateError;
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
    /// How much is logged: the next image of the process goes on with it.
    pub log: Level,
}

/// How long connections may move to a new worker; zero: they stay and drain.
pub(crate) fn migrate_limit(process: &Supervisor) -> Duration {
    match process.handover {
        Handover::Connections => process.migrate_timeout,
        Handover::Listeners => Duration::ZERO,
    }
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
    /// How people know it: the file's path, or `-L`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Inline { name, .. } => name.clone(),
        }
    }

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
    /// The variables of socket activation make no sense, or a descriptor is not there.
    #[error("inherited descriptors: {0}")]
    Inherited(#[from] baton_handoff::inherit::InheritError),
    /// The installed program cannot be opened.
    #[error("{path}: {source}", path = path.display())]
    Binary {
        /// Its path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The former image's memory cannot be read.
    #[error("the former image's state: {0}")]
    Memory(#[from] baton_handoff::MemfdError),
    /// The former image's memory is not understood.
    #[error(transparent)]
    State(#[from] StateError),
    /// The former image's memory contradicts itself, or what is there.
    #[error("the state of the former image: {0}")]
    Contradiction(String),
    /// The new program cannot take over, and the old one cannot be gone back to.
    #[error("{why}; and there is no way back to the old version: {source}")]
    Stranded {
        /// Why it cannot take over.
        why: String,
        /// Why there is no way back.
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
