//! A compiled rule: everything a connection needs to know about where it came in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use baton_config::model::{self, ProxyVersion};
use nix::errno::Errno;

use crate::accept::admission::{Gate, Refusal};
use crate::accept::lists::{AccessPolicy, PrefixSet};
use crate::classify::Classifier;
use crate::classify::host::HostParser;
use crate::classify::regex::Patterns;
use crate::classify::tls::HelloParser;
use crate::flow::{ClientAddr, Moment};
use crate::generation::{Routing, RuleSeries};
use crate::limiter::Limiter;
use crate::names::Names;
use crate::prewarm::Pools;
use crate::process::Process;
use crate::select::Selector;

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
    /// The PROXY header that each upstream connection begins with.
    pub(crate) header: Option<ProxyVersion>,
    /// How long a decision, and then a dial, may take.
    pub(crate) timeout: Duration,
    /// Silence that ends a connection.
    pub(crate) idle: Option<Duration>,
    /// What was learned between connections; shared with earlier generations of an equal rule.
    pub(crate) selector: Arc<Selector>,
    /// The lines as they are now.
    pub(crate) routing: ArcSwap<Routing>,
    content: Content,
    /// One a shard.
    series: Box<[RuleSeries]>,
    failures: Limiter,
    resources: Limiter,
    /// One kind of line a reason.
    refusals: [Limiter; Refusal::ALL.len()],
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
    /// Mode `forward` that hashes by host.
    Host,
}

/// What a rule shares with the rest of its generation and of the process.
pub(crate) struct Surroundings<'a> {
    /// The process.
    pub(crate) process: &'a Process,
    /// The names of the generation.
    pub(crate) names: &'a Names,
    /// The idle connections of the generation.
    pub(crate) pools: &'a Pools,
    /// The rule of the generation before that this one equals, if it does.
    pub(crate) before: Option<&'a Rule>,
}

impl Rule {
    /// Builds a rule from its compiled parts.
    pub(crate) fn new(
        rule: &model::Rule,
        gate: Gate,
        content: Content,
        around: &Surroundings<'_>,
    ) -> Self {
        let Surroundings { process, names, pools, before } = around;
        let trusted = &rule.proxy_protocol.trusted;
        let selector = before.map_or_else(
            || Arc::new(Selector::for_rule(rule)),
            |before| Arc::clone(&before.selector),
        );
        let lines = before.map(|before| Arc::clone(&before.routing.load().lines));
        let routing = Routing::new(rule, names, pools, process, lines.as_deref());
        Self {
            name: rule.name.as_str().into(),
            gate,
            policy: AccessPolicy::new(&rule.blacklist, &rule.allowlist),
            hops: (!trusted.is_empty()).then(|| PrefixSet::new(trusted)),
            header: rule.proxy_protocol.send,
            timeout: rule.timeout,
            idle: rule.idle_timeout,
            selector,
            routing: ArcSwap::from_pointee(routing),
            content,
            series: process.lanes.iter().map(|lane| RuleSeries::new(rule, lane)).collect(),
            failures: Limiter::default(),
            resources: Limiter::default(),
            refusals: Default::default(),
        }
    }

    /// Takes new answers of names into the lines. What was learned stays with the address.
    pub(crate) fn renew(
        &self,
        rule: &model::Rule,
        names: &Names,
        pools: &Pools,
        process: &Process,
    ) {
        let before = self.routing.load();
        let routing = Routing::new(rule, names, pools, process, Some(&before.lines));
        self.routing.store(Arc::new(routing));
    }

    /// The reader of first bytes, in the modes that have one.
    pub(crate) fn classifier(&self) -> Option<Classifier<'_>> {
        match &self.content {
            Content::Any => None,
            Content::Patterns(patterns) => Some(Classifier::Regex(patterns.scan())),
            Content::Hello => Some(Classifier::Tls(HelloParser::default())),
            Content::Host => Some(Classifier::Host(HostParser::default())),
        }
    }

    /// What it wants to know of the first bytes.
    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// What this shard counts of it.
    pub(crate) fn series(&self, shard: usize) -> &RuleSeries {
        &self.series[shard]
    }

    /// A client was not let in: says so at most once a second.
    pub(crate) fn tell_refused(&self, refusal: Refusal, peer: Option<SocketAddr>, now: Moment) {
        if let Some(left_out) = self.refusals[refusal.index()].pass(now) {
            tracing::warn!(
                ruleName = &*self.name,
                remoteAddr = peer.map(|peer| tracing::field::display(ClientAddr::folded(peer).0)),
                reason = refusal.as_str(),
                left_out,
                "connection rejected"
            );
        }
    }

    /// How often it may be said that a client found no upstream.
    pub(crate) fn failures(&self) -> &Limiter {
        &self.failures
    }

    /// Accepting has to pause because the process or the system lacks something.
    pub(crate) fn tell_lack(&self, errno: Errno, pause: Duration, now: Moment) {
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
