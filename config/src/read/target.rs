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
    let targets: Vec<Option<Target>> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| read(node.read()?, index, mode, report))
        .collect();
    unique_names(nodes, &targets, report);
    if let Some(mode) = mode {
        one_fallback(nodes, &targets, mode, report);
        some_primary(nodes, &targets, report);
    }
    targets.into_iter().collect()
}

fn read(
    target: &Object,
    index: usize,
    mode: Option<ModeWord>,
    report: &mut Report,
) -> Option<Target> {
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
        None => Some(format!("node-{index}")),
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

fn unique_names(nodes: &[Node], targets: &[Option<Target>], report: &mut Report) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, (target, node)) in targets.iter().zip(nodes).enumerate() {
        let (Some(target), Some(object)) = (target, node.read()) else { continue };
        if let Some(first) = seen.insert(&target.name, index) {
            let message =
                format!("duplicate name {} (also targets[{first}])", quoted(&target.name));
            complain(report, object, "name", message);
        }
    }
}

/// In `regex` and `tls` a target without matchers takes what nothing else matches.
fn one_fallback(nodes: &[Node], targets: &[Option<Target>], mode: ModeWord, report: &mut Report) {
    let (bare, lacks): (fn(&Target) -> bool, _) = match mode {
        ModeWord::Regex => (|target| target.regexp.is_none(), "regexp"),
        ModeWord::Tls => (
            |target| target.server_names.is_empty() && target.alpn.is_empty(),
            "serverNames or alpn",
        ),
        ModeWord::Normal | ModeWord::Boost | ModeWord::RoundRobin | ModeWord::Forward => return,
    };
    let mut first = None;
    for (index, (target, node)) in targets.iter().zip(nodes).enumerate() {
        if !target.as_ref().is_some_and(bare) {
            continue;
        }
        match first {
            None => first = Some(index),
            Some(first) => {
                let message =
                    format!("at most one fallback target (targets[{first}] has no {lacks} either)");
                report.add(node.at, node.path.as_str(), message);
            }
        }
    }
}

fn some_primary(nodes: &[Node], targets: &[Option<Target>], report: &mut Report) {
    let all = targets.iter().all(|target| target.as_ref().is_some_and(|target| target.backup));
    if all
        && let Some(first) = nodes.first()
        && let Some(object) = first.read()
    {
        complain(report, object, "backup", "at least one target must not be a backup");
    }
}
