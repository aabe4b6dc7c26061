//! What went on last.

use crate::action::Report;
use crate::control::protocol::LastTransition;
use crate::event::Millis;

/// A transition that is over.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) report: Report,
    /// When; unknown where a former image did not say it.
    pub(super) ended: Option<Millis>,
}

impl Past {
    pub(super) fn now(report: Report, now: Millis) -> Self {
        Self { report, ended: Some(now) }
    }

    /// As `baton status` shows it.
    pub(super) fn status(&self, now: Millis) -> LastTransition {
        let age = |ended| u64::try_from(now.since(ended).as_millis()).unwrap_or(u64::MAX);
        LastTransition {
            kind: self.report.kind.as_str().into(),
            result: self.report.outcome.as_str().into(),
            duration_ms: self.report.duration_ms,
            age_ms: self.ended.map(age),
            problems: self.report.problems.clone(),
        }
    }
}
