//! What dead workers left, and who carries it on.
//!
//! A worker's connections outlive it in its keeper's hands. Whoever serves next is told of all
//! that is left at once; until it has answered, nobody else is told anything, so that no two
//! workers ever reach for the same connection. If it dies first, it has left something too, and
//! all of it goes to the one after it.
//!
//! Nothing here waits for the rest of the machine, nor the rest for this: a recovery and a
//! transition go on side by side (only that connections do not move while one is awaited).

use std::collections::VecDeque;

use baton_handoff::message::{Dead, MAX_DEAD, Recovered, WorkerId};
use serde::{Deserialize, Serialize};

use super::{State, Turn, limits};
use crate::action::{Action, Severity};
use crate::event::Millis;

/// See the module's head. The driver keeps the lifeline of each dead worker named here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remains {
    /// The one that died last first; at most [`MAX_DEAD`].
    left: VecDeque<Left>,
    given: Option<Given>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Left {
    worker: u32,
    died_at: Millis,
}

/// What is in the hands of a worker that has not answered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Given {
    to: u32,
    whose: Vec<u32>,
    since: Millis,
    due: Millis,
}

/// A recovery that is going on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recovery {
    /// Who carries on.
    pub(super) by: WorkerId,
    /// Whose connections.
    pub(super) whose: Vec<WorkerId>,
    pub(super) since: Millis,
}

impl Remains {
    /// Whether this worker is about to carry something on.
    pub(super) fn is_with(&self, worker: WorkerId) -> bool {
        self.given.as_ref().is_some_and(|given| given.to == worker.0)
    }

    /// Whether an answer is awaited.
    pub(super) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// When the answer is overdue.
    pub(super) fn due(&self) -> Option<Millis> {
        self.given.as_ref().map(|given| given.due)
    }

    /// The recovery that is going on.
    pub(super) fn recovery(&self) -> Option<Recovery> {
        let Given { to, whose, since, .. } = self.given.as_ref()?;
        let whose = whose.iter().copied().map(WorkerId).collect();
        Some(Recovery { by: WorkerId(*to), whose, since: *since })
    }

    /// Every dead worker whose lifeline is kept.
    pub(crate) fn workers(&self) -> impl Iterator<Item = WorkerId> {
        self.left.iter().map(|left| WorkerId(left.worker))
    }

    fn forget(&mut self, worker: u32) -> bool {
        let before = self.left.len();
        self.left.retain(|left| left.worker != worker);
        before != self.left.len()
    }
}

impl State {
    /// A worker's process was reaped; whether it has left anything.
    pub(super) fn bury(&mut self, turn: &mut Turn, id: WorkerId, remains: bool) {
        let remains = remains && self.is_running();
        turn.act(Action::Forget { worker: id, remains });
        if self.remains.is_with(id) {
            self.remains.given = None;
        }
        if !remains {
            return;
        }
        self.remains.left.push_front(Left { worker: id.0, died_at: turn.now });
        while self.remains.left.len() > MAX_DEAD {
            let Some(Left { worker, .. }) = self.remains.left.pop_back() else { return };
            turn.log(
                Severity::Error,
                format!("too many dead workers: what worker {worker} left is given up"),
            );
            turn.act(Action::LetGo { worker: WorkerId(worker) });
        }
    }

    /// Gives what is left to the worker that serves, if there is one and nothing is awaited.
    pub(super) fn relieve(&mut self, turn: &mut Turn) {
        if self.remains.left.is_empty() || self.remains.is_given() || !self.is_running() {
            return;
        }
        let serving = self.serving.and_then(|id| Some((id, self.workers.get(&id)?)));
        let Some((id, worker)) = serving.filter(|(_, worker)| worker.is_alive()) else { return };
        if !worker.is_living() {
            let protocol = worker.protocol.0;
            let problem = format!("worker {} speaks protocol {protocol} only", id.0);
            return self.give_up_remains(turn, &problem);
        }
        let left = &self.remains.left;
        let dead = left.iter().map(|left| {
            let since = turn.now.since(left.died_at).as_millis();
            let since_ms = u64::try_from(since).unwrap_or(u64::MAX);
            Dead { worker: WorkerId(left.worker), since_ms }
        });
        let dead: Vec<_> = dead.collect();
        let whose: Vec<_> = left.iter().map(|left| left.worker).collect();
        let text = format!("worker {} carries on what {} left", id.0, named(&whose));
        let due = turn.now.after(limits::RECOVERY);
        self.remains.given = Some(Given { to: id.0, whose, since: turn.now, due });
        turn.log(Severity::Info, text);
        turn.act(Action::Recover { worker: id, dead });
    }

    pub(super) fn recovered(&mut self, turn: &mut Turn, id: WorkerId, recovered: Recovered) {
        let Some(given) = self.remains.given.take_if(|given| given.to == id.0) else {
            return Self::dropped(turn, id, "Recovered");
        };
        let Recovered { resumed, lost, failures } = recovered;
        let whose = named(&given.whose);
        let of = match failures {
            0 => String::new(),
            1 => "; 1 of them could not be asked for all of it".into(),
            count => format!("; {count} of them could not be asked for all of it"),
        };
        let severity = if lost == 0 && failures == 0 { Severity::Info } else { Severity::Warn };
        turn.log(
            severity,
            format!(
                "worker {} carried on {resumed} connections of {whose}, {lost} were reset{of}",
                id.0
            ),
        );
        self.let_go(turn, &given.whose);
    }

    /// Nobody answers any more for what was given.
    pub(super) fn recovery_overdue(&mut self, turn: &mut Turn) {
        if self.remains.due().is_some_and(|due| due <= turn.now) {
            let limit = limits::RECOVERY;
            self.give_up_remains(turn, &format!("no answer within {limit:?}"));
        }
    }

    /// What is left (and given, if something is given) cannot be carried on.
    pub(super) fn give_up_remains(&mut self, turn: &mut Turn, why: &str) {
        let whose = match self.remains.given.take() {
            Some(given) => given.whose,
            None => self.remains.left.iter().map(|left| left.worker).collect(),
        };
        turn.log(Severity::Error, format!("what {} left is given up: {why}", named(&whose)));
        self.let_go(turn, &whose);
    }

    /// The end has come: nobody will carry anything on.
    pub(super) fn drop_remains(&mut self, turn: &mut Turn) {
        self.remains.given = None;
        let whose: Vec<_> = self.remains.left.iter().map(|left| left.worker).collect();
        self.let_go(turn, &whose);
    }

    fn let_go(&mut self, turn: &mut Turn, whose: &[u32]) {
        for worker in whose {
            if self.remains.forget(*worker) {
                turn.act(Action::LetGo { worker: WorkerId(*worker) });
            }
        }
    }
}

fn named(workers: &[u32]) -> String {
    let numbers: Vec<_> = workers.iter().map(u32::to_string).collect();
    let word = if workers.len() == 1 { "worker" } else { "workers" };
    format!("{word} {}", numbers.join(", "))
}
