//! `targets` of a rule, and what may stand only once among them.

use std::collections::BTreeMap;

use super::{address, complain, is_name, narrow, rule, tls};
use crate::model::Target;
use crate::problem::{Report, quoted};
use crate::shape::tree::{Node, Object};
use crate::words::ModeWord;

/// The targets of a rule; `mode` is absent when it is wrong, then nothing is said about it.
pub(super) fn list(
    nodes: &[Node],
    mode: Option<ModeWord>,
    report: &mut Report,
) -> Option<Vec<Target>> {
    let targets: Vec<Option<Target>> =
        nodes.iter().map(|node| read(node.read()?, mode, report)).collect();
    unique_names(nodes, report);
    if let Some(mode) = mode {
        one_fallback(nodes, mode, report);
        if mode == ModeWord::Forward {
            some_primary(nodes, report);
        }
    }
    let mut targets: Vec<Target> = targets.into_iter().collect::<Option<_>>()?;
    name_the_rest(&mut targets);
    Some(targets)
}

fn read(target: &Object, mode: Option<ModeWord>, report: &mut Report) -> Option<Target> {
    if let Some(mode) = mode {
        rule::legal(target, mode, report);
    }
    let address = target.get::<&str>("address").and_then(|text| match address::target(text) {
        Ok(address) => Some(address),
        Err(message) => {
            complain(report, target, "address", message);
            None
        }
    });
    let name = target.maybe::<&str>("name").and_then(|name| match name {
        // Named after its address once all are known.
        None => Some(String::new()),
        Some(name) if is_name(name) => Some(name.to_owned()),
        Some(name) => {
            let message = format!("invalid name {} (1 to 64 of A-Z a-z 0-9 . _ -)", quoted(name));
            complain(report, target, "name", message);
            None
        }
    });
    let labels = target.map("labels").and_then(|pairs| labels(pairs, report));
    let server_names = tls::server_names(target, report);
    let alpn = tls::alpn(target, report);
    let regexp = target.maybe::<&str>("regexp");
    Some(Target {
        address: address?,
        name: name?,
        weight: target.get("weight").and_then(narrow)?,
        backup: target.get("backup")?,
        max_fails: match target.maybe("maxFails")? {
            Some(fails) => Some(narrow(fails)?),
            None => None,
        },
        fail_timeout: target.maybe("failTimeout")?,
        labels: labels?,
        resolve: target.word("resolve")?,
        // Moto writes an empty pattern where there is none.
        regexp: regexp?.filter(|pattern| !pattern.is_empty()).map(str::to_owned),
        server_names: server_names?,
        alpn: alpn?,
    })
}

/// A label set. Keys may have a `/` besides what a name may have, as in Kubernetes.
pub(super) fn labels(
    pairs: &[(String, Node)],
    report: &mut Report,
) -> Option<BTreeMap<String, String>> {
    let mut whole = true;
    let mut labels = BTreeMap::new();
    for (key, node) in pairs {
        let key_good = is_name(&key.replace('/', "-"));
        if !key_good {
            let message = format!("invalid label {} (1 to 64 of A-Z a-z 0-9 . _ - /)", quoted(key));
            report.add(node.at, node.path.as_str(), message);
        }
        let value = node.read::<&str>();
        let value_good = value.is_some_and(is_name);
        if let Some(value) = value
            && !value_good
        {
            let message = format!("invalid value {} (1 to 64 of A-Z a-z 0-9 . _ -)", quoted(value));
            report.add(node.at, node.path.as_str(), message);
        }
        if let Some(value) = value
            && value_good
            && key_good
        {
            labels.insert(key.clone(), value.to_owned());
        } else {
            whole = false;
        }
    }
    whole.then_some(labels)
}

// The checks between targets look at what is written, not at finished targets: a target that is
// wrong elsewhere still takes part.

fn unique_names(nodes: &[Node], report: &mut Report) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let Some(target) = node.read::<&Object>() else { continue };
        let Some(Some(name)) = target.maybe::<&str>("name") else { continue };
        match seen.get(name) {
            Some(first) => {
                let message = format!("duplicate name {} (also targets[{first}])", quoted(name));
                complain(report, target, "name", message);
            }
            None => {
                seen.insert(name, index);
            }
        }
    }
}

/// A target without a name is called what it is: its address. One that is written again gets a
/// number, so that a name stands for one target. A name that is given has no `:` and never meets
/// these.
fn name_the_rest(targets: &mut [Target]) {
    let mut written: BTreeMap<String, usize> = BTreeMap::new();
    for target in targets.iter_mut().filter(|target| target.name.is_empty()) {
        let address = target.address.to_string();
        let count = written.entry(address.clone()).or_default();
        *count += 1;
        target.name = if *count == 1 { address } else { format!("{address}#{count}") };
    }
}

/// In `regex` and `tls` a target without matchers takes what nothing else matches.
fn one_fallback(nodes: &[Node], mode: ModeWord, report: &mut Report) {
    let empty = |target: &Object, list| target.list(list).is_some_and(<[Node]>::is_empty);
    let is_fallback = |target: &Object| match mode {
        ModeWord::Regex => {
            target.maybe::<&str>("regexp").is_some_and(|r| r.is_none_or(str::is_empty))
        }
        ModeWord::Tls => empty(target, "serverNames") && empty(target, "alpn"),
        ModeWord::Normal | ModeWord::Boost | ModeWord::RoundRobin | ModeWord::Forward => false,
    };
    let mut fallbacks =
        nodes.iter().enumerate().filter(|(_, node)| node.read().is_some_and(is_fallback));
    let Some((first, _)) = fallbacks.next() else { return };
    for (_, node) in fallbacks {
        let message = format!(
            "at most one fallback target (targets[{first}] matches nothing of its own either)"
        );
        report.add(node.at, node.path.as_str(), message);
    }
}

fn some_primary(nodes: &[Node], report: &mut Report) {
    let is_backup = |node: &Node| {
        node.read::<&Object>().and_then(|target| target.get("backup")).unwrap_or(false)
    };
    if let Some(first) = nodes.first().and_then(|node| node.read::<&Object>())
        && nodes.iter().all(is_backup)
    {
        complain(report, first, "backup", "at least one target must not be a backup");
    }
}
