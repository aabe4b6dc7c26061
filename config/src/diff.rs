//! What a new configuration changes in a running one. Pure: two models in, a plan out.
//!
//! A rule of the new file is matched to the old rule with literally the same `listen` text: that
//! rule's socket is the one to keep. Whether the two rules are equal is decided after defaults,
//! so that writing out a default changes nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::model::{Config, Rule};
use crate::print;
use crate::shape::{Kind, table};

/// The difference of two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// For every rule of the new configuration, in its order, what it is to the old one.
    pub rules: Vec<RuleChange>,
    /// Rules of the old configuration (by index) whose listener is gone.
    pub removed: Vec<usize>,
    /// Section `dns` differs.
    pub dns_changed: bool,
    /// Fields that a running instance cannot take over, such as `log.level`, in the order of the
    /// documentation. A reload that has any is refused as a whole.
    pub needs_restart: Vec<String>,
}

/// What a new rule is to the old configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleChange {
    /// Equal to the old rule of this index: its state carries over.
    Kept(usize),
    /// Listens where the old rule of this index does: the socket stays, the state starts fresh.
    Changed(usize),
    /// Listens where no old rule does.
    Added,
}

impl Diff {
    /// Compares the running configuration with a new one.
    #[must_use]
    pub fn new(old: &Config, new: &Config) -> Self {
        let by_listen: BTreeMap<&str, (usize, &Rule)> = old
            .rules
            .iter()
            .enumerate()
            .map(|(index, rule)| (rule.listen.text.as_str(), (index, rule)))
            .collect();
        let rules: Vec<RuleChange> = new
            .rules
            .iter()
            .map(|rule| match by_listen.get(rule.listen.text.as_str()) {
                Some((index, old)) if *old == rule => RuleChange::Kept(*index),
                Some((index, _)) => RuleChange::Changed(*index),
                None => RuleChange::Added,
            })
            .collect();
        let gone = |index: &usize| {
            let stays = [RuleChange::Kept(*index), RuleChange::Changed(*index)];
            !rules.iter().any(|change| stays.contains(change))
        };
        let removed = (0..old.rules.len()).filter(gone).collect();
        Self { rules, removed, dns_changed: old.dns != new.dns, needs_restart: restart(old, new) }
    }

    /// Nothing to do: a reload is answered with success and changes no generation.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let kept = self.rules.iter().all(|change| matches!(change, RuleChange::Kept(_)));
        kept && self.removed.is_empty() && !self.dns_changed && self.needs_restart.is_empty()
    }
}

fn restart(old: &Config, new: &Config) -> Vec<String> {
    let sections = [
        ("log", fields(&print::Log::from(&old.log)), fields(&print::Log::from(&new.log))),
        (
            "metrics",
            fields(&print::Metrics::from(&old.metrics)),
            fields(&print::Metrics::from(&new.metrics)),
        ),
        (
            "supervisor",
            fields(&print::Supervisor::from(&old.supervisor)),
            fields(&print::Supervisor::from(&new.supervisor)),
        ),
    ];
    let mut changed = Vec::new();
    for (section, old, new) in sections {
        let Some(Kind::Object(shape)) = table::FILE.field(section).map(|field| &field.kind) else {
            continue;
        };
        for field in shape.names().filter(|field| old.get(field) != new.get(field)) {
            changed.push(format!("{section}.{field}"));
        }
    }
    changed
}

/// A section as its printed fields, so that no field can be forgotten here.
fn fields(section: &impl serde::Serialize) -> Value {
    serde_json::to_value(section).expect("texts and numbers are always JSON")
}
