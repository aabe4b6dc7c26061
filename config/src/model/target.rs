//! One destination of a rule.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// One destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `host:port`.
    pub address: Address,
    /// Unique in the rule. Default the address; with `#2`, `#3` … where one is written again.
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

impl Target {
    /// Its name, if the file gives it one.
    #[must_use]
    pub fn given_name(&self) -> Option<&str> {
        // A name that is given has no colon, an address always has.
        Some(self.name.as_str()).filter(|name| !name.contains(':'))
    }
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
