//! What the tests of several stages build their rules from.

use std::collections::BTreeMap;
use std::time::Duration;

use baton_config::model::{
    Address, Host, Listen, ListenHost, Mode, ProxyProtocol, Resolve, Rule, Target,
};

/// A target on the loopback, told apart by its port.
pub(crate) fn target(port: u16) -> Target {
    Target {
        address: Address { host: Host::Ip([127, 0, 0, 1].into()), port },
        name: format!("node-{port}"),
        weight: 1,
        backup: false,
        max_fails: None,
        fail_timeout: None,
        labels: BTreeMap::new(),
        resolve: Resolve::Dial,
        regexp: None,
        server_names: Vec::new(),
        alpn: Vec::new(),
    }
}

/// A rule with a time limit of 3 s and nothing else set.
pub(crate) fn rule(mode: Mode, targets: Vec<Target>) -> Rule {
    Rule {
        name: "rule".into(),
        listen: Listen { text: ":1".into(), host: ListenHost::Any, port: 1 },
        mode,
        targets,
        timeout: Duration::from_secs(3),
        idle_timeout: None,
        prewarm: false,
        health_check: None,
        proxy_protocol: ProxyProtocol::default(),
        allowlist: Vec::new(),
        blacklist: Vec::new(),
        max_connections: 1,
        max_connections_per_ip: 1,
        subset: None,
    }
}
