//! The machine's memory in words that its next image understands.
//!
//! Only what a machine between two transitions remembers: there is no field for a transition,
//! because a supervisor replaces itself when none is going on. What is a sign of life's age is
//! left out too: a worker cannot be heard while nobody listens.
//!
//! The JSON is read by the release before and the release after this one. A field may be added
//! with a default; anything else is a new [`FORMAT`](crate::reexec::FORMAT).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use baton_handoff::message::{Generation, ListenerKey, Pulse, WorkerId};
use baton_handoff::version::Version;
use serde::{Deserialize, Serialize};

use super::fallback::Former;
use super::past::Past;
use super::quarantine::Quarantine;
use super::queue::Queue;
use super::remains::Remains;
use super::replace::Replacing;
use super::worker::{Role, Worker};
use super::{Accepted, Life, Settings, State};
use crate::action::{Kind, Outcome, Report};
use crate::backoff::Backoff;
use crate::event::{Binary, ConfigText, Millis};
use crate::options::migrate_limit;

/// See the module's head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    ready_timeout_ms: u64,
    watch_ms: u64,
    drain_timeout_ms: u64,
    /// From a release that moves no connections: absent.
    #[serde(default)]
    migrate_ms: Option<u64>,
    workers: Vec<SavedWorker>,
    serving: Option<u32>,
    listeners: Vec<String>,
    accepted: SavedAccepted,
    #[serde(default)]
    former: Option<Former>,
    #[serde(default)]
    remains: Remains,
    replacing: Replacing,
    queue: Queue,
    backoff: Backoff,
    respawn_at: Option<Millis>,
    quarantine: Quarantine,
    last: Option<SavedReport>,
    next_worker: u32,
    next_ticket: u64,
    next_generation: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedWorker {
    id: u32,
    pid: Option<u32>,
    version: String,
    role: Role,
    generation: u64,
    /// The oldest, from a release that knew no other.
    #[serde(default = "oldest")]
    protocol: u16,
    #[serde(default = "yes")]
    activated: bool,
    #[serde(default)]
    lifeline: bool,
    #[serde(default)]
    finished: bool,
    pulse: Option<SavedPulse>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedPulse {
    generation: u64,
    connections: u64,
    retired_generations: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedAccepted {
    generation: u64,
    source: String,
    config: String,
    binary: Binary,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedReport {
    kind: Kind,
    outcome: Outcome,
    summary: String,
    problems: Vec<String>,
    generation: u64,
    duration_ms: u64,
    /// Not said by every release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Millis>,
}

fn oldest() -> u16 {
    1
}

fn yes() -> bool {
    true
}

impl Machine {
    /// The executable that workers are started from.
    pub(crate) fn binary(&self) -> &Binary {
        &self.accepted.binary
    }

    /// The one that may have to take its place again.
    pub(crate) fn former(&self) -> Option<&Binary> {
        self.former.as_ref().map(|former| &former.binary)
    }
}

impl State {
    /// Every worker that has a process, by number and process id.
    pub(crate) fn processes(&self) -> Vec<(WorkerId, u32)> {
        self.workers.iter().filter_map(|(id, worker)| Some((*id, worker.pid?))).collect()
    }

    /// The version it speaks for.
    pub(crate) fn version(&self) -> &str {
        &self.settings.version
    }

    /// What the next image has to know.
    ///
    /// # Errors
    /// Why this is not the moment, or what cannot be put into words.
    pub(crate) fn save(&self) -> Result<Machine, String> {
        let Some(replacing) = self.replacing.clone().filter(|_| self.is_running()) else {
            return Err("the instance is not about to replace itself".into());
        };
        let config = String::from_utf8(self.accepted.config.text.clone())
            .map_err(|_| "the accepted configuration is not UTF-8".to_owned())?;
        let Settings { version: _, ready_timeout, watch, migrate, drain_timeout, replaces: _ } =
            self.settings;
        Ok(Machine {
            ready_timeout_ms: millis(ready_timeout),
            watch_ms: millis(watch),
            drain_timeout_ms: millis(drain_timeout),
            migrate_ms: Some(millis(migrate)),
            workers: self.workers.iter().map(|(id, worker)| saved_worker(*id, worker)).collect(),
            serving: self.serving.map(|id| id.0),
            listeners: self.listeners.iter().map(|key| key.0.clone()).collect(),
            accepted: SavedAccepted {
                generation: self.accepted.generation.0,
                source: self.accepted.config.name.clone(),
                config,
                binary: self.accepted.binary.clone(),
            },
            former: self.former.clone(),
            remains: self.remains.clone(),
            replacing,
            queue: self.queue.clone(),
            backoff: self.backoff,
            respawn_at: self.respawn_at,
            quarantine: self.quarantine.clone(),
            last: self.last.as_ref().map(saved_report),
            next_worker: self.next_worker,
            next_ticket: self.next_ticket,
            next_generation: self.next_generation.0,
        })
    }

    /// The machine where the former image left it, for a supervisor of this version.
    /// [`Event::Replaced`](crate::event::Event::Replaced) sets it going.
    ///
    /// # Errors
    /// What contradicts itself.
    pub(crate) fn restore(machine: Machine, version: String, now: Millis) -> Result<Self, String> {
        let workers: BTreeMap<_, _> =
            machine.workers.iter().map(|worker| restored_worker(worker, now)).collect();
        if workers.len() != machine.workers.len() {
            return Err("two workers have the same number".into());
        }
        let serving = machine.serving.map(WorkerId);
        if serving.is_some_and(|id| workers.get(&id).is_none_or(|worker| !worker.is_alive())) {
            return Err("the worker that serves is not among the workers".into());
        }
        let newest = workers.keys().next_back();
        if newest.is_some_and(|id| id.0 >= machine.next_worker) {
            return Err("the number of the next worker is taken".into());
        }
        let buried = machine.remains.workers().any(|id| workers.contains_key(&id));
        if buried {
            return Err("a worker is alive and dead".into());
        }
        if machine.next_generation <= machine.accepted.generation {
            return Err("the number of the next generation is taken".into());
        }
        let SavedAccepted { generation, source, config, binary } = machine.accepted;
        let migrate = match machine.migrate_ms {
            Some(migrate) => Duration::from_millis(migrate),
            // What is not understood here moves nothing: whoever wrote it served it.
            None => baton_config::process::read(&source, config.as_bytes())
                .map_or(Duration::ZERO, |process| migrate_limit(&process)),
        };
        let config = Arc::new(ConfigText { name: source, text: config.into_bytes() });
        Ok(Self {
            settings: Settings {
                version,
                ready_timeout: Duration::from_millis(machine.ready_timeout_ms),
                watch: Duration::from_millis(machine.watch_ms),
                migrate,
                drain_timeout: Duration::from_millis(machine.drain_timeout_ms),
                replaces: true,
            },
            life: Life::Running,
            workers,
            serving,
            listeners: machine.listeners.into_iter().map(ListenerKey).collect::<BTreeSet<_>>(),
            accepted: Accepted { generation: Generation(generation), config, binary },
            former: machine.former,
            remains: machine.remains,
            transition: None,
            replacing: Some(machine.replacing),
            queue: machine.queue,
            backoff: machine.backoff,
            respawn_at: machine.respawn_at,
            quarantine: machine.quarantine,
            last: machine.last.map(restored_report),
            next_worker: machine.next_worker,
            next_ticket: machine.next_ticket,
            next_generation: Generation(machine.next_generation),
        })
    }
}

fn saved_worker(id: WorkerId, worker: &Worker) -> SavedWorker {
    SavedWorker {
        id: id.0,
        pid: worker.pid,
        version: worker.version.clone(),
        role: worker.role,
        generation: worker.generation.0,
        protocol: worker.protocol.0,
        activated: worker.activated,
        lifeline: worker.lifeline,
        finished: worker.finished,
        pulse: worker.pulse.map(|pulse| SavedPulse {
            generation: pulse.generation.0,
            connections: pulse.connections,
            retired_generations: pulse.retired_generations,
        }),
    }
}

fn restored_worker(saved: &SavedWorker, now: Millis) -> (WorkerId, Worker) {
    let mut worker = Worker::new(Generation(saved.generation), now);
    worker.pid = saved.pid;
    worker.version.clone_from(&saved.version);
    worker.role = saved.role;
    worker.protocol = Version(saved.protocol);
    worker.activated = saved.activated;
    worker.lifeline = saved.lifeline;
    worker.finished = saved.finished;
    worker.pulse = saved.pulse.as_ref().map(|pulse| Pulse {
        generation: Generation(pulse.generation),
        connections: pulse.connections,
        retired_generations: pulse.retired_generations,
    });
    (WorkerId(saved.id), worker)
}

fn saved_report(past: &Past) -> SavedReport {
    let Past { report, ended } = past;
    let Report { kind, outcome, summary, problems, generation, duration_ms } = report.clone();
    let (generation, ended) = (generation.0, *ended);
    SavedReport { kind, outcome, summary, problems, generation, duration_ms, ended }
}

fn restored_report(saved: SavedReport) -> Past {
    let SavedReport { kind, outcome, summary, problems, generation, duration_ms, ended } = saved;
    let generation = Generation(generation);
    Past { report: Report { kind, outcome, summary, problems, generation, duration_ms }, ended }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
