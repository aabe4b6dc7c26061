//! A compiled rule: everything a connection needs to know about where it came in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_config::model;
use nix::errno::Errno;

use crate::accept::admission::{Gate, Refusal};
use crate::accept::lists::{AccessPolicy, PrefixSet};
use crate::classify::Classifier;
use crate::classify::regex::Patterns;
use crate::classify::tls::HelloParser;
use crate::flow::{Candidates, Moment, Verdict};
use crate::logging::Limiter;
use crate::relay::Outcome;
use crate::select::Selector;
use crate::session::Unserved;
use crate::upstream::LineSet;

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// For logs and labels.
    pub(crate) name: Arc<str>,
    /// Its limits.
    pub(crate) gate: Gate,
    /// Blacklist and allowlist.
    pub(crate) policy: AccessPolicy,
    /// Who must send a PROXY header; `None` when none is expected.
    pub(crate) hops: Option<PrefixSet>,
    /// How long a decision, and then a dial, may take.
    pub(crate) timeout: Duration,
    /// Silence that ends a connection.
    pub(crate) idle: Option<Duration>,
    content: Content,
    selector: Arc<Selector>,
    lines: Arc<LineSet>,
    failures: Limiter,
    /// One kind of line a reason.
    refusals: [Limiter; Refusal::ALL.len()],
    resources: Limiter,
}

/// What a rule wants to know of the first bytes.
#[derive(Debug)]
pub(crate) enum Content {
    /// Nothing.
    Any,
    /// Mode `regex`.
    Patterns(Box<Patterns>),
    /// Mode `tls`.
    Hello,
}

impl Rule {
    /// Builds a rule from its compiled parts.
    pub(crate) fn new(rule: &model::Rule, gate: Gate, content: Content) -> Self {
        let trusted = &rule.proxy_protocol.trusted;
        Self {
            name: rule.name.as_str().into(),
            gate,
            policy: AccessPolicy::new(&rule.blacklist, &rule.allowlist),
            hops: (!trusted.is_empty()).then(|| PrefixSet::new(trusted)),
            timeout: rule.timeout,
            idle: rule.idle_timeout,
            content,
            selector: Arc::new(Selector::for_rule(rule)),
            lines: Arc::new(LineSet::for_rule(rule, |_| None, None)),
            failures: Limiter::default(),
            refusals: Default::default(),
            resources: Limiter::default(),
        }
    }

    /// A client was not let in: counts it, and says so at most once a second.
    pub(crate) fn refused(&self, refusal: Refusal, peer: Option<SocketAddr>, now: Moment) {
        if let Some(left_out) = self.refusals[refusal.index()].pass(now) {
            tracing::warn!(
                ruleName = &*self.name,
                remoteAddr = peer.map(tracing::field::display),
                reason = refusal.as_str(),
                left_out,
                "connection rejected"
            );
        }
    }

    /// The reader of first bytes, in the modes that have one.
    pub(crate) fn classifier(&self) -> Option<Classifier<'_>> {
        match &self.content {
            Content::Any => None,
            Content::Patterns(patterns) => Some(Classifier::Regex(patterns.scan())),
            Content::Hello => Some(Classifier::Tls(HelloParser::default())),
        }
    }

    /// The lines a connection with these first bytes may use; `None` when there is none.
    pub(crate) fn candidates(&self, verdict: &Verdict) -> Option<Candidates> {
        match verdict {
            Verdict::Unread => Some(self.lines.indexes().collect()),
            Verdict::Patterns(_) | Verdict::Hello(_) | Verdict::Opaque => None,
        }
    }

    /// Its lines.
    pub(crate) fn lines(&self) -> &Arc<LineSet> {
        &self.lines
    }

    /// Its selection.
    pub(crate) fn selector(&self) -> &Arc<Selector> {
        &self.selector
    }

    /// Bytes have been relayed.
    pub(crate) fn moved(&self, _to_upstream: u64, _to_client: u64) {}

    /// A relay has ended.
    pub(crate) fn ended(&self, _outcome: &Outcome, _lasted: Duration) {}

    /// A client found no upstream: says so at most once a second.
    pub(crate) fn failed(&self, why: Unserved, peer: SocketAddr, now: Moment) {
        if let Some(left_out) = self.failures.pass(now) {
            tracing::warn!(
                ruleName = &*self.name,
                remoteAddr = %peer,
                ?why,
                left_out,
                "connection failed"
            );
        }
    }

    /// Accepting has to pause because the process or the system lacks something.
    pub(crate) fn out_of_resources(&self, errno: Errno, pause: Duration, now: Moment) {
        if let Some(left_out) = self.resources.pass(now) {
            tracing::warn!(
                ruleName = &*self.name,
                error = errno.desc(),
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                left_out,
                "accepting pauses"
            );
        }
    }
}
