//! What a reload would change.
#![allow(clippy::unwrap_used, clippy::panic)]

use baton_config::diff::{Diff, RuleChange};
use baton_config::model::Config;

fn config(sections: &str, rules: &[(&str, &str)]) -> Config {
    let rules: Vec<String> = rules
        .iter()
        .map(|(listen, extra)| {
            format!(
                r#"{{"name": "{listen}", "listen": "{listen}", "mode": "normal", "targets": [{{"address": "a:1"}}]{extra}}}"#
            )
        })
        .collect();
    let text = format!("{{{sections}\"rules\": [{}]}}", rules.join(","));
    match baton_config::parse("f", text.as_bytes()) {
        Ok(loaded) => loaded.config,
        Err(problems) => panic!("{problems}"),
    }
}

#[test]
fn writing_out_a_default_changes_nothing() {
    let old = config("", &[(":1", ""), (":2", "")]);
    let new = config(
        r#""log": {"level": "INFO", "path": ""}, "dns": {"stale": 600000}, "#,
        &[(":2", r#", "timeout": "3s", "maxConnections": 0"#), (":1", r#", "blacklist": null"#)],
    );
    let diff = Diff::new(&old, &new);
    assert!(diff.is_unchanged(), "{diff:?}");
    assert_eq!(diff.rules, [RuleChange::Kept(1), RuleChange::Kept(0)]);
}

#[test]
fn rules_are_matched_by_their_listen_text() {
    let old = config("", &[(":1", ""), (":2", ""), (":3", "")]);
    let new = config("", &[("127.0.0.1:4", ""), (":3", ""), (":1", r#", "timeout": 1"#)]);
    let diff = Diff::new(&old, &new);
    assert_eq!(diff.rules, [RuleChange::Added, RuleChange::Kept(2), RuleChange::Changed(0)]);
    assert_eq!(diff.removed, [1]);
    assert!(!diff.is_unchanged() && diff.needs_restart.is_empty());
}

#[test]
fn a_removed_rule_alone_is_a_change() {
    let diff = Diff::new(&config("", &[(":1", ""), (":2", "")]), &config("", &[(":1", "")]));
    assert_eq!(diff.removed, [1]);
    assert!(!diff.is_unchanged());
}

#[test]
fn name_resolution_is_reloadable() {
    let old = config("", &[(":1", "")]);
    let diff = Diff::new(&old, &config(r#""dns": {"prefer": "ipv6"}, "#, &[(":1", "")]));
    assert!(diff.dns_changed && diff.needs_restart.is_empty() && !diff.is_unchanged());
}

#[test]
fn every_field_of_the_other_sections_needs_a_restart() {
    let old = config("", &[(":1", "")]);
    let new = config(
        r#""log": {"level": "debug", "path": "x"},
           "metrics": {"enabled": true, "listen": "[::1]:9"},
           "supervisor": {"runtimeDir": "/x", "handover": "listeners", "crashRecovery": false,
                          "user": "nobody", "readyTimeout": "1s", "migrateTimeout": 1, "watch": 1,
                          "drainTimeout": 1, "regionSize": 65536, "workerThreads": 1,
                          "maxConnections": 1}, "#,
        &[(":1", "")],
    );
    let diff = Diff::new(&old, &new);
    let fields = [
        "log.level",
        "log.path",
        "metrics.enabled",
        "metrics.listen",
        "supervisor.runtimeDir",
        "supervisor.handover",
        "supervisor.crashRecovery",
        "supervisor.user",
        "supervisor.readyTimeout",
        "supervisor.migrateTimeout",
        "supervisor.watch",
        "supervisor.drainTimeout",
        "supervisor.regionSize",
        "supervisor.workerThreads",
        "supervisor.maxConnections",
    ];
    assert_eq!(diff.needs_restart, fields);
    assert!(!diff.is_unchanged());
    assert_eq!(Diff::new(&new, &old).needs_restart, fields);
}
