//! The model back as a file: one canonical form with every default written out.
//!
//! Reading the printed text gives the same model again, for every model that was read. Fields
//! are printed only where the reader accepts them (a `selector` only in `forward`), in the
//! order of the documentation. Moto's fields stay integer milliseconds, Baton's own durations
//! are text.

pub(crate) mod rule;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::model;
use crate::words::Word as _;

/// The configuration as formatted JSON with a final newline.
#[must_use]
pub fn to_json(config: &model::Config) -> String {
    let mut text = serde_json::to_string_pretty(&File::from(config))
        .expect("a tree of texts and numbers with text keys is always JSON");
    text.push('\n');
    text
}

/// Integer milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Millis(pub(crate) Duration);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Text such as `1m30s`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spoken(pub(crate) Duration);

impl Serialize for Spoken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&humantime::format_duration(self.0).to_string().replace(' ', ""))
    }
}

#[derive(Debug, Serialize)]
struct File<'m> {
    log: Log,
    metrics: Metrics,
    supervisor: Supervisor,
    dns: Dns<'m>,
    rules: Vec<rule::Rule<'m>>,
}

impl<'m> From<&'m model::Config> for File<'m> {
    fn from(config: &'m model::Config) -> Self {
        Self {
            log: (&config.log).into(),
            metrics: (&config.metrics).into(),
            supervisor: (&config.supervisor).into(),
            dns: (&config.dns).into(),
            rules: config.rules.iter().map(Into::into).collect(),
        }
    }
}

/// Section `log`.
#[derive(Debug, Serialize)]
pub(crate) struct Log {
    level: &'static str,
    path: String,
}

impl From<&model::Log> for Log {
    fn from(log: &model::Log) -> Self {
        let path = log.path.as_ref().map(|path| path.display().to_string());
        Self { level: log.level.name(), path: path.unwrap_or_default() }
    }
}

/// Section `metrics`.
#[derive(Debug, Serialize)]
pub(crate) struct Metrics {
    enabled: bool,
    listen: String,
}

impl From<&model::Metrics> for Metrics {
    fn from(metrics: &model::Metrics) -> Self {
        Self { enabled: metrics.enabled, listen: metrics.listen.to_string() }
    }
}

/// Section `supervisor`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Supervisor {
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_dir: Option<String>,
    handover: &'static str,
    crash_recovery: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    ready_timeout: Spoken,
    migrate_timeout: Spoken,
    watch: Spoken,
    drain_timeout: Spoken,
    region_size: u64,
    worker_threads: u16,
    max_connections: u32,
}

impl From<&model::Supervisor> for Supervisor {
    fn from(supervisor: &model::Supervisor) -> Self {
        let user = supervisor.user.as_ref().map(|user| match user {
            model::User::Name(name) => name.clone(),
            model::User::Ids { uid, gid } => format!("{uid}:{gid}"),
        });
        Self {
            runtime_dir: supervisor.runtime_dir.as_ref().map(|dir| dir.display().to_string()),
            handover: supervisor.handover.name(),
            crash_recovery: supervisor.crash_recovery,
            user,
            ready_timeout: Spoken(supervisor.ready_timeout),
            migrate_timeout: Spoken(supervisor.migrate_timeout),
            watch: Spoken(supervisor.watch),
            drain_timeout: Spoken(supervisor.drain_timeout),
            region_size: supervisor.region_size,
            worker_threads: supervisor.worker_threads,
            max_connections: supervisor.max_connections,
        }
    }
}

#[derive(Debug, Serialize)]
struct Dns<'m> {
    refresh: Spoken,
    stale: Spoken,
    prefer: &'static str,
    hosts: &'m BTreeMap<String, Vec<IpAddr>>,
}

impl<'m> From<&'m model::Dns> for Dns<'m> {
    fn from(dns: &'m model::Dns) -> Self {
        Self {
            refresh: Spoken(dns.refresh),
            stale: Spoken(dns.stale),
            prefer: dns.prefer.name(),
            hosts: &dns.hosts,
        }
    }
}
