//! The checked configuration: what a file *means*, with every default filled in.
//!
//! A value of these types has passed every check of the reader, so nothing downstream
//! validates again. The types hold no compiled pattern and no socket: compiling is the
//! worker's work. Durations are exact to the millisecond.

mod rule;
mod target;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use rule::{
    Forward, HashKey, HealthCheck, HealthKind, Hedge, Listen, ListenHost, Mode, OnAllFailed,
    ParallelMode, ProxyProtocol, ProxyVersion, Rule, Selector, Strategy, Subset, SubsetFallback,
};
pub use target::{Address, Host, Resolve, Target};

/// A whole configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where and how much to log.
    pub log: Log,
    /// The admin listener.
    pub metrics: Metrics,
    /// How the processes live; the only section the supervisor itself reads.
    pub supervisor: Supervisor,
    /// Name resolution.
    pub dns: Dns,
    /// The listeners and what becomes of their connections; never empty, names and
    /// listen addresses unique.
    pub rules: Vec<Rule>,
}

/// Section `log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Least severe level that is written.
    pub level: Level,
    /// A file to append to besides standard output; absent when the path is empty.
    pub path: Option<PathBuf>,
}

/// A log level; Moto's `dpanic`, `panic` and `fatal` read as `Error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything, among it a line for each connection that got an upstream.
    Debug,
    /// The life of processes and configurations.
    Info,
    /// Refused and failed connections.
    Warn,
    /// What the operator must look at.
    Error,
}

/// Section `metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Whether the admin listener exists.
    pub enabled: bool,
    /// Loopback only; checked even when disabled.
    pub listen: SocketAddr,
}

/// Section `supervisor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    /// Absolute directory of the control socket, the region and the lock; `None` picks the
    /// default for the user (see [`crate::process::default_runtime_dir`]).
    pub runtime_dir: Option<PathBuf>,
    /// What an upgrade does with established connections.
    pub handover: Handover,
    /// Keeper and connection table (connections survive a killed worker).
    pub crash_recovery: bool,
    /// The identity of the worker; only honoured when started as root.
    pub user: Option<User>,
    /// How long a new generation may take from its first message to `Ready` (1 s – 5 min).
    pub ready_timeout: Duration,
    /// How long moving connections may take in all (0 – 10 min).
    pub migrate_timeout: Duration,
    /// How long a new worker is watched before the old one is dismissed (0 – 10 min).
    pub watch: Duration,
    /// How long a retiring worker or a stopping instance waits for its connections (0 – 10 min).
    pub drain_timeout: Duration,
    /// Bytes of the metrics region: 64 KiB – 64 MiB, a multiple of 4096.
    pub region_size: u64,
    /// Relay threads; 0 means one a core (0 – 256).
    pub worker_threads: u16,
    /// Live client connections in the process (1 – 1 000 000).
    pub max_connections: u32,
}

/// `supervisor.handover`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// Established connections move to the new worker.
    Connections,
    /// Established connections stay and drain.
    Listeners,
}

/// `supervisor.user`: a name, or numeric `uid:gid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// Looked up in the user database at start.
    Name(String),
    /// Taken as it is.
    Ids {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
}

/// Section `dns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dns {
    /// How often names are looked up again (1 s – 1 h).
    pub refresh: Duration,
    /// How long the last good answer serves while look-ups fail (0 – 24 h).
    pub stale: Duration,
    /// Which family is dialled first.
    pub prefer: Prefer,
    /// Names answered from here and never looked up; keys lower-cased.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
}

/// `dns.prefer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefer {
    /// The resolver's own order.
    Auto,
    /// IPv4 first.
    Ipv4,
    /// IPv6 first.
    Ipv6,
}
