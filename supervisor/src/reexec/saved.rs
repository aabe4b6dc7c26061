//! The memory that one image of the supervisor leaves to the next: a line that names the format,
//! then JSON.
//!
//! Descriptors are numbers of this process's table, open in the next image. Reading decides
//! nothing but whether the words are understood; it touches no descriptor.

use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::path::PathBuf;

use baton_handoff::message::ListenerRole;
use serde::{Deserialize, Serialize};

use super::LogLevel;
use crate::event::{BinaryId, Millis, RequestId};
use crate::options::ConfigSource;
use crate::privilege::Identity;
use crate::state::Machine;

/// What this release writes and reads. A field may be added with a default; another meaning is
/// another number.
pub(crate) const FORMAT: u32 = 1;

const MAGIC: &str = "baton-supervisor-state ";

/// Why the memory is not understood.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is something else.
    #[error("the state of the former image is none")]
    Magic,
    /// Written by a release that is too far away.
    #[error("the state of the former image has format {0}, this release reads {FORMAT}")]
    Format(String),
    /// Damaged, or a word of another release.
    #[error("the state of the former image: {0}")]
    Json(#[from] serde_json::Error),
    /// One descriptor has two owners.
    #[error("the state of the former image names descriptor {0} twice")]
    Twice(RawFd),
}

/// Everything. See the module's head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// Who wrote it, for logs.
    pub(crate) version: String,
    /// How many images this process has had before the next one.
    pub(crate) images: u64,
    pub(crate) uptime_ms: u64,
    pub(crate) log: LogLevel,
    pub(crate) installed: PathBuf,
    pub(crate) source: SavedSource,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) identity: Option<SavedIdentity>,
    pub(crate) machine: Machine,
    pub(crate) next_binary: BinaryId,
    pub(crate) lock: RawFd,
    pub(crate) control: RawFd,
    pub(crate) region: RawFd,
    /// The executable that workers are started from, opened.
    pub(crate) program: RawFd,
    /// The one before, as long as it may be needed again.
    #[serde(default)]
    pub(crate) former: Option<RawFd>,
    pub(crate) listeners: Vec<SavedListener>,
    pub(crate) channels: Vec<SavedChannel>,
    #[serde(default)]
    pub(crate) lifelines: Vec<SavedLifeline>,
    pub(crate) clients: Vec<SavedClient>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SavedSource {
    File(PathBuf),
    Inline { name: String, json: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedIdentity {
    uid: u32,
    gid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedListener {
    pub(crate) key: String,
    pub(crate) rule: String,
    pub(crate) role: SavedRole,
    pub(crate) fd: RawFd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SavedRole {
    Rule,
    Admin,
}

/// Our end of a worker's channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedChannel {
    pub(crate) worker: u32,
    /// The protocol agreed on; absent before the greeting.
    pub(crate) protocol: Option<u16>,
    pub(crate) fd: RawFd,
}

/// What a worker's connections are carried on with: of a living one, or of a dead one whose
/// connections nobody has yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedLifeline {
    pub(crate) worker: u32,
    pub(crate) table: RawFd,
    pub(crate) keeper: RawFd,
}

/// A control client that waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedClient {
    pub(crate) id: RequestId,
    pub(crate) since: Millis,
    pub(crate) fd: RawFd,
}

impl Saved {
    /// As it is left behind.
    ///
    /// # Errors
    /// What has no words: a path that is not UTF-8.
    pub(crate) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let mut bytes = format!("{MAGIC}{FORMAT}\n").into_bytes();
        serde_json::to_writer(&mut bytes, self)?;
        Ok(bytes)
    }

    /// As it was left behind.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let rest = bytes.strip_prefix(MAGIC.as_bytes()).ok_or(StateError::Magic)?;
        let end = rest.iter().take(16).position(|&byte| byte == b'\n').ok_or(StateError::Magic)?;
        let (format, json) = rest.split_at(end);
        if format != FORMAT.to_string().as_bytes() {
            return Err(StateError::Format(String::from_utf8_lossy(format).into_owned()));
        }
        let saved: Self = serde_json::from_slice(json)?;
        let mut seen = BTreeSet::new();
        let twice = saved.numbers().find(|number| !seen.insert(*number));
        match twice {
            Some(number) => Err(StateError::Twice(number)),
            None => Ok(saved),
        }
    }

    /// Every descriptor it names.
    fn numbers(&self) -> impl Iterator<Item = RawFd> {
        let single = [self.lock, self.control, self.region, self.program];
        single
            .into_iter()
            .chain(self.listeners.iter().map(|listener| listener.fd))
            .chain(self.former)
            .chain(self.lifelines.iter().flat_map(|lifeline| [lifeline.table, lifeline.keeper]))
            .chain(self.channels.iter().map(|channel| channel.fd))
            .chain(self.clients.iter().map(|client| client.fd))
    }
}

impl From<&ConfigSource> for SavedSource {
    fn from(source: &ConfigSource) -> Self {
        match source.clone() {
            ConfigSource::File(path) => Self::File(path),
            ConfigSource::Inline { name, json } => Self::Inline { name, json },
        }
    }
}

impl From<SavedSource> for ConfigSource {
    fn from(saved: SavedSource) -> Self {
        match saved {
            SavedSource::File(path) => Self::File(path),
            SavedSource::Inline { name, json } => Self::Inline { name, json },
        }
    }
}

impl From<Identity> for SavedIdentity {
    fn from(Identity { uid, gid }: Identity) -> Self {
        Self { uid, gid }
    }
}

impl From<SavedIdentity> for Identity {
    fn from(SavedIdentity { uid, gid }: SavedIdentity) -> Self {
        Self { uid, gid }
    }
}

impl From<ListenerRole> for SavedRole {
    fn from(role: ListenerRole) -> Self {
        match role {
            ListenerRole::Rule => Self::Rule,
            ListenerRole::Admin => Self::Admin,
        }
    }
}

impl From<SavedRole> for ListenerRole {
    fn from(saved: SavedRole) -> Self {
        match saved {
            SavedRole::Rule => Self::Rule,
            SavedRole::Admin => Self::Admin,
        }
    }
}

#[cfg(test)]
mod tests;
