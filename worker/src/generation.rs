//! One compiled configuration and all that lives with it.
//!
//! A generation is immutable once published. Publishing is one atomic store that every shard
//! sees at its next accept; a connection holds the generation that admitted it until it ends,
//! so a reload never changes the rules of a live connection, and the last connection of a
//! retired generation frees it. What outlives generations (counts, line state, series) is
//! shared into them when they are built.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use baton_config::model::{self, Config};
use baton_handoff::message::{Generation as Number, ListenerKey};
use baton_handoff::table::RuleKey;

use crate::accept::admission::Refusal;
use crate::accept::listeners::ListenerId;
use crate::flow::ClientAddr;
use crate::names::Names;
use crate::prewarm::Pools;
use crate::process::Process;

pub(crate) mod blueprint;
pub(crate) mod learned;
mod routing;
mod rule;
mod series;

pub(crate) use routing::{Path, Routing, with_port};
pub(crate) use rule::{Content, Rule, Surroundings};
pub(crate) use series::{RefreshSeries, RuleSeries};

/// The position of a rule in its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RuleIndex(u16);

/// A compiled configuration.
#[derive(Debug)]
pub(crate) struct Generation {
    number: Number,
    config: Arc<Config>,
    rules: Box<[Rule]>,
    names: Names,
    pools: Pools,
    by_listener: Box<[(ListenerId, RuleIndex)]>,
}

impl Generation {
    /// A generation of these rules, each with the socket its clients come in through.
    pub(crate) fn new(
        number: Number,
        config: Arc<Config>,
        names: Names,
        pools: Pools,
        rules: impl IntoIterator<Item = (ListenerId, Rule)>,
    ) -> Self {
        let (by_listener, rules): (Vec<_>, Vec<_>) = (0u16..)
            .zip(rules)
            .map(|(position, (listener, rule))| ((listener, RuleIndex(position)), rule))
            .unzip();
        Self { number, config, rules: rules.into(), names, pools, by_listener: by_listener.into() }
    }

    /// The rule whose clients come in through this socket, if this generation has it.
    pub(crate) fn rule_of(&self, listener: ListenerId) -> Option<RuleIndex> {
        self.by_listener.iter().find(|(id, _)| *id == listener).map(|&(_, rule)| rule)
    }

    /// A rule of this generation.
    pub(crate) fn rule(&self, index: RuleIndex) -> &Rule {
        &self.rules[usize::from(index.0)]
    }

    /// The rule that connections of this key belong to, if this generation has it.
    pub(crate) fn rule_by_key(&self, key: RuleKey) -> Option<RuleIndex> {
        let position = self.rules.iter().position(|rule| rule.key == key)?;
        u16::try_from(position).ok().map(RuleIndex)
    }

    /// The number the supervisor gave it.
    pub(crate) fn number(&self) -> Number {
        self.number
    }

    /// What it was compiled from.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The names of its targets.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// All rules, in the order of the configuration.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&model::Rule, &Rule)> {
        self.config.rules.iter().zip(&self.rules)
    }

    /// Takes the new answer of a name into the lines that depend on it; returns the positions of
    /// their rules.
    pub(crate) fn renew(&self, name: &str, process: &Process) -> Vec<usize> {
        let mut renewed = Vec::new();
        for (position, (configured, rule)) in self.rules().enumerate() {
            if routing::expands(configured, name) {
                rule.renew(configured, &self.names, &self.pools, process);
                renewed.push(position);
            }
        }
        renewed
    }

    /// The listeners it uses.
    pub(crate) fn keys(&self) -> BTreeSet<ListenerKey> {
        blueprint::keys(&self.config)
    }
}

/// A connection's right to exist: its slots, its rule and, through it, its generation.
#[derive(Debug)]
pub(crate) struct Permit {
    generation: Arc<Generation>,
    rule: RuleIndex,
    /// The address whose share was taken.
    client: Cell<Option<IpAddr>>,
}

impl Permit {
    /// Takes a slot of the process and of the rule.
    pub(crate) fn enter(generation: &Arc<Generation>, rule: RuleIndex) -> Result<Self, Refusal> {
        generation.rule(rule).gate.enter()?;
        Ok(Self { generation: Arc::clone(generation), rule, client: Cell::new(None) })
    }

    /// For a connection that came from another process: takes every slot, whatever the limits.
    pub(crate) fn adopted(generation: &Arc<Generation>, rule: RuleIndex, client: IpAddr) -> Self {
        let client = Cell::new(generation.rule(rule).gate.adopt(client));
        Self { generation: Arc::clone(generation), rule, client }
    }

    /// Checks the client against the lists and takes its share of the rule.
    pub(crate) fn admit(&self, client: ClientAddr) -> Result<(), Refusal> {
        let rule = self.generation.rule(self.rule);
        if !rule.policy.admits(client.ip()) {
            return Err(Refusal::AccessPolicy);
        }
        self.client.set(rule.gate.enter_client(client.ip())?);
        Ok(())
    }

    /// The rule the connection came in through.
    pub(crate) fn rule(&self) -> &Rule {
        self.generation.rule(self.rule)
    }

    /// The generation that serves it.
    pub(crate) fn generation(&self) -> Number {
        self.generation.number()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.generation.rule(self.rule).gate.leave(self.client.take());
    }
}
