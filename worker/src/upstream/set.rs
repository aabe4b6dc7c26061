//! The lines of a rule, as one decision sees them.
//!
//! A set never changes; when names resolve to something new, a new set takes its place and
//! decisions under way finish on the old one. A [`LineIndex`] is a position in one set and
//! means nothing in another.

use std::net::IpAddr;
use std::sync::Arc;

use baton_config::model::{Address, Host, Mode, Resolve, Rule, Target};
use xxhash_rust::xxh3::xxh3_64;

use super::line::{Gate, Line};
use super::marks::MarkPolicy;
use crate::flow::LineIndex;

/// The most lines a set can have; what `resolve: expand` yields beyond it is left out.
pub const MAX_LINES: usize = u16::MAX as usize;

/// One line and what selection needs to know of its target.
#[derive(Debug, Clone)]
pub struct Node {
    /// What was learned about it.
    pub line: Arc<Line>,
    /// The target of the rule it belongs to, counted from 0.
    pub target: u16,
    /// What to dial.
    pub address: Address,
    /// The target's name.
    pub name: Arc<str>,
    /// For `rand`.
    pub weight: u16,
    /// Held back while another target is usable.
    pub backup: bool,
    /// The first node of the set with the same line: duplicates of an address share one line
    /// in the adaptive modes.
    first: LineIndex,
    /// Stands for the node in rendezvous hashing.
    hash: u64,
}

/// The lines of a rule in configured order.
#[derive(Debug, Clone, Default)]
pub struct LineSet {
    nodes: Vec<Node>,
}

impl LineSet {
    /// The lines of a rule.
    ///
    /// `expanded` gives the addresses of a target with `resolve: expand`; `None` or nothing
    /// while they are not known, and then the target has one line under its name. Lines of
    /// `old` for the same target and address are taken over with all that was learned.
    #[must_use]
    pub fn for_rule(
        rule: &Rule,
        expanded: impl FnMut(u16) -> Option<Vec<IpAddr>>,
        old: Option<&Self>,
    ) -> Self {
        Self::recalled(rule, expanded, old, |_, _, gate| Line::new(gate))
    }

    /// As [`for_rule`](Self::for_rule); a line that `old` has not is made by `recall` from the
    /// target, the address and what excludes it, for a worker that takes over what another
    /// process has learned.
    #[must_use]
    pub fn recalled(
        rule: &Rule,
        mut expanded: impl FnMut(u16) -> Option<Vec<IpAddr>>,
        old: Option<&Self>,
        mut recall: impl FnMut(&Target, &Address, Gate) -> Line,
    ) -> Self {
        let mut set = Self { nodes: Vec::with_capacity(rule.targets.len()) };
        for (target, configured) in (0u16..).zip(&rule.targets) {
            let gate = gate(rule, target);
            let addresses = match configured.resolve {
                Resolve::Expand => expanded(target).unwrap_or_default(),
                Resolve::Dial => Vec::new(),
            };
            let addresses = if addresses.is_empty() {
                vec![configured.address.clone()]
            } else {
                let port = configured.address.port;
                addresses.into_iter().map(|ip| Address { host: Host::Ip(ip), port }).collect()
            };
            let name: Arc<str> = configured.name.as_str().into();
            for address in addresses {
                if set.nodes.len() == MAX_LINES {
                    return set;
                }
                let line = set
                    .known(gate, target, &address, old)
                    .unwrap_or_else(|| Arc::new(recall(configured, &address, gate)));
                set.push(Node {
                    line,
                    target,
                    address,
                    name: Arc::clone(&name),
                    weight: configured.weight,
                    backup: configured.backup,
                    first: LineIndex(0),
                    hash: 0,
                });
            }
        }
        set
    }

    /// The line of an address, if there is one already: shared with its duplicates under the
    /// breaker (what is known is known of the address), the target's own under marks (a mark is
    /// per object).
    fn known(
        &self,
        gate: Gate,
        target: u16,
        address: &Address,
        old: Option<&Self>,
    ) -> Option<Arc<Line>> {
        let same = |node: &&Node| {
            node.address == *address
                && node.line.gate() == gate
                && (gate == Gate::Breaker || node.target == target)
        };
        self.nodes
            .iter()
            .find(same)
            .or_else(|| old.and_then(|old| old.nodes.iter().find(same)))
            .map(|node| Arc::clone(&node.line))
    }

    /// Adds a node and derives what the set knows about it.
    fn push(&mut self, mut node: Node) {
        // Bounded by MAX_LINES, so every position fits.
        let index = u16::try_from(self.nodes.len()).unwrap_or(u16::MAX);
        node.first = self
            .nodes
            .iter()
            .position(|other| Arc::ptr_eq(&other.line, &node.line))
            .and_then(|position| u16::try_from(position).ok())
            .map_or(LineIndex(index), LineIndex);
        let twins = self.nodes.iter().filter(|other| other.address == node.address).count();
        node.hash = xxh3_64(format!("{}#{twins}", node.address).as_bytes());
        self.nodes.push(node);
    }

    /// How many lines there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node.
    ///
    /// # Panics
    /// When `index` is not of this set: a defect, since indexes never leave the decision they
    /// were made for.
    #[must_use]
    pub fn node(&self, index: LineIndex) -> &Node {
        &self.nodes[usize::from(index.0)]
    }

    /// A line; panics like [`node`](Self::node).
    #[must_use]
    pub fn line(&self, index: LineIndex) -> &Arc<Line> {
        &self.node(index).line
    }

    /// All nodes in configured order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (LineIndex, &Node)> + Clone {
        self.nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (LineIndex(u16::try_from(index).unwrap_or(u16::MAX)), node))
    }

    /// All positions in configured order.
    pub fn indexes(&self) -> impl ExactSizeIterator<Item = LineIndex> + use<> {
        (0..u16::try_from(self.nodes.len()).unwrap_or(u16::MAX)).map(LineIndex)
    }

    /// Where a line is in this set, if it is.
    #[must_use]
    pub fn position(&self, line: &Arc<Line>) -> Option<LineIndex> {
        self.iter().find(|(_, node)| Arc::ptr_eq(&node.line, line)).map(|(index, _)| index)
    }
}

impl Node {
    /// The first node of the set with the same line; its own position when it is alone.
    #[must_use]
    pub fn first(&self) -> LineIndex {
        self.first
    }

    /// Stands for the node in rendezvous hashing: the address, and a number when the same
    /// address is written more than once.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// What excludes the lines of a target.
fn gate(rule: &Rule, target: u16) -> Gate {
    match &rule.mode {
        Mode::Normal | Mode::Regex | Mode::Boost(_) | Mode::RoundRobin | Mode::Tls => Gate::Breaker,
        Mode::Forward(forward) => {
            let own = rule.targets.get(usize::from(target));
            Gate::Marks(MarkPolicy {
                max_fails: own.and_then(|t| t.max_fails).unwrap_or(forward.selector.max_fails),
                fail_timeout: own
                    .and_then(|t| t.fail_timeout)
                    .unwrap_or(forward.selector.fail_timeout),
            })
        }
    }
}

#[cfg(test)]
mod tests;
