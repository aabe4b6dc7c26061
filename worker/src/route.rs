//! Verdict → candidates: which lines a connection may use, in the order they are considered.
//!
//! Two questions, both pure: what does the content allow (patterns in `regex`, names in
//! `tls`, everything elsewhere), and which part of that do the rule's labels prefer
//! ([`subset`]). Whether a line is healthy is only asked by the second; choosing among the
//! candidates is the business of `select/`.
//!
//! A [`Router`] belongs to one set of lines and is made anew with each.

pub mod names;
pub mod subset;

use std::ops::Range;

use baton_config::model::{Mode, Rule};

use self::names::NameTable;
use self::subset::Narrow;
use crate::flow::{Candidates, LineIndex, Moment, Verdict};
use crate::upstream::LineSet;

/// The routing of one rule over one set of lines.
#[derive(Debug)]
pub struct Router {
    content: Content,
    narrow: Option<Narrow>,
    /// The lines of each target; they are neighbours.
    lines_of: Vec<Range<u16>>,
}

#[derive(Debug)]
enum Content {
    /// The mode does not look at bytes.
    Everything,
    /// `regex`; the target without a pattern serves when nothing matched.
    Patterns { fallback: Option<u16> },
    /// `tls`.
    Names(NameTable),
}

/// Why a connection has no candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoRoute {
    /// The first bytes match no target and there is no fallback.
    #[error("no target matches the first bytes")]
    NoMatch,
    /// No preferred label set has a usable target, and the rule wants no other.
    #[error("no preferred subset has a usable target")]
    NoSubset,
}

impl Router {
    /// The routing of `rule` over `lines`, which must be lines of that rule.
    #[must_use]
    pub fn for_rule(rule: &Rule, lines: &LineSet) -> Self {
        let content = match rule.mode {
            Mode::Regex => Content::Patterns {
                fallback: (0u16..)
                    .zip(&rule.targets)
                    .find(|(_, target)| target.regexp.is_none())
                    .map(|(position, _)| position),
            },
            Mode::Tls => Content::Names(NameTable::new(&rule.targets)),
            Mode::Normal | Mode::Boost(_) | Mode::RoundRobin | Mode::Forward(_) => {
                Content::Everything
            }
        };
        let mut lines_of = vec![0..0; rule.targets.len()];
        for (LineIndex(line), node) in lines.iter() {
            if let Some(range) = lines_of.get_mut(usize::from(node.target)) {
                *range =
                    if range.start == range.end { line..line + 1 } else { range.start..line + 1 };
            }
        }
        let narrow = rule.subset.as_ref().map(|subset| Narrow::new(subset, rule, lines));
        Self { content, narrow, lines_of }
    }

    /// The candidates of a connection.
    ///
    /// # Errors
    /// When there is none; the connection is closed without a dial.
    pub fn candidates(
        &self,
        verdict: &Verdict,
        lines: &LineSet,
        now: Moment,
    ) -> Result<Candidates, NoRoute> {
        let allowed = self.allowed(verdict, lines);
        if allowed.is_empty() {
            return Err(NoRoute::NoMatch);
        }
        match &self.narrow {
            None => Ok(allowed),
            Some(narrow) => narrow.apply(allowed, lines, now),
        }
    }

    /// What the content alone allows, before labels are asked; empty when nothing matches.
    #[must_use]
    pub fn allowed(&self, verdict: &Verdict, lines: &LineSet) -> Candidates {
        match &self.content {
            Content::Everything => lines.indexes().collect(),
            Content::Patterns { fallback } => match verdict {
                Verdict::Patterns(matched) if !matched.is_empty() => self.lines_of(matched.iter()),
                Verdict::Patterns(_)
                | Verdict::Unread
                | Verdict::Hello(_)
                | Verdict::Host(_)
                | Verdict::Opaque => self.lines_of(*fallback),
            },
            Content::Names(names) => match verdict {
                Verdict::Hello(hello) => {
                    self.lines_of(names.matching(hello).iter().chain(names.fallback()))
                }
                Verdict::Unread | Verdict::Patterns(_) | Verdict::Host(_) | Verdict::Opaque => {
                    self.lines_of(names.fallback())
                }
            },
        }
    }

    fn lines_of(&self, targets: impl IntoIterator<Item = u16>) -> Candidates {
        targets
            .into_iter()
            .filter_map(|target| self.lines_of.get(usize::from(target)))
            .flat_map(|range| range.clone().map(LineIndex))
            .collect()
    }
}

#[cfg(test)]
mod tests;
