//! What `baton status` shows of the machine.

use std::time::Duration;

use baton_handoff::message::{Migrated, WorkerId};

use super::worker::Role;
use super::{Life, State};
use crate::action::Kind;
use crate::control::protocol::{
    LastTransition, MigrationStatus, RecoveryStatus, TransitionStatus, WorkerRole, WorkerStatus,
};
use crate::event::Millis;

/// The machine's part of the status; the driver adds what only it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) state: &'static str,
    pub(crate) workers: Vec<WorkerStatus>,
    pub(crate) transition: Option<TransitionStatus>,
    pub(crate) recovery: Option<RecoveryStatus>,
    pub(crate) last_transition: Option<LastTransition>,
}

impl State {
    /// A picture of the moment.
    pub(crate) fn view(&self, now: Millis) -> View {
        View {
            state: self.word(),
            workers: self.worker_statuses(),
            transition: self.transition_status(now),
            recovery: self.recovery_status(now),
            last_transition: self.last.as_ref().map(|past| past.status(now)),
        }
    }

    fn word(&self) -> &'static str {
        match (&self.life, self.serving) {
            (Life::Starting, _) => "starting",
            (Life::Running, Some(_)) => "running",
            (Life::Running, None) if self.backoff.is_loop() => "crash-loop",
            (Life::Running, None) => "degraded",
            (Life::Stopping(_) | Life::Ended, _) => "stopping",
        }
    }

    fn worker_statuses(&self) -> Vec<WorkerStatus> {
        let status = |(id, worker): (&WorkerId, &super::Worker)| {
            let role = match worker.role {
                Role::Serving => WorkerRole::Serving,
                Role::Standby | Role::Retiring { .. } => WorkerRole::Retiring,
                // Has no client, or is as good as gone; the transition tells of it.
                Role::Starting | Role::Doomed => return None,
            };
            Some(WorkerStatus {
                worker: id.0,
                pid: worker.pid?,
                version: worker.version.clone(),
                generation: worker.generation.0,
                role,
                connections: worker.pulse.map_or(0, |pulse| pulse.connections),
            })
        };
        self.workers.iter().filter_map(status).collect()
    }

    fn transition_status(&self, now: Millis) -> Option<TransitionStatus> {
        let (kind, phase, since) = match (&self.transition, &self.life) {
            (Some(t), _) => (t.kind, t.step.phase(), t.started),
            (None, Life::Stopping(ending)) => (Kind::Stop, "drain", ending.since),
            (None, Life::Starting | Life::Running | Life::Ended) => {
                let replacing = self.replacing.as_ref()?;
                (Kind::Upgrade, "replace", replacing.started)
            }
        };
        let moved = self.transition.as_ref().and_then(|transition| transition.moved);
        let migration = moved.map(|Migrated { moved, waiting, kept, .. }| MigrationStatus {
            moved,
            waiting,
            kept,
        });
        let since = millis(now.since(since));
        Some(TransitionStatus { kind: kind.as_str().into(), phase: phase.into(), since, migration })
    }

    fn recovery_status(&self, now: Millis) -> Option<RecoveryStatus> {
        let recovery = self.remains.recovery()?;
        Some(RecoveryStatus {
            worker: recovery.by.0,
            of: recovery.whose.iter().map(|id| id.0).collect(),
            since: millis(now.since(recovery.since)),
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
