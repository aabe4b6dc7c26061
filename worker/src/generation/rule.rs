//! A compiled rule: everything a connection needs to know about where it came in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use baton_config::model::{self, Host, ProxyVersion};
use baton_handoff::table::{RuleKey, TargetKey};
use nix::errno::Errno;

use crate::accept::admission::{Gate, Refusal};
use crate::accept::lists::{AccessPolicy, PrefixSet};
use crate::classify::Classifier;
use crate::classify::host::HostParser;
use crate::classify::regex::Patterns;
use crate::classify::tls::HelloParser;
use crate::flow::{ClientAddr, LineIndex, Moment};
use crate::generation::{Routing, RuleSeries};
use crate::limiter::Limiter;
use crate::names::Names;
use crate::prewarm::Pools;
use crate::process::Process;
use crate::select::{Selector, Winner};
use crate::upstream::Node;

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// What other processes know it by.
    pub(crate) key: RuleKey,
    /// What other processes know its targets by, in the order of the configuration.
    targets: Box<[TargetKey]>,
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
        let of_target = |target: &model::Target| TargetKey::of(&target.address.to_string());
        Self {
            key: RuleKey::of(&rule.listen.text),
            targets: rule.targets.iter().map(of_target).collect(),
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

    /// What other processes know a target by.
    pub(crate) fn target_key(&self, target: u16) -> TargetKey {
        self.targets.get(usize::from(target)).copied().unwrap_or_default()
    }

    /// The line that serves a connection which came from another process, counted as active:
    /// one of the same target, at best to the same address and at the same place.
    pub(crate) fn adopt(
        &self,
        target: TargetKey,
        place: u16,
        upstream: SocketAddr,
    ) -> Option<Winner> {
        let lines = &self.routing.load().lines;
        let likeness = |(_, node): &(LineIndex, &Node)| {
            let address = matches!(node.address.host, Host::Ip(ip) if ip == upstream.ip());
            (address, node.target == place)
        };
        let of_target = lines.iter().filter(|(_, node)| self.target_key(node.target) == target);
        let (index, node) = of_target.max_by_key(likeness)?;
        Some(Winner::adopted(index, node.line.adopt()))
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
