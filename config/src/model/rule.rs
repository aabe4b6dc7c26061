//! A listener and what becomes of its connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::target::Target;

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

impl Forward {
    /// Whether the host the client asks for decides, so that its first bytes are looked at.
    #[must_use]
    pub fn hashes_by_host(&self) -> bool {
        self.selector.strategy == Strategy::Hash && self.hash == HashKey::Host
    }
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
    /// The host of its first bytes (server name of a ClientHello, `Host` of an HTTP/1 request),
    /// without a port; the client when they name none.
    Host,
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
