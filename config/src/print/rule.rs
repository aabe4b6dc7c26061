//! One entry of `rules`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use super::{Millis, Spoken};
use crate::model::{self, HealthKind, Mode, Strategy};
use crate::words::{StrategyWord, Word as _};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule<'m> {
    name: &'m str,
    listen: &'m str,
    mode: &'static str,
    timeout: Millis,
    idle_timeout: Spoken,
    #[serde(skip_serializing_if = "Option::is_none")]
    prewarm: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hedge: Option<Hedge>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    health_check: Option<HealthCheck<'m>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_protocol: Option<ProxyProtocol>,
    allowlist: Vec<String>,
    blacklist: BTreeMap<IpAddr, bool>,
    max_connections: u32,
    #[serde(rename = "maxConnectionsPerIP")]
    max_connections_per_ip: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    subset: Option<Subset<'m>>,
    targets: Vec<Target<'m>>,
}

impl<'m> From<&'m model::Rule> for Rule<'m> {
    fn from(rule: &'m model::Rule) -> Self {
        let (hedge, forward) = match &rule.mode {
            Mode::Normal | Mode::Regex | Mode::RoundRobin | Mode::Tls => (None, None),
            Mode::Boost(hedge) => (hedge.as_ref(), None),
            Mode::Forward(forward) => (None, Some(forward)),
        };
        let hashes = forward.filter(|forward| forward.selector.strategy == Strategy::Hash);
        Self {
            name: &rule.name,
            listen: &rule.listen.text,
            mode: rule.mode.as_str(),
            timeout: Millis(rule.timeout),
            idle_timeout: Spoken(rule.idle_timeout.unwrap_or_default()),
            prewarm: forward.is_none().then_some(rule.prewarm),
            hedge: hedge.map(|hedge| Hedge {
                min_delay: Millis(hedge.min_delay),
                max_delay: Millis(hedge.max_delay),
            }),
            selector: forward.map(|forward| (&forward.selector).into()),
            retries: forward.map(|forward| forward.retries),
            hash: hashes.map(|forward| forward.hash.name()),
            health_check: rule.health_check.as_ref().map(Into::into),
            proxy_protocol: (rule.proxy_protocol != model::ProxyProtocol::default())
                .then(|| (&rule.proxy_protocol).into()),
            allowlist: rule.allowlist.iter().map(ToString::to_string).collect(),
            blacklist: rule.blacklist.iter().map(|ip| (*ip, true)).collect(),
            max_connections: rule.max_connections,
            max_connections_per_ip: rule.max_connections_per_ip,
            subset: rule
                .subset
                .as_ref()
                .map(|subset| Subset { prefer: &subset.prefer, fallback: subset.fallback.name() }),
            targets: rule
                .targets
                .iter()
                .map(|target| Target::new(target, forward.is_some(), &rule.mode))
                .collect(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hedge {
    min_delay: Millis,
    max_delay: Millis,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    strategy: &'static str,
    max_fails: u16,
    fail_timeout: Spoken,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_parallel: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_mode: Option<&'static str>,
    on_all_failed: &'static str,
}

impl From<&model::Selector> for Selector {
    fn from(selector: &model::Selector) -> Self {
        let (strategy, parallel) = match selector.strategy {
            Strategy::Round => (StrategyWord::Round, None),
            Strategy::Rand => (StrategyWord::Rand, None),
            Strategy::Fifo => (StrategyWord::Fifo, None),
            Strategy::Hash => (StrategyWord::Hash, None),
            Strategy::Parallel { max, mode } => (StrategyWord::Parallel, Some((max, mode.name()))),
            Strategy::LeastConn => (StrategyWord::LeastConn, None),
            Strategy::Latency => (StrategyWord::Latency, None),
        };
        Self {
            strategy: strategy.name(),
            max_fails: selector.max_fails,
            fail_timeout: Spoken(selector.fail_timeout),
            max_parallel: parallel.map(|(max, _)| max),
            parallel_mode: parallel.map(|(_, mode)| mode),
            on_all_failed: selector.on_all_failed.name(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HealthCheck<'m> {
    r#type: &'static str,
    interval: Millis,
    timeout: Millis,
    failure_threshold: u8,
    success_threshold: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_min: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_max: Option<u16>,
}

impl<'m> From<&'m model::HealthCheck> for HealthCheck<'m> {
    fn from(check: &'m model::HealthCheck) -> Self {
        let (r#type, path, status_min, status_max) = match &check.kind {
            HealthKind::Tcp => ("tcp", None, None, None),
            HealthKind::Http { path, status_min, status_max } => {
                ("http", Some(path.as_str()), Some(*status_min), Some(*status_max))
            }
        };
        Self {
            r#type,
            interval: Millis(check.interval),
            timeout: Millis(check.timeout),
            failure_threshold: check.failure_threshold,
            success_threshold: check.success_threshold,
            path,
            status_min,
            status_max,
        }
    }
}

#[derive(Debug, Serialize)]
struct ProxyProtocol {
    accept: bool,
    #[serde(rename = "trustedCIDRs")]
    trusted: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send: Option<&'static str>,
}

impl From<&model::ProxyProtocol> for ProxyProtocol {
    fn from(proxy: &model::ProxyProtocol) -> Self {
        Self {
            accept: !proxy.trusted.is_empty(),
            trusted: proxy.trusted.iter().map(ToString::to_string).collect(),
            send: proxy.send.map(|version| version.name()),
        }
    }
}

#[derive(Debug, Serialize)]
struct Subset<'m> {
    prefer: &'m [BTreeMap<String, String>],
    fallback: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Target<'m> {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_fails: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fail_timeout: Option<Spoken>,
    labels: &'m BTreeMap<String, String>,
    resolve: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    regexp: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_names: Option<&'m [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alpn: Option<&'m [String]>,
}

impl<'m> Target<'m> {
    fn new(target: &'m model::Target, selected: bool, mode: &Mode) -> Self {
        let tls = *mode == Mode::Tls;
        Self {
            address: target.address.to_string(),
            name: target.given_name(),
            weight: selected.then_some(target.weight),
            backup: selected.then_some(target.backup),
            max_fails: target.max_fails,
            fail_timeout: target.fail_timeout.map(Spoken),
            labels: &target.labels,
            resolve: target.resolve.name(),
            regexp: target.regexp.as_deref(),
            server_names: tls.then_some(&target.server_names),
            alpn: tls.then_some(&target.alpn),
        }
    }
}
