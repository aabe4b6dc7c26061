//! A start that finds workers alive: their supervisor died, and we are its successor.
//!
//! The one that serves goes on serving, with its sockets, its configuration and its executable as
//! what was accepted last; every other one retires. Then it is brought up to date like any other:
//! whoever starts a supervisor anew may have changed the configuration or the program before.

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_handoff::message::{Drain, Generation, ListenerKey, Standing, WorkerId};
use baton_handoff::version::Version;

use super::past::Past;
use super::queue::Pending;
use super::worker::{Role, Rung, Worker};
use super::{Accepted, Life, State, Turn, limits};
use crate::action::{Action, Kind, Notify, Order, Outcome, Report, Severity};
use crate::event::{Binary, ConfigText, Request};

/// A worker that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adoptee {
    pub(crate) worker: WorkerId,
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) protocol: Version,
    /// It has given us what its connections can be carried on with.
    pub(crate) lifeline: bool,
    pub(crate) generation: Generation,
    pub(crate) standing: Standing,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adoption {
    pub(crate) workers: Vec<Adoptee>,
    /// Who is to serve.
    pub(crate) heir: WorkerId,
    /// What the heir serves.
    pub(crate) config: Arc<ConfigText>,
    /// What the heir runs.
    pub(crate) binary: Binary,
    /// That is not what is installed.
    pub(crate) outdated: bool,
    /// The heir's sockets.
    pub(crate) listeners: Vec<ListenerKey>,
}

/// Who of those found is to serve: one that does, else one that could; the newest of them.
pub(crate) fn heir(workers: &[Adoptee]) -> Option<&Adoptee> {
    let newest = |standing: Standing| {
        workers
            .iter()
            .filter(|adoptee| adoptee.standing == standing)
            .max_by_key(|adoptee| (adoptee.generation, adoptee.worker))
    };
    newest(Standing::Serving).or_else(|| newest(Standing::Standby))
}

impl State {
    /// Takes the place of the supervisor that died. Comes instead of a start.
    pub(super) fn adopted(&mut self, turn: &mut Turn, adoption: Adoption) {
        match (&self.life, &self.transition) {
            (Life::Starting, None) => {}
            (Life::Starting, Some(_)) | (Life::Running | Life::Stopping(_) | Life::Ended, _) => {
                return;
            }
        }
        let Adoption { workers, heir, config, binary, outdated, listeners } = adoption;
        self.admit(turn, &workers);
        let Some(worker) = self.workers.get_mut(&heir) else { return self.start(turn) };
        let generation = worker.generation;
        if worker.role == Role::Standby {
            turn.send(heir, Order::Activate(generation));
        }
        worker.role = Role::Serving;
        let summary = format!(
            "worker {} (version {}) of a former supervisor serves generation {}",
            heir.0, worker.version, generation.0
        );
        self.life = Life::Running;
        self.serving = Some(heir);
        self.backoff.serving(turn.now);
        self.listeners = listeners.into_iter().collect::<BTreeSet<_>>();
        let former = std::mem::replace(&mut self.accepted, Accepted { generation, config, binary });
        if former.binary.id != self.accepted.binary.id {
            turn.act(Action::ReleaseBinary { binary: former.binary.id });
        }
        for other in workers.iter().map(|adoptee| adoptee.worker).filter(|id| *id != heir) {
            self.retire(turn, other);
        }
        turn.log(Severity::Info, summary.clone());
        let report = Report {
            kind: Kind::Start,
            outcome: Outcome::Success,
            summary,
            problems: Vec::new(),
            generation,
            duration_ms: 0,
        };
        self.last = Some(Past::now(report, turn.now));
        turn.act(Action::Notify(Notify::Ready));
        turn.status(format!("serving generation {}", generation.0));
        let request = match outdated {
            true => Request::Upgrade { binary: None, force: false },
            false => Request::Reload,
        };
        self.begin(turn, Pending { request, requesters: Vec::new() });
    }

    fn admit(&mut self, turn: &mut Turn, workers: &[Adoptee]) {
        let limit = self.settings.drain_timeout;
        for adoptee in workers {
            let mut worker = Worker::new(adoptee.generation, turn.now);
            worker.pid = Some(adoptee.pid);
            worker.version.clone_from(&adoptee.version);
            worker.protocol = adoptee.protocol;
            worker.activated = true;
            worker.lifeline = adoptee.lifeline;
            worker.role = match adoptee.standing {
                Standing::Serving => Role::Serving,
                Standing::Standby => Role::Standby,
                Standing::Retiring => {
                    let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                    turn.send(adoptee.worker, Order::Drain(Drain { timeout_ms }));
                    let until = turn.now.after(limit.saturating_add(limits::DRAIN_GRACE));
                    Role::Retiring { rung: Rung::Drain, until }
                }
            };
            self.workers.insert(adoptee.worker, worker);
            let next = adoptee.worker.0.saturating_add(1);
            self.next_worker = self.next_worker.max(next);
            let next = Generation(adoptee.generation.0.saturating_add(1));
            self.next_generation = self.next_generation.max(next);
        }
    }
}
