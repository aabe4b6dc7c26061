//! What each option of Baton costs: the same binary, one change at a time.
//!
//! An option that the binary does not know is left out with what it says about it, so that
//! the list may run ahead of the program.

use std::path::Path;

use serde_json::{Value, json};

use crate::target::{Baton, Target};

/// The basic configuration, then one variant an option.
pub(crate) fn variants(binary: &Path) -> Vec<Baton> {
    let one = |name: &str, targets: u16, change: Value| Baton {
        name: name.to_owned(),
        binary: binary.to_owned(),
        change,
        targets,
    };
    let sixteen = |mode: &str| json!({ "rule": { "mode": mode } });
    vec![
        one("baton", 1, json!({})),
        one("no crash recovery", 1, json!({ "supervisor": { "crashRecovery": false } })),
        one("no allowlist", 1, json!({ "rule": { "allowlist": null } })),
        one("idle timeout", 1, json!({ "rule": { "idleTimeout": "1h" } })),
        one("health check", 1, json!({ "rule": { "healthCheck": { "type": "tcp" } } })),
        one("PROXY v1 out", 1, json!({ "rule": { "proxyProtocol": { "send": "v1" } } })),
        one("PROXY v2 out", 1, json!({ "rule": { "proxyProtocol": { "send": "v2" } } })),
        one("prewarm", 1, json!({ "rule": { "mode": "normal", "prewarm": true } })),
        one("access log", 1, json!({ "rule": { "accessLog": { "path": "/dev/null" } } })),
        one("normal", 1, sixteen("normal")),
        one("boost", 1, sixteen("boost")),
        one("roundrobin, 16", 16, sixteen("roundrobin")),
        one("boost, 16", 16, sixteen("boost")),
        one("forward, 16", 16, json!({})),
    ]
}

/// The variants that the binary accepts, and a line about each that it does not.
pub(crate) fn accepted(variants: Vec<Baton>) -> (Vec<Target>, Vec<String>) {
    let (mut targets, mut left_out) = (Vec::new(), Vec::new());
    for variant in variants {
        match variant.check() {
            Ok(()) => targets.push(Target::Baton(variant)),
            Err(said) => {
                let first = said.lines().next().unwrap_or_default();
                // From the field on: the file is a temporary one and says nothing.
                let what = first.find("$.").map_or(first, |at| &first[at..]);
                left_out.push(format!("left out: {}: {what}", variant.name));
            }
        }
    }
    (targets, left_out)
}
