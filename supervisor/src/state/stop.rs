//! Retirement of one worker, and the end of all.

use std::time::Duration;

use baton_handoff::message::{Drain, WorkerId};

use super::transition::{Failure, Step};
use super::worker::{Role, Rung};
use super::{Life, State, Turn, limits};
use crate::action::{Action, Kind, Notify, Order, Outcome, Report, Severity};
use crate::event::{Millis, Request, RequestId};

/// What everybody hears who wants something else.
pub(super) const STOPPING: &str = "the instance is stopping";

/// The end while it lasts.
#[derive(Debug)]
pub(super) struct Ending {
    requesters: Vec<RequestId>,
    pub(super) since: Millis,
    code: u8,
    problems: Vec<String>,
    /// How often the wish was repeated.
    repeated: u32,
    /// Connections that were cut, as far as the workers could tell.
    cut: u64,
}

impl State {
    /// The end has begun.
    pub(crate) fn is_ending(&self) -> bool {
        match self.life {
            Life::Stopping(_) | Life::Ended => true,
            Life::Starting | Life::Running => false,
        }
    }

    /// Asks a worker to finish and exit. It stops accepting first, where it still does.
    pub(super) fn retire(&mut self, turn: &mut Turn, id: WorkerId) {
        let limit = self.settings.drain_timeout;
        let Some(worker) = self.workers.get_mut(&id) else { return };
        match worker.role {
            Role::Starting | Role::Serving => turn.send(id, Order::Quiesce),
            Role::Standby => {}
            Role::Retiring { .. } | Role::Doomed => return,
        }
        let until = turn.now.after(limit.saturating_add(limits::DRAIN_GRACE));
        worker.role = Role::Retiring { rung: Rung::Drain, until };
        turn.send(id, Order::Drain(drain(limit)));
    }

    pub(super) fn drained(&mut self, turn: &mut Turn, id: WorkerId, cut: u64) {
        let retiring = self
            .workers
            .get(&id)
            .is_some_and(|worker| matches!(worker.role, Role::Retiring { .. }));
        if retiring {
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.finished = true;
            }
            let text = match cut {
                0 => format!("worker {} drained: every connection ended by itself", id.0),
                _ => format!("worker {} drained: {cut} connections were cut", id.0),
            };
            turn.log(Severity::Info, text);
            if let Life::Stopping(ending) = &mut self.life {
                ending.cut = ending.cut.saturating_add(cut);
            }
        } else {
            Self::dropped(turn, id, "Drained");
        }
    }

    /// Somebody wants the end. Overrides whatever is going on; wanted again, it does not wait.
    pub(super) fn stop(&mut self, turn: &mut Turn, requester: Option<RequestId>) {
        match &mut self.life {
            Life::Starting | Life::Running => {
                self.end(turn, 0, Vec::new(), requester);
            }
            Life::Stopping(ending) => {
                ending.requesters.extend(requester);
                draining(turn, requester);
                self.cut(turn);
            }
            Life::Ended => {
                self.refuse(turn, Kind::Stop, requester, "the instance has ended".into());
            }
        }
    }

    /// Begins the end: nobody accepts any more, everybody drains, nothing new begins.
    pub(super) fn end(
        &mut self,
        turn: &mut Turn,
        code: u8,
        problems: Vec<String>,
        requester: Option<RequestId>,
    ) {
        let requesters = requester.into_iter().collect();
        let ending = Ending { requesters, since: turn.now, code, problems, repeated: 0, cut: 0 };
        self.life = Life::Stopping(ending);
        turn.act(Action::Notify(Notify::Stopping));
        draining(turn, requester);
        let accepting = self
            .transition
            .as_ref()
            .filter(|t| t.step == Step::Activating && !t.in_place)
            .and_then(|t| t.candidate);
        if let Some(id) = accepting {
            // It was told to accept and may have done so: it drains like the others.
            self.retire(turn, id);
            if let Some(transition) = &mut self.transition {
                transition.candidate = None;
            }
        }
        // Past Activating the candidate serves: it is not to be put down with the transition.
        if let Some(transition) = &mut self.transition
            && transition.candidate == self.serving
            && !transition.in_place
        {
            transition.candidate = None;
        }
        self.fail(turn, Failure::of_system(vec![STOPPING.into()]));
        self.replacing_gives_way(turn, STOPPING);
        let waiting: Vec<_> = self.queue.drain().collect();
        for pending in waiting {
            let kind = match pending.request {
                Request::Reload => Kind::Reload,
                Request::Upgrade { .. } => Kind::Upgrade,
                Request::Stop => Kind::Stop,
            };
            for id in pending.requesters {
                self.refuse(turn, kind, Some(id), STOPPING.into());
            }
        }
        self.drop_remains(turn);
        self.serving = None;
        self.respawn_at = None;
        let ids: Vec<_> = self.workers.keys().copied().collect();
        for id in ids {
            self.retire(turn, id);
        }
        let keys: Vec<_> = std::mem::take(&mut self.listeners).into_iter().collect();
        if !keys.is_empty() {
            turn.act(Action::CloseListeners { keys });
        }
        turn.status("stopping: waiting for connections to end".into());
        self.leave_if_empty(turn);
    }

    /// The wish was repeated: cut what is left, and the third time do not even ask.
    pub(super) fn cut(&mut self, turn: &mut Turn) {
        let Life::Stopping(ending) = &mut self.life else { return };
        ending.repeated = ending.repeated.saturating_add(1);
        let ask = ending.repeated == 1;
        turn.log(Severity::Warn, "stop: cutting the connections that are left".into());
        let ids: Vec<_> = self.workers.keys().copied().collect();
        for id in ids {
            match self.workers.get_mut(&id) {
                Some(worker) if ask && worker.is_alive() => {
                    let until = turn.now.after(limits::TERM_GRACE);
                    worker.role = Role::Retiring { rung: Rung::Leave, until };
                    turn.send(id, Order::Drain(drain(Duration::ZERO)));
                }
                Some(_) => self.put_down(turn, id),
                None => {}
            }
        }
    }

    /// Follows the last worker.
    pub(super) fn leave_if_empty(&mut self, turn: &mut Turn) {
        if !self.workers.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.life, Life::Ended) {
            Life::Stopping(ending) => {
                let report = self.stopped(turn.now, &ending);
                for to in ending.requesters {
                    turn.act(Action::Reply { to, report: report.clone() });
                }
                turn.act(Action::Exit { code: ending.code, problems: ending.problems });
            }
            life @ (Life::Starting | Life::Running | Life::Ended) => self.life = life,
        }
    }

    fn stopped(&self, now: Millis, ending: &Ending) -> Report {
        Report {
            kind: Kind::Stop,
            outcome: Outcome::Success,
            summary: match ending.cut {
                0 => "stopped".into(),
                1 => "stopped; 1 connection was cut".into(),
                cut => format!("stopped; {cut} connections were cut"),
            },
            problems: Vec::new(),
            generation: self.accepted.generation,
            duration_ms: u64::try_from(now.since(ending.since).as_millis()).unwrap_or(u64::MAX),
        }
    }
}

fn draining(turn: &mut Turn, requester: Option<RequestId>) {
    turn.act(Action::Progress {
        to: requester.into_iter().collect(),
        kind: Kind::Stop,
        phase: "drain",
        text: "waiting for connections to end".into(),
    });
}

fn drain(limit: Duration) -> Drain {
    Drain { timeout_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
}
