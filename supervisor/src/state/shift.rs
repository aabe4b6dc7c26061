//! Shift, Watch and Revert: who accepts.
//!
//! The new side accepts before the old one stops: for a moment both do, which is harmless
//! because they share one accept queue, and there is never a moment in which nobody does.

use baton_handoff::message::{Generation, Pulse, WorkerId};

use super::transition::{Failure, Step};
use super::worker::Role;
use super::{State, Turn, limits};
use crate::action::{Kind, Order, Severity};

impl State {
    pub(super) fn ready(&mut self, turn: &mut Turn, id: WorkerId, generation: Generation) {
        let Some(transition) = self
            .transition
            .as_ref()
            .filter(|t| t.offers(id, generation) && t.step == Step::Readying)
        else {
            return Self::dropped(turn, id, "Ready");
        };
        // A fresh worker that is slow to accept is put down, and nothing is lost while another one
        // serves. One that also serves cannot be doubted and kept: it may have switched already;
        // and nothing is gained by killing the only one there is. So these get more time.
        let spare = !transition.in_place && self.serving.is_some();
        let limit = if spare { limits::TAKEOVER } else { self.settings.ready_timeout };
        let deadline = Some(turn.now.after(limit.max(limits::TAKEOVER)));
        let text = format!("worker {} takes over with generation {}", id.0, generation.0);
        self.enter(turn, Step::Activating, deadline, text);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.activated = true;
        }
        turn.send(id, Order::Activate(generation));
    }

    pub(super) fn active(&mut self, turn: &mut Turn, id: WorkerId, generation: Generation) {
        let Some(transition) = self.transition.as_ref() else {
            return Self::dropped(turn, id, "Active");
        };
        let activated = transition.offers(id, generation) && transition.step == Step::Activating;
        let called_back = transition.old == Some(id)
            && transition.step == Step::Reverting
            && self.workers.get(&id).is_some_and(|worker| worker.generation == generation);
        if activated && transition.in_place {
            self.serves(turn, id, generation);
            self.succeed(turn);
        } else if activated {
            let old = transition.old;
            self.serves(turn, id, generation);
            self.quiesce(turn, old);
        } else if called_back {
            self.serves(turn, id, generation);
            let problems = self.transition.as_mut().map(|t| std::mem::take(&mut t.problems));
            self.fail(turn, Failure::reverted(problems.unwrap_or_default()));
        } else {
            Self::dropped(turn, id, "Active");
        }
    }

    fn serves(&mut self, turn: &Turn, id: WorkerId, generation: Generation) {
        if self.serving != Some(id) {
            self.backoff.serving(turn.now);
        }
        self.serving = Some(id);
        self.respawn_at = None;
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.role = Role::Serving;
            worker.generation = generation;
            worker.hear(turn.now);
        }
    }

    fn quiesce(&mut self, turn: &mut Turn, old: Option<WorkerId>) {
        let Some((id, worker)) = old.and_then(|id| Some((id, self.workers.get_mut(&id)?))) else {
            return self.shifted(turn);
        };
        worker.role = Role::Standby;
        turn.send(id, Order::Quiesce);
        let deadline = Some(turn.now.after(limits::SHIFT));
        self.enter(turn, Step::Quiescing, deadline, format!("worker {} stops accepting", id.0));
    }

    pub(super) fn quiesced(&mut self, turn: &mut Turn, id: WorkerId) {
        let awaited = self
            .transition
            .as_ref()
            .is_some_and(|t| t.old == Some(id) && t.step == Step::Quiescing);
        if awaited {
            self.shifted(turn);
        } else {
            // Also the answer to the end's `Quiesce`, where nothing depends on it.
            Self::dropped(turn, id, "Quiesced");
        }
    }

    /// The new side accepts and the old one does not (or is late to say so: it takes from the
    /// same queue, so that is not worth a revert).
    pub(super) fn shifted(&mut self, turn: &mut Turn) {
        let Some(transition) = &self.transition else { return };
        match transition.kind {
            Kind::Upgrade => self.migrate(turn),
            Kind::Start | Kind::Reload | Kind::Respawn | Kind::Fallback | Kind::Stop => {
                self.succeed(turn);
            }
        }
    }

    pub(super) fn watch(&mut self, turn: &mut Turn) {
        let window = self.settings.watch;
        if window.is_zero() {
            return self.probe(turn);
        }
        let deadline = Some(turn.now.after(window));
        let text = format!("watching the new worker for {window:?}");
        self.enter(turn, Step::Watching, deadline, text);
    }

    /// The window is over: one sign of life decides, so that a worker that died on its feet
    /// inside a window shorter than our patience does not pass.
    pub(super) fn probe(&mut self, turn: &mut Turn) {
        let limit = limits::WATCHED.silence.saturating_add(limits::WATCHED.answer);
        let deadline = Some(turn.now.after(limit));
        self.enter(turn, Step::Probing, deadline, "asking the new worker once more".into());
        if let Some(id) = self.transition.as_ref().and_then(|t| t.candidate) {
            turn.send(id, Order::Ping);
        }
    }

    pub(super) fn pulsed(&mut self, turn: &mut Turn, id: WorkerId, pulse: Pulse) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.pulse = Some(pulse);
        }
        let decides = self
            .transition
            .as_ref()
            .is_some_and(|t| t.candidate == Some(id) && t.step == Step::Probing);
        if decides {
            self.succeed(turn);
        }
    }

    /// The new worker is gone after it had begun to serve.
    pub(super) fn revert(&mut self, turn: &mut Turn, why: String) {
        let Some(transition) = &mut self.transition else { return };
        let old = transition.old.and_then(|id| {
            let worker = self.workers.get_mut(&id).filter(|worker| worker.is_alive())?;
            worker.role = Role::Serving;
            worker.hear(turn.now);
            Some((id, worker.generation))
        });
        let Some((old, generation)) = old else {
            return self.fail(turn, Failure::of_build(why));
        };
        turn.log(Severity::Warn, format!("reverting: {why}"));
        transition.problems = vec![why];
        turn.send(old, Order::Activate(generation));
        let deadline = Some(turn.now.after(limits::REVERT));
        self.enter(turn, Step::Reverting, deadline, format!("worker {} is called back", old.0));
    }
}
