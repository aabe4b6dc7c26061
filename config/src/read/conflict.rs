//! What two rules must not share: names and listen addresses.
//!
//! Two listen addresses conflict when the kernel could not bind both, or when it could but a
//! client could not tell which one it reaches.

use std::collections::BTreeMap;

use super::rule::{other, written};
use super::{address, complain};
use crate::model::{Listen, ListenHost, Metrics};
use crate::problem::{Report, quoted};
use crate::shape::tree::{Node, Object};

pub(super) fn names(nodes: &[Node], report: &mut Report) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let Some((rule, name)) = written(node, "name") else { continue };
        match seen.get(name) {
            Some(first) => {
                let message = format!("duplicate name {} (also rules[{first}])", quoted(name));
                complain(report, rule, "name", message);
            }
            None => {
                seen.insert(name, index);
            }
        }
    }
}

/// Also looks at rules that are wrong elsewhere, as long as they say where they listen.
pub(super) fn listeners(
    nodes: &[Node],
    file: &Object,
    metrics: Option<&Metrics>,
    report: &mut Report,
) {
    let mut before: Vec<(usize, Listen)> = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let Some((rule, text)) = written(node, "listen") else { continue };
        let Ok(listen) = address::listen(text) else { continue };
        if let Some((first, theirs)) = before.iter().find(|(_, theirs)| clash(theirs, &listen)) {
            let message = if theirs.host == listen.host {
                format!("duplicate listen address {} (also rules[{first}])", quoted(text))
            } else {
                format!("{} conflicts with {}", quoted(text), other(*first, "listen", &theirs.text))
            };
            complain(report, rule, "listen", message);
        }
        before.push((index, listen));
    }
    let Some(metrics) = metrics.filter(|metrics| metrics.enabled) else { return };
    let admin = Listen {
        text: metrics.listen.to_string(),
        host: ListenHost::Ip(metrics.listen.ip()),
        port: metrics.listen.port(),
    };
    if let Some((index, theirs)) = before.iter().find(|(_, theirs)| clash(theirs, &admin))
        && let Some(Some(section)) = file.maybe::<&Object>("metrics")
    {
        let message = format!(
            "{} conflicts with {}",
            quoted(&admin.text),
            other(*index, "listen", &theirs.text)
        );
        complain(report, section, "listen", message);
    }
}

fn clash(one: &Listen, two: &Listen) -> bool {
    if one.port != two.port {
        return false;
    }
    match (&one.host, &two.host) {
        (ListenHost::Any, _) | (_, ListenHost::Any) => true,
        (ListenHost::Ip(one), ListenHost::Ip(two)) => {
            one.is_unspecified() || two.is_unspecified() || one == two
        }
        (ListenHost::Name(one), ListenHost::Name(two)) => one == two,
        (ListenHost::Ip(ip), ListenHost::Name(name))
        | (ListenHost::Name(name), ListenHost::Ip(ip)) => {
            ip.is_unspecified() || (ip.is_loopback() && name == "localhost")
        }
    }
}
