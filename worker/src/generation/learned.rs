//! What was learned about lines, where other processes find it.
//!
//! Each line has a record in the metrics region. The serving worker stores what it knows once a
//! second; a worker that takes over after an upgrade or a crash begins with it. Known by the
//! names of rule and target and the address, so a target that is renamed or moved starts fresh.

use baton_config::model::{Address, Rule, Target};
use baton_metrics::Record;

use crate::net;
use crate::process::Process;
use crate::upstream::snapshot::SCHEMA;
use crate::upstream::{Gate, Line, LineSnapshot};

/// The record of a line.
pub(crate) fn record(process: &Process, rule: &str, target: &str, address: &Address) -> Record {
    process.lane().record(SCHEMA.into(), rule, &format!("{target} {address}"))
}

/// A line that knows what the last process to serve it had learned, if there was one.
pub(super) fn recall(
    process: &Process,
    rule: &Rule,
    target: &Target,
    address: &Address,
    gate: Gate,
) -> Line {
    record(process, &rule.name, &target.name, address)
        .load()
        .and_then(|words| LineSnapshot::from_words(&words, net::now()))
        .map_or_else(|| Line::new(gate), |learned| learned.revive(gate))
}
