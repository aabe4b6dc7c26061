//! How the lines of every rule are, and why each would be chosen or not.

use serde::Serialize;

use super::explain::{all, score};
use super::millis;
use crate::flow::Moment;
use crate::generation::{Generation, Routing, Rule};
use crate::select::explain::Explained;
use crate::upstream::LineSnapshot;

/// The whole answer. Fields are only added.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    generation: u64,
    rules: Vec<RuleStatus>,
}

#[derive(Debug, Serialize)]
struct RuleStatus {
    rule: String,
    mode: &'static str,
    listen: String,
    /// Those that would be tried come first, in their order, for a connection that any target
    /// may serve.
    lines: Vec<LineStatus>,
}

#[derive(Debug, Serialize)]
struct LineStatus {
    target: String,
    address: String,
    usable: bool,
    reason: &'static str,
    /// Attempts in flight and connections, all generations.
    active: u32,
    /// Failures in a row.
    failures: u32,
    /// How long the breaker stays open or the mark lasts; absent when neither is so.
    excluded_ms: Option<u64>,
    /// Mean connect time; absent while there is no sample.
    ewma_ms: Option<f64>,
    /// Mean time from the client's first byte to the upstream's; absent while there is no sample.
    first_byte_ms: Option<f64>,
    /// Lower is better: connections for `leastconn`, else milliseconds.
    score: f64,
    /// How long ago the last dial began; absent when there was none.
    last_attempt_ms: Option<u64>,
    /// Idle connections ready for use; absent when the rule does not prewarm.
    prewarmed: Option<usize>,
}

/// How the lines of a generation are.
pub(super) fn of(generation: &Generation, now: Moment) -> Status {
    let rules = generation.rules().map(|(configured, rule)| {
        // Once: positions of lines mean nothing in another set.
        let routing = rule.routing.load_full();
        let lines = all(rule, &routing.lines, now);
        RuleStatus {
            rule: configured.name.clone(),
            mode: configured.mode.as_str(),
            listen: configured.listen.text.clone(),
            lines: lines.iter().map(|line| self::line(rule, &routing, line, now)).collect(),
        }
    });
    Status { generation: generation.number().0, rules: rules.collect() }
}

fn line(rule: &Rule, routing: &Routing, explained: &Explained, now: Moment) -> LineStatus {
    let node = routing.lines.node(explained.line);
    let known = LineSnapshot::of(&node.line);
    let whole = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let until = known.open_until.unwrap_or_default().max(known.marked_until);
    LineStatus {
        target: node.name.to_string(),
        address: node.address.to_string(),
        usable: explained.usable,
        reason: explained.reason.as_str(),
        active: node.line.active(),
        failures: known.dial_streak.max(known.attributable_streak).max(known.fails),
        excluded_ms: (until > now).then(|| whole(until.since(now))),
        ewma_ms: millis(known.ewma_nanos),
        first_byte_ms: millis(known.first_byte_load.ewma.nanos()),
        score: score(explained.score, rule.selector.ranks_by_connections()),
        last_attempt_ms: (known.last_attempt != Moment::default())
            .then(|| whole(now.since(known.last_attempt))),
        prewarmed: routing.pool(explained.line).map(|pool| pool.idle()),
    }
}
