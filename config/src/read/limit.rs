//! Caps over the whole file: what each rule may have, all of them together may not.

use std::collections::BTreeSet;

use crate::model::Rule;
use crate::problem::Report;
use crate::shape::tree::Node;

/// Probes of all rules, counted by distinct address in a rule.
const MAX_HEALTH_CHECKS: usize = 1024;
/// Distinct addresses with idle sockets.
const MAX_PREWARM: usize = 256;

/// Reported at the rule that goes over a cap.
pub(super) fn file(nodes: &[Node], rules: &[Option<Rule>], report: &mut Report) {
    let mut checks = 0;
    let mut over = None;
    let mut warm = BTreeSet::new();
    let mut over_warm = None;
    for (node, rule) in nodes.iter().zip(rules) {
        let Some(rule) = rule else { continue };
        let addresses: BTreeSet<_> = rule.targets.iter().map(|target| &target.address).collect();
        if rule.health_check.is_some() {
            checks += addresses.len();
            if checks > MAX_HEALTH_CHECKS {
                over.get_or_insert(node);
            }
        }
        if rule.prewarm {
            warm.extend(addresses);
            if warm.len() > MAX_PREWARM {
                over_warm.get_or_insert(node);
            }
        }
    }
    if let Some(node) = over {
        let message = format!("too many health checks ({checks} > {MAX_HEALTH_CHECKS})");
        report.add(node.at, crate::position::join(&node.path, "healthCheck"), message);
    }
    if let Some(node) = over_warm {
        let message = format!("too many prewarm targets ({} > {MAX_PREWARM})", warm.len());
        report.add(node.at, crate::position::join(&node.path, "prewarm"), message);
    }
}
