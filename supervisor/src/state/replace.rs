//! The last part of an upgrade: the supervisor replaces itself by the new program.
//!
//! Begins only when the new worker has stood its test, so whatever comes of it the clients are
//! served by the new version; no transition begins meanwhile, and nothing is asked of anybody.
//! The new image learns all this as [`Replacing`] and gives the final answer, so the upgrade is
//! counted and answered once, by whichever image goes on.

use serde::{Deserialize, Serialize};

use super::finish::Matter;
use super::{State, Turn};
use crate::action::{Action, Kind, Outcome};
use crate::event::{Millis, RequestId};

/// An upgrade whose worker serves and whose supervisor is being replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Replacing {
    /// Who waits for the upgrade's end.
    pub(super) requesters: Vec<RequestId>,
    pub(super) started: Millis,
    /// What the worker's part came to.
    pub(super) summary: String,
}

impl Replacing {
    fn matter(self) -> Matter {
        let Self { requesters, started, summary: _ } = self;
        Matter { kind: Kind::Upgrade, requesters, started }
    }
}

impl State {
    /// Whether the process is about to replace itself. Not while it ends.
    pub(crate) fn is_replacing(&self) -> bool {
        self.replacing.is_some()
    }

    /// Begins it.
    pub(super) fn replace(&mut self, turn: &mut Turn, matter: Matter, summary: String) {
        let Matter { requesters, started, .. } = matter;
        turn.act(Action::Progress {
            to: requesters.clone(),
            kind: Kind::Upgrade,
            phase: "replace",
            text: format!("{summary}; the supervisor replaces itself"),
        });
        self.replacing = Some(Replacing { requesters, started, summary });
        turn.act(Action::ReplaceSelf { binary: self.accepted.binary.id });
    }

    /// The new image says that it is there, or the old one that it still is.
    pub(super) fn replaced(&mut self, turn: &mut Turn, result: Result<(), String>) {
        let Some(replacing) = self.replacing.take() else { return };
        let summary = replacing.summary.clone();
        let version = &self.settings.version;
        let (outcome, summary, problems) = match result {
            Ok(()) => {
                let summary = format!("{summary}; the supervisor is version {version}");
                (Outcome::Success, summary, Vec::new())
            }
            Err(problem) => {
                let summary = format!("{summary}, but the supervisor stays at version {version}");
                (Outcome::Failed, summary, vec![problem])
            }
        };
        self.conclude(turn, replacing.matter(), outcome, summary, problems);
        self.settle(turn);
    }

    /// The end has come first.
    pub(super) fn replacing_gives_way(&mut self, turn: &mut Turn, problem: &str) {
        if let Some(replacing) = self.replacing.take() {
            let summary = replacing.summary.clone();
            let problems = vec![problem.to_owned()];
            self.conclude(turn, replacing.matter(), Outcome::Failed, summary, problems);
        }
    }
}
