//! Where a connection belongs: to a rule, or merely to the process.

use std::fmt;
use std::sync::Arc;

use baton_handoff::table::{Identity, RuleKey};

use crate::accept::admission::ProcessCount;
use crate::generation::Permit;
use crate::process::Process;

/// A connection's place among those that are counted.
#[derive(Debug)]
pub(super) enum Seat {
    /// It came in through a rule, or belongs to one that there is.
    Rule(Permit),
    /// It came from another process, and there is no rule here like the one it came in through.
    /// Served to its end, it counts for the process alone.
    Stray(Box<Stray>),
}

/// A connection without a rule.
pub(super) struct Stray {
    count: Arc<ProcessCount>,
    rule: RuleKey,
    generation: u64,
}

impl Seat {
    /// The seat of a connection that another process has served before, whatever the limits.
    pub(super) fn adopted(process: &Process, identity: &Identity) -> Self {
        let generation = process.published.load_full();
        let rule = generation.as_ref().and_then(|now| now.rule_by_key(identity.rule));
        match (generation, rule) {
            (Some(generation), Some(rule)) => {
                Self::Rule(Permit::adopted(&generation, rule, identity.peer.ip()))
            }
            (Some(_) | None, _) => {
                process.count.adopt();
                let count = Arc::clone(&process.count);
                let Identity { rule, generation, .. } = *identity;
                Self::Stray(Box::new(Stray { count, rule, generation }))
            }
        }
    }

    pub(super) fn permit(&self) -> Option<&Permit> {
        match self {
            Self::Rule(permit) => Some(permit),
            Self::Stray(_) => None,
        }
    }

    /// The key of the rule and the generation, for a record.
    pub(super) fn origin(&self) -> (RuleKey, u64) {
        match self {
            Self::Rule(permit) => (permit.rule().key, permit.generation().0),
            Self::Stray(stray) => (stray.rule, stray.generation),
        }
    }
}

impl fmt::Debug for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stray").field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        self.count.leave();
    }
}
