//! The build before the present one: kept open for a while after an upgrade, and taken up again
//! without being asked when workers of the new build cannot live.
//!
//! The watch of an upgrade finds what breaks at once; this is for what breaks under load or with
//! the first odd client. The configuration stays what it is: it is the operator's last word.

use serde::{Deserialize, Serialize};

use super::{State, Turn, limits};
use crate::action::{Action, Kind, Outcome, Severity};
use crate::backoff::Backoff;
use crate::event::{Binary, BinaryId, Millis};

/// The build that was accepted before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Former {
    pub(super) binary: Binary,
    /// When the present build is no longer young.
    pub(super) until: Millis,
}

impl State {
    /// The executable that may have to be taken up again.
    pub(crate) fn former(&self) -> Option<BinaryId> {
        self.former.as_ref().map(|former| former.binary.id)
    }

    /// `former` was accepted until this moment; another executable has taken its place.
    pub(super) fn succeeded_by_another(&mut self, turn: &mut Turn, former: Binary) {
        if former.build == self.accepted.binary.build {
            return turn.act(Action::ReleaseBinary { binary: former.id });
        }
        // The failures of another build say nothing about this one.
        self.backoff = Backoff::default();
        self.backoff.serving(turn.now);
        self.let_former_go(turn);
        let until = turn.now.after(limits::YOUNG);
        self.former = Some(Former { binary: former, until });
    }

    pub(super) fn former_expires(&mut self, turn: &mut Turn) {
        if self.former.as_ref().is_some_and(|former| former.until <= turn.now) {
            self.let_former_go(turn);
        }
    }

    fn let_former_go(&mut self, turn: &mut Turn) {
        if let Some(former) = self.former.take() {
            turn.act(Action::ReleaseBinary { binary: former.binary.id });
        }
    }

    /// Starts a replacement for a worker that died: of the same build, or of the one before.
    pub(super) fn replace_dead(&mut self, turn: &mut Turn) {
        turn.act(Action::CountRestart);
        if self.backoff.failures() <= limits::CRASHES {
            return self.begin_worker(turn, Kind::Respawn);
        }
        let Some(Former { binary, .. }) = self.former.take() else {
            return self.begin_worker(turn, Kind::Respawn);
        };
        let failures = self.backoff.failures();
        let failed = std::mem::replace(&mut self.accepted.binary, binary);
        let problem = format!(
            "{}: workers of this build failed {failures} times in a row; the build before it \
             serves again",
            failed.path.display()
        );
        turn.log(Severity::Error, problem.clone());
        turn.act(Action::CountUpgrade(Outcome::Reverted));
        turn.act(Action::ReleaseBinary { binary: failed.id });
        self.quarantine.condemn(failed.build);
        self.backoff = Backoff::default();
        self.begin_worker(turn, Kind::Fallback);
        if let Some(transition) = &mut self.transition {
            transition.problems = vec![problem];
        }
    }
}
