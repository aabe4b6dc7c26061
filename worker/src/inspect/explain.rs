//! Which targets a connection would be tried on, in which order, and why not on the others.

use std::net::{IpAddr, Ipv4Addr};

use serde::Serialize;

use super::{Connection, millis};
use crate::classify::{Progress, Reason as Ended};
use crate::flow::{Candidates, ClientAddr, Hello, Moment, TargetSet, Verdict};
use crate::generation::{Content, Generation, Rule};
use crate::select::Affinity;
use crate::select::explain::Explained;
use crate::upstream::LineSet;

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Explanation {
    rule: String,
    mode: &'static str,
    generation: u64,
    candidates: Vec<Candidate>,
}

/// One line; those that would be tried come first, in their order.
#[derive(Debug, Serialize)]
struct Candidate {
    order: usize,
    address: String,
    usable: bool,
    reason: &'static str,
    /// Mean connect time; absent while there is no sample.
    ewma_ms: Option<f64>,
    /// What the mode ranks by, lower is better: connections for `leastconn`, else milliseconds.
    score: f64,
}

/// Explains where a connection would go.
pub(super) fn explain(
    generation: &Generation,
    connection: &Connection,
    now: Moment,
) -> Result<Explanation, String> {
    let name = &connection.rule;
    let (configured, rule) =
        generation.rules().find(|(configured, _)| configured.name == *name).ok_or_else(|| {
            let known: Vec<_> = generation.rules().map(|(rule, _)| rule.name.as_str()).collect();
            format!("no rule is called {name:?}; there are {}", known.join(", "))
        })?;
    let verdict = verdict(rule, connection)?;
    let routing = rule.routing.load_full();
    let lines = &routing.lines;
    let client = connection.client.map(|ip| ClientAddr::folded((ip, 0).into()).ip());
    let refused = client.is_some_and(|client| !rule.policy.admits(client));
    let allowed = routing.router.allowed(&verdict, lines);
    let candidates = routing.router.candidates(&verdict, lines, now).unwrap_or_default();
    let client = client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let affinity = Affinity::of(&verdict, client);
    let explained = rule.selector.explain(lines, &allowed, &candidates, affinity, now);
    let counts = rule.selector.ranks_by_connections();
    let candidate = |(position, explained): (usize, &Explained)| Candidate {
        order: position + 1,
        address: lines.node(explained.line).address.to_string(),
        usable: explained.usable && !refused,
        reason: if refused { "client not allowed" } else { explained.reason.as_str() },
        ewma_ms: millis(explained.ewma_nanos),
        score: score(explained.score, counts),
    };
    Ok(Explanation {
        rule: configured.name.clone(),
        mode: configured.mode.as_str(),
        generation: generation.number().0,
        candidates: explained.iter().enumerate().map(candidate).collect(),
    })
}

/// A score in the unit that is shown.
#[allow(clippy::cast_precision_loss, reason = "a rank for people, not a count to reckon with")]
pub(super) fn score(score: u64, counts: bool) -> f64 {
    if counts { score as f64 } else { (score / 1000) as f64 / 1000.0 }
}

/// What the connection's first bytes would say.
fn verdict(rule: &Rule, connection: &Connection) -> Result<Verdict, String> {
    let Some(mut classifier) = rule.classifier() else { return Ok(Verdict::Unread) };
    if let Some(hex) = &connection.bytes {
        let bytes = unhex(hex)?;
        let shown = bytes.get(..classifier.limit()).unwrap_or(&bytes);
        let decision = match classifier.feed(shown) {
            Progress::Decided(decision) => decision,
            // Nobody says more: the time for the decision passes.
            Progress::NeedMore => classifier.end(shown, Ended::Deadline),
        };
        return Ok(decision.verdict().clone());
    }
    Ok(match rule.content() {
        Content::Hello if connection.sni.is_some() || !connection.alpn.is_empty() => {
            Verdict::Hello(hello(connection)?)
        }
        Content::Host => match canonical(connection.sni.as_deref()) {
            Some(host) => Verdict::Host(host),
            None => Verdict::Opaque,
        },
        Content::Hello => Verdict::Opaque,
        Content::Patterns(_) => Verdict::Patterns(TargetSet::default()),
        Content::Any => Verdict::Unread,
    })
}

fn hello(connection: &Connection) -> Result<Hello, String> {
    let server_name = canonical(connection.sni.as_deref());
    let mut alpn = Vec::new();
    for protocol in &connection.alpn {
        let length = u8::try_from(protocol.len()).ok().filter(|&length| length > 0);
        alpn.push(length.ok_or_else(|| format!("no protocol is called {protocol:?}"))?);
        alpn.extend_from_slice(protocol.as_bytes());
    }
    Ok(Hello { server_name, alpn: alpn.into() })
}

/// A name as the reader of a hello would give it.
fn canonical(name: Option<&str>) -> Option<Box<str>> {
    let name = name.filter(|name| !name.is_empty())?;
    Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase().into())
}

fn unhex(hex: &str) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    bytes.filter(|_| rest.is_empty()).ok_or_else(|| "bytes are not hexadecimal".to_owned())
}

/// Every line of a rule as it is for a connection that any target may serve.
pub(super) fn all(rule: &Rule, lines: &LineSet, now: Moment) -> Vec<Explained> {
    let everything: Candidates = lines.indexes().collect();
    rule.selector.explain(lines, &everything, &everything, Affinity::default(), now)
}
