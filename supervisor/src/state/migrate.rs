//! Migrate: the old worker's live connections follow the listeners.
//!
//! The two workers do it among themselves, over a channel of their own; here it is only begun,
//! watched and ended. Each connection commits by itself, so whatever ends it early (a death, the
//! time limit) costs nothing: what has moved is the new worker's, the rest is still the old one's
//! and drains there. There is no way to take a moving back: a new worker that fails is killed, and
//! the old one, called back, recovers from it like from any other dead worker.

use std::time::Duration;

use baton_handoff::message::{Migrated, WorkerId};
use baton_handoff::version::Version;

use super::transition::Step;
use super::{State, Turn, limits};
use crate::action::{Action, Severity};

impl State {
    pub(super) fn agreed(&mut self, id: WorkerId, protocol: Version) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.protocol = protocol;
        }
    }

    /// Connections that would move in an upgrade now.
    pub(crate) fn movable(&self) -> u64 {
        let serving = self.serving.and_then(|id| self.workers.get(&id));
        let moves = serving.filter(|worker| worker.is_living() && worker.lifeline);
        match moves.and_then(|worker| worker.pulse) {
            Some(pulse) if !self.settings.migrate.is_zero() => pulse.connections,
            Some(_) | None => 0,
        }
    }

    /// The new side accepts and the old one does not: its connections follow, if both know how.
    pub(super) fn migrate(&mut self, turn: &mut Turn) {
        let Some(transition) = &self.transition else { return };
        let living = |id: Option<WorkerId>| {
            let worker = id.and_then(|id| self.workers.get(&id));
            worker.is_some_and(super::Worker::is_living)
        };
        let can = living(transition.old) && living(transition.candidate);
        if !can || self.settings.migrate.is_zero() {
            return self.watch(turn);
        }
        let text = match self.remains.is_given() {
            true => "connections move after the recovery that is going on".into(),
            false => format!("connections move, for {:?} at most", self.settings.migrate),
        };
        // The rest follows at the end of the turn, see `set_moving`.
        self.enter(turn, Step::Migrating, None, text);
    }

    /// Has the connections move as soon as no recovery is awaited: what the old worker is about to
    /// carry on is to move as well.
    pub(super) fn set_moving(&mut self, turn: &mut Turn) {
        let limit = self.settings.migrate;
        let Some(transition) = self.transition.as_mut().filter(|transition| {
            transition.step == Step::Migrating
                && transition.moved.is_none()
                && !self.remains.is_given()
        }) else {
            return;
        };
        let (Some(from), Some(to)) = (transition.old, transition.candidate) else { return };
        transition.moved = Some(Migrated::default());
        transition.deadline = Some(turn.now.after(limit.saturating_add(limits::GIVE_GRACE)));
        let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        turn.act(Action::Migrate { from, to, timeout_ms });
    }

    /// How it goes on; told by the old worker.
    pub(super) fn migrated(&mut self, turn: &mut Turn, id: WorkerId, migrated: Migrated) {
        let Some(transition) =
            self.transition.as_mut().filter(|t| t.old == Some(id) && t.moved.is_some())
        else {
            return Self::dropped(turn, id, "Migrated");
        };
        transition.moved = Some(migrated);
        if transition.step != Step::Migrating {
            return;
        }
        let Migrated { moved, waiting, kept, .. } = migrated;
        turn.act(Action::Progress {
            to: transition.requesters.clone(),
            kind: transition.kind,
            phase: Step::Migrating.phase(),
            text: format!("moved {moved}, still dialling {waiting}, kept {kept}"),
        });
        if migrated.over {
            self.watch(turn);
        }
    }

    /// One of the two cannot be told, or did not take it: connections stay where they are.
    pub(super) fn not_migrating(&mut self, turn: &mut Turn, problem: &str) {
        turn.log(Severity::Warn, format!("connections do not move: {problem}"));
        if self.transition.as_ref().is_some_and(|t| t.step == Step::Migrating) {
            self.watch(turn);
        }
    }
}

/// The end of an upgrade's summary.
pub(super) fn summary(migrated: &Migrated) -> String {
    let Migrated { moved, waiting, kept, longest_pause_us, over: _ } = *migrated;
    let mut text = match moved {
        0 if kept == 0 && waiting == 0 => return String::new(),
        1 => "; 1 connection moved".to_owned(),
        _ => format!("; {moved} connections moved"),
    };
    let stayed = kept.saturating_add(waiting);
    if stayed > 0 {
        text.push_str(&format!(", {stayed} stayed and drain"));
    }
    if moved > 0 {
        let pause = Duration::from_micros(longest_pause_us);
        text.push_str(&format!(", longest pause {pause:?}"));
    }
    text
}
