//! `allowlist`, `blacklist` and `proxyProtocol`: who may come in, and as whom.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{address, complain, section, texts, whole};
use crate::model::{ProxyProtocol, ProxyVersion};
use crate::problem::Report;
use crate::shape::tree::{Chosen, Object};
use crate::words::Word as _;

pub(super) fn allowlist(rule: &Object, report: &mut Report) -> Option<Vec<IpNet>> {
    whole(texts(rule.list("allowlist")?, report, address::net))
}

/// The addresses of the `true` entries, sorted and each once.
pub(super) fn blacklist(rule: &Object, report: &mut Report) -> Option<Vec<IpAddr>> {
    let mut refused = Vec::new();
    let mut all = true;
    for (key, node) in rule.map("blacklist")? {
        match (address::ip(key), node.read::<bool>()) {
            (Ok(ip), Some(true)) => refused.push(ip),
            (Ok(_), Some(false)) => {}
            (Ok(_), None) => all = false,
            (Err(message), _) => {
                report.add(node.at, node.path.as_str(), message);
                all = false;
            }
        }
    }
    refused.sort_unstable();
    refused.dedup();
    all.then_some(refused)
}

pub(super) fn proxy_protocol(rule: &Object, report: &mut Report) -> Option<ProxyProtocol> {
    let section = section(rule, "proxyProtocol")?;
    let proxy = section.get();
    let accept = proxy.get::<bool>("accept");
    let nodes = proxy.list("trustedCIDRs");
    let trusted = nodes.and_then(|nodes| whole(texts(nodes, report, address::net)));
    if let (Some(accept), Some(nodes)) = (accept, nodes) {
        if accept && nodes.is_empty() {
            complain(report, proxy, "trustedCIDRs", "accept needs at least one trusted network");
        }
        if !accept && !nodes.is_empty() {
            let message = "trustedCIDRs is only valid with \"accept\": true";
            complain(report, proxy, "trustedCIDRs", message);
        }
    }
    let send = proxy.maybe::<Chosen>("send")?;
    let send = send.and_then(|chosen| ProxyVersion::parse(chosen.0));
    accept?;
    Some(ProxyProtocol { trusted: trusted?, send })
}
