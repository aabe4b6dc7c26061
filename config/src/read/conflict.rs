//! What two rules must not share: names and listen addresses.
//!
//! Two listen addresses conflict when the kernel could not bind both, or when it could but a
//! client could not tell which one it reaches.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::rule::{other, written};
use super::{address, complain};
use crate::model::{Address, Host, Listen, ListenHost, Metrics};
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

/// A connection to such a target comes in at its own rule again, for ever.
pub(super) fn itself(nodes: &[Node], report: &mut Report) {
    for node in nodes {
        let Some((rule, text)) = written(node, "listen") else { continue };
        let Ok(listen) = address::listen(text) else { continue };
        for node in rule.list("targets").unwrap_or_default() {
            let Some((target, text)) = written(node, "address") else { continue };
            if address::target(text).is_ok_and(|target| reaches(&target, &listen)) {
                let message =
                    format!("{} is the rule's own listener: forwards to itself", quoted(text));
                complain(report, target, "address", message);
            }
        }
    }
}

/// Only what is certain from the text: a name may stand for another machine.
fn reaches(target: &Address, listen: &Listen) -> bool {
    let Host::Ip(target_ip) = target.host else { return false };
    if target.port != listen.port {
        return false;
    }
    // Connecting to the unspecified address is connecting to this machine.
    let here = target_ip.is_loopback() || target_ip.is_unspecified();
    match listen.host {
        ListenHost::Any => here,
        ListenHost::Ip(IpAddr::V6(ip)) if ip.is_unspecified() => here,
        ListenHost::Ip(IpAddr::V4(ip)) if ip.is_unspecified() => here && target_ip.is_ipv4(),
        ListenHost::Ip(ip) => ip == target_ip,
        ListenHost::Name(_) => false,
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
