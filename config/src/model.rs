//! The checked configuration: what a file *means*, with every default filled in.
//!
//! A value of these types has passed every check of the reader, so nothing downstream
//! validates again. The types hold no compiled pattern and no socket: compiling is the
//! worker's work. Durations are exact to the millisecond.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

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
    /// Everything.
    Debug,
    /// Life-cycle and decisions.
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

/// A listener plus how its destination is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Unique, without surrounding blanks.
    pub name: String,
    /// Where clients connect.
    pub listen: Listen,
    /// How a target is chosen.
    pub mode: Mode,
    /// 1 – 128 destinations, in configured order.
    pub targets: Vec<Target>,
    /// Bounds dialling, or first-packet decision and then dialling; never a connection's life.
    pub timeout: Duration,
    /// Both directions silent this long ends the connection; `None` never does.
    pub idle_timeout: Option<Duration>,
    /// Keep idle sockets to the targets ready.
    pub prewarm: bool,
    /// Active probing of every target.
    pub health_check: Option<HealthCheck>,
    /// PROXY protocol in and out.
    pub proxy_protocol: ProxyProtocol,
    /// Clients must be inside one of these; empty admits everyone. IPv4-mapped nets are folded to IPv4.
    pub allowlist: Vec<IpNet>,
    /// Exact addresses that are refused (only the `true` entries); IPv4-mapped folded to IPv4.
    pub blacklist: Vec<IpAddr>,
    /// Live connections of this rule.
    pub max_connections: u32,
    /// Live connections of one client address on this rule; never above `max_connections`.
    pub max_connections_per_ip: u32,
    /// Narrowing by labels before selection.
    pub subset: Option<Subset>,
}

/// A listen address as written and as understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Exactly the configured text: what listeners are matched by across reloads.
    pub text: String,
    /// Where to bind.
    pub host: ListenHost,
    /// 1 – 65535.
    pub port: u16,
}

/// The host part of a listen address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenHost {
    /// No host was written (`:8080`): every address of both families.
    Any,
    /// A numeric address.
    Ip(IpAddr),
    /// A name the worker resolves when it makes its plan.
    Name(String),
}

/// How a rule finds its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Targets in configured order until one connects.
    Normal,
    /// First bytes against each target's pattern.
    Regex,
    /// Race of the best two by score, with a winner cache and optional hedging.
    Boost(Option<Hedge>),
    /// Plain rotation, race as fallback.
    RoundRobin,
    /// SNI and ALPN of the ClientHello.
    Tls,
    /// A selector with failure marks and backups.
    Forward(Forward),
}

impl Mode {
    /// The word in the file, also the value of the `mode` label.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Regex => "regex",
            Self::Boost(_) => "boost",
            Self::RoundRobin => "roundrobin",
            Self::Tls => "tls",
            Self::Forward(_) => "forward",
        }
    }
}

/// `hedge`: both 10 ms – 5 s, `min_delay ≤ max_delay < timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hedge {
    /// Default 25 ms.
    pub min_delay: Duration,
    /// Default 250 ms.
    pub max_delay: Duration,
}

/// What `forward` adds to a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Which target next.
    pub selector: Selector,
    /// Further attempts inside `timeout`, on targets not yet tried (0 – 8, default 2).
    pub retries: u8,
    /// The key of the `hash` strategy.
    pub hash: HashKey,
}

/// `selector`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Default `round`.
    pub strategy: Strategy,
    /// Failures in a row that mark a target (1 – 1000, default 1).
    pub max_fails: u16,
    /// How long a mark lasts, from the last failure (100 ms – 24 h, default 10 s).
    pub fail_timeout: Duration,
    /// What to do when every target is marked.
    pub on_all_failed: OnAllFailed,
}

/// `selector.strategy`, with the fields that only one of them has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// In turn.
    Round,
    /// Random by weight.
    Rand,
    /// The first usable one.
    Fifo,
    /// Rendezvous hash of the key.
    Hash,
    /// Several at once, the first to connect wins.
    Parallel {
        /// Racers a connection; 0 is no cap.
        max: u16,
        /// How the racers are picked.
        mode: ParallelMode,
    },
    /// Least active connections.
    LeastConn,
    /// Peak EWMA × (active + 1), power of two choices.
    Latency,
}

/// `selector.parallelMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParallelMode {
    /// Consecutive targets, the start moves on by the number of racers.
    Round,
    /// Distinct targets drawn uniformly.
    Rand,
}

/// `selector.onAllFailed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAllFailed {
    /// The marked target whose mark expires first.
    LastResort,
    /// Close the client.
    Reject,
}

/// `hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address without port.
    Client,
    /// The requested destination; in `forward` without one, the client.
    Host,
}

/// One destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `host:port`.
    pub address: Address,
    /// Default `node-i`, i counted from 0.
    pub name: String,
    /// Only for `rand` (1 – 65535, default 1).
    pub weight: u16,
    /// Chosen only when every other target is marked failed.
    pub backup: bool,
    /// Overrides the selector's.
    pub max_fails: Option<u16>,
    /// Overrides the selector's.
    pub fail_timeout: Option<Duration>,
    /// For `subset` (at most 16).
    pub labels: BTreeMap<String, String>,
    /// When and into how many lines a name is resolved.
    pub resolve: Resolve,
    /// `regex` mode: the pattern as written; `None` is the fallback.
    pub regexp: Option<String>,
    /// `tls` mode: lower-cased exact names or `*.` wildcards.
    pub server_names: Vec<String>,
    /// `tls` mode: any of these protocols.
    pub alpn: Vec<String>,
}

/// `targets[].resolve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// One line; its addresses are raced when it is dialled.
    Dial,
    /// Every address is a line of its own.
    Expand,
}

/// A destination address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Numeric address or name; a bare `:port` means the local host.
    pub host: Host,
    /// 1 – 65535.
    pub port: u16,
}

/// The host part of a destination.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A numeric address.
    Ip(IpAddr),
    /// A name to resolve.
    Name(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            Host::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// `healthCheck`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// What a probe does.
    pub kind: HealthKind,
    /// 250 ms – 10 min, default 10 s.
    pub interval: Duration,
    /// 50 ms – 30 s and never above the interval; default the smaller of 2 s and the interval.
    pub timeout: Duration,
    /// Failures in a row that exclude (1 – 20, default 3).
    pub failure_threshold: u8,
    /// Successes in a row that readmit (1 – 20, default 2).
    pub success_threshold: u8,
}

/// `healthCheck.type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthKind {
    /// The connect is the probe.
    Tcp,
    /// A plain GET without redirects.
    Http {
        /// Origin form, default `/`.
        path: String,
        /// Lowest accepted status, default 200.
        status_min: u16,
        /// Highest accepted status, default 399.
        status_max: u16,
    },
}

/// `proxyProtocol`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyProtocol {
    /// The hops whose header is required and trusted; empty means headers are not accepted.
    pub trusted: Vec<IpNet>,
    /// The header written first on every upstream connection.
    pub send: Option<ProxyVersion>,
}

/// `proxyProtocol.send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// `subset`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subset {
    /// Label sets in order; the first with a usable target wins.
    pub prefer: Vec<BTreeMap<String, String>>,
    /// When none has one.
    pub fallback: SubsetFallback,
}

/// `subset.fallback`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubsetFallback {
    /// Close the client.
    None,
    /// All targets.
    Any,
}
