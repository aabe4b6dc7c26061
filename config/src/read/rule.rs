//! One entry of `rules`.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{access, address, complain, health, narrow, selector, target};
use crate::model::{HealthCheck, Hedge, Mode, Rule, Subset, Target};
use crate::problem::{Report, quoted};
use crate::shape::table::{
    DEFAULT_CONNECTIONS, DEFAULT_PER_IP, DEFAULT_REGEX_TIMEOUT, DEFAULT_TIMEOUT,
};
use crate::shape::tree::{Node, Object};
use crate::words::{ModeWord, Word as _};

pub(super) fn read(node: &Node, report: &mut Report) -> Option<Rule> {
    let rule = node.read::<&Object>()?;
    let word = rule.word::<ModeWord>("mode");
    if let Some(mode) = word {
        legal(rule, mode, report);
    }
    let name = name(rule, report);
    let listen = rule.get::<&str>("listen").and_then(|text| match address::listen(text) {
        Ok(listen) => Some(listen),
        Err(message) => {
            complain(report, rule, "listen", message);
            None
        }
    });
    let targets = rule.list("targets").and_then(|nodes| target::list(nodes, word, report));
    let timeout = timeout(rule, word);
    let mode = mode(rule, word, timeout, targets.as_deref(), report);
    let health_check = health_check(rule, report);
    let proxy_protocol = access::proxy_protocol(rule, report);
    let prewarm = rule.get::<bool>("prewarm");
    if let (Some(true), Some(proxy)) = (prewarm, &proxy_protocol)
        && proxy.send.is_some()
    {
        complain(report, rule, "prewarm", "prewarm cannot be combined with outbound PROXY");
    }
    let allowlist = access::allowlist(rule, report);
    let blacklist = access::blacklist(rule, report);
    let caps = connections(rule, report);
    let subset = subset(rule, report);
    let (max_connections, max_connections_per_ip) = caps?;
    Some(Rule {
        name: name?,
        listen: listen?,
        mode: mode?,
        targets: targets?,
        timeout: timeout?,
        idle_timeout: rule
            .get("idleTimeout")
            .map(|idle: Duration| (!idle.is_zero()).then_some(idle))?,
        prewarm: prewarm?,
        health_check: health_check?,
        proxy_protocol: proxy_protocol?,
        allowlist: allowlist?,
        blacklist: blacklist?,
        max_connections,
        max_connections_per_ip,
        subset: subset?,
    })
}

/// Reports the fields of a rule or a target that mean nothing in this mode.
pub(super) fn legal(object: &Object, mode: ModeWord, report: &mut Report) {
    for field in object.shape.fields {
        let Some(node) = object.fields.get(field.name) else { continue };
        if field.modes.is_empty() || field.modes.contains(&mode) {
            continue;
        }
        // Moto writes "regexp": "" into every target.
        if field.name == "regexp" && node.read() == Some("") {
            continue;
        }
        let modes: Vec<&str> = field.modes.iter().map(|mode| mode.name()).collect();
        let modes = match modes.as_slice() {
            [mode] => format!("{mode} mode"),
            modes => format!("the modes {}", modes.join(", ")),
        };
        let message = format!("{} is only valid in {modes}", field.name);
        report.add(node.at, node.path.as_str(), message);
    }
}

fn name(rule: &Object, report: &mut Report) -> Option<String> {
    let name = rule.get::<&str>("name")?;
    let wrong = if name.is_empty() {
        "empty name"
    } else if name.trim() != name {
        "a name has no leading or trailing blanks"
    } else if name.chars().any(char::is_control) {
        // It is a label of metrics and a word of every log line.
        "a name has no control characters"
    } else {
        return Some(name.to_owned());
    };
    complain(report, rule, "name", wrong);
    None
}

fn timeout(rule: &Object, mode: Option<ModeWord>) -> Option<Duration> {
    let written = rule.maybe::<Duration>("timeout")?.filter(|timeout| !timeout.is_zero());
    if let Some(timeout) = written {
        return Some(timeout);
    }
    let default = match mode? {
        ModeWord::Regex => DEFAULT_REGEX_TIMEOUT,
        ModeWord::Normal
        | ModeWord::Boost
        | ModeWord::RoundRobin
        | ModeWord::Tls
        | ModeWord::Forward => DEFAULT_TIMEOUT,
    };
    Some(Duration::from_millis(default))
}

/// The mode with what belongs to it. When the word is wrong, its fields are still looked at.
fn mode(
    rule: &Object,
    word: Option<ModeWord>,
    timeout: Option<Duration>,
    targets: Option<&[Target]>,
    report: &mut Report,
) -> Option<Mode> {
    match word {
        Some(ModeWord::Normal) => Some(Mode::Normal),
        Some(ModeWord::Regex) => Some(Mode::Regex),
        Some(ModeWord::Boost) => hedging(rule, timeout, targets, report).map(Mode::Boost),
        Some(ModeWord::RoundRobin) => Some(Mode::RoundRobin),
        Some(ModeWord::Tls) => Some(Mode::Tls),
        Some(ModeWord::Forward) => selector::forward(rule, report).map(Mode::Forward),
        None => {
            hedging(rule, timeout, targets, report);
            selector::forward(rule, report);
            None
        }
    }
}

fn hedging(
    rule: &Object,
    timeout: Option<Duration>,
    targets: Option<&[Target]>,
    report: &mut Report,
) -> Option<Option<Hedge>> {
    match rule.maybe::<&Object>("hedge")? {
        None => Some(None),
        Some(object) => hedge(object, timeout, targets, report).map(Some),
    }
}

fn hedge(
    hedge: &Object,
    timeout: Option<Duration>,
    targets: Option<&[Target]>,
    report: &mut Report,
) -> Option<Hedge> {
    let min = hedge.get::<Duration>("minDelay");
    let max = hedge.get::<Duration>("maxDelay");
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let name = if hedge.is_written("minDelay") { "minDelay" } else { "maxDelay" };
        let message = format!("minDelay ({}) is above maxDelay ({})", show(min), show(max));
        complain(report, hedge, name, message);
    }
    if let (Some(max), Some(timeout)) = (max, timeout)
        && max >= timeout
    {
        let message = format!(
            "maxDelay ({}) must be below the rule's timeout ({})",
            show(max),
            show(timeout)
        );
        complain(report, hedge, "maxDelay", message);
    }
    if let Some(targets) = targets {
        let distinct: BTreeSet<_> = targets.iter().map(|target| &target.address).collect();
        if distinct.len() < 2 {
            report.add(hedge.at, hedge.path.as_str(), "hedge needs two distinct targets");
        }
    }
    Some(Hedge { min_delay: min?, max_delay: max? })
}

fn show(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(duration)
}

fn health_check(rule: &Object, report: &mut Report) -> Option<Option<HealthCheck>> {
    match rule.maybe::<&Object>("healthCheck")? {
        None => Some(None),
        Some(check) => health::read(check, report).map(Some),
    }
}

/// The caps of the rule and of one client address; 0 stands for the default.
fn connections(rule: &Object, report: &mut Report) -> Option<(u32, u32)> {
    let all = rule.get::<u64>("maxConnections");
    let per_ip = rule.maybe::<u64>("maxConnectionsPerIP");
    let all = match all? {
        0 => DEFAULT_CONNECTIONS,
        some => some,
    };
    let per_ip = match per_ip?.filter(|cap| *cap != 0) {
        None => DEFAULT_PER_IP.min(all),
        Some(cap) if cap <= all => cap,
        Some(cap) => {
            let message = format!("{cap} is above maxConnections ({all})");
            complain(report, rule, "maxConnectionsPerIP", message);
            return None;
        }
    };
    Some((narrow(all)?, narrow(per_ip)?))
}

fn subset(rule: &Object, report: &mut Report) -> Option<Option<Subset>> {
    let Some(subset) = rule.maybe::<&Object>("subset")? else { return Some(None) };
    let nodes = subset.list("prefer")?;
    let sets: Vec<Option<_>> =
        nodes.iter().map(|node| target::labels(node.read()?, report)).collect();
    let prefer = sets.into_iter().collect::<Option<Vec<_>>>()?;
    Some(Some(Subset { prefer, fallback: subset.word("fallback")? }))
}

/// What a rule calls itself, when that much of it is right.
pub(super) fn written<'n>(node: &'n Node, field: &str) -> Option<(&'n Object, &'n str)> {
    let rule = node.read::<&Object>()?;
    Some((rule, rule.get::<&str>(field)?))
}

/// A message's reference to another rule.
pub(super) fn other(index: usize, field: &str, text: &str) -> String {
    format!("rules[{index}].{field} {}", quoted(text))
}
