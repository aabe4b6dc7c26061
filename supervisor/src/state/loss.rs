//! A worker is gone, or as good as gone.

use baton_handoff::message::WorkerId;

use super::limits::{self, Patience};
use super::transition::{Failure, Step};
use super::worker::{Role, Rung};
use super::{State, Turn};
use crate::action::{Action, Force, Kind, Order, Severity};
use crate::event::Exit;

impl State {
    /// The process was reaped. What it left in the region can be folded now.
    pub(super) fn exited(&mut self, turn: &mut Turn, id: WorkerId, exit: &Exit) {
        let Some(worker) = self.workers.remove(&id) else { return };
        let how = &exit.how;
        self.bury(turn, id, worker.leaves_remains() && !exit.orderly);
        let pid = worker.pid.unwrap_or_default();
        match worker.role {
            Role::Doomed => {}
            Role::Retiring { .. } => {
                turn.log(Severity::Info, format!("worker {} (pid {pid}) ended: {how}", id.0));
            }
            Role::Starting | Role::Serving | Role::Standby => {
                self.lost(turn, id, format!("worker {} (pid {pid}) ended: {how}", id.0));
            }
        }
        self.leave_if_empty(turn);
    }

    /// The channel's end. Its reason is the process's exit status, which is awaited a little.
    pub(super) fn closed(&mut self, turn: &mut Turn, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.is_alive()) {
            worker.closed.get_or_insert(turn.now);
        }
    }

    /// A worker that talks nonsense is not believed in anything any more.
    pub(super) fn broken(&mut self, turn: &mut Turn, id: WorkerId, problem: &str) {
        if self.workers.get(&id).is_some_and(super::Worker::is_alive) {
            self.put_down(turn, id);
            self.lost(turn, id, format!("worker {} was killed: {problem}", id.0));
        }
    }

    /// Draws the consequences of a loss; the worker is dead or doomed by now.
    pub(super) fn lost(&mut self, turn: &mut Turn, id: WorkerId, why: String) {
        if self.serving == Some(id) {
            self.serving = None;
            turn.log(Severity::Error, format!("{why}; it was serving"));
        }
        let (candidate, old, kind, step) = match &self.transition {
            Some(t) => (t.candidate, t.old, t.kind, t.step),
            None => return self.settle(turn),
        };
        if candidate == Some(id) {
            match step {
                Step::Checking
                | Step::Greeting
                | Step::Planning
                | Step::Binding
                | Step::Readying
                | Step::Activating => self.fail(turn, Failure::of_build(why)),
                Step::Quiescing | Step::Migrating | Step::Watching | Step::Probing => {
                    self.revert(turn, why);
                }
                Step::Reverting => {}
            }
        } else if old == Some(id) {
            self.lost_old(turn, kind, step, why);
        }
    }

    /// The side that gives way is gone early.
    fn lost_old(&mut self, turn: &mut Turn, kind: Kind, step: Step, why: String) {
        let Some(transition) = &mut self.transition else { return };
        transition.old = None;
        match step {
            Step::Reverting => {
                let mut problems = std::mem::take(&mut transition.problems);
                problems.push(why);
                let mut failure = Failure::of_build(String::new());
                failure.problems = problems;
                self.fail(turn, failure);
            }
            Step::Quiescing => self.shifted(turn),
            Step::Migrating => {
                turn.log(Severity::Warn, format!("{why}; what it had left is recovered"));
                self.watch(turn);
            }
            // The new one is on its way already: going on is the fastest way to serve again.
            Step::Checking
            | Step::Greeting
            | Step::Planning
            | Step::Binding
            | Step::Readying
            | Step::Activating
            | Step::Watching
            | Step::Probing => {
                turn.log(Severity::Warn, format!("{} goes on without it: {why}", kind.as_str()));
            }
        }
    }

    /// How much silence of this worker is borne; `None` where silence means nothing.
    pub(super) fn patience(&self, id: WorkerId) -> Option<Patience> {
        match self.workers.get(&id)?.role {
            Role::Serving => {}
            Role::Standby => {
                let stands_by = self.transition.as_ref().is_some_and(|t| t.stands_by(id));
                return stands_by.then_some(limits::SERVING);
            }
            Role::Starting | Role::Retiring { .. } | Role::Doomed => return None,
        }
        match &self.transition {
            Some(transition) if transition.occupies(id) => None,
            Some(transition) if transition.watches(id) => Some(limits::WATCHED),
            Some(_) | None => Some(limits::SERVING),
        }
    }

    /// Looks whether anything is due about a worker.
    pub(super) fn worker_overdue(&mut self, turn: &mut Turn, id: WorkerId) {
        let patience = self.patience(id);
        let now = turn.now;
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.gone_at().is_some_and(|gone| gone <= now) {
            return self.broken(turn, id, "it closed its channel and did not exit");
        }
        match (worker.role, patience) {
            (Role::Retiring { rung, until }, _) if until <= now => self.climb(turn, id, rung),
            (Role::Serving | Role::Standby, Some(patience))
                if worker.silence_ends(patience) <= now =>
            {
                match worker.asked {
                    None => {
                        worker.asked = Some(now);
                        turn.send(id, Order::Ping);
                    }
                    Some(_) => {
                        let silence = now.since(worker.heard);
                        self.broken(turn, id, &format!("no sign of life for {silence:?}"));
                    }
                }
            }
            (
                Role::Starting
                | Role::Serving
                | Role::Standby
                | Role::Retiring { .. }
                | Role::Doomed,
                _,
            ) => {}
        }
    }

    /// The next rung of the ladder drain → SIGTERM → SIGKILL.
    fn climb(&mut self, turn: &mut Turn, id: WorkerId, rung: Rung) {
        match rung {
            Rung::Drain => {
                turn.log(Severity::Warn, format!("worker {} overstays its drain time", id.0));
                turn.act(Action::Signal { worker: id, force: Force::Terminate });
                let until = turn.now.after(limits::TERM_GRACE);
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.role = Role::Retiring { rung: Rung::Leave, until };
                    worker.finished = true;
                }
            }
            Rung::Leave => self.put_down(turn, id),
        }
    }
}
