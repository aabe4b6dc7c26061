//! The worker's part of putting a configuration in service: compile it, hold what it needs, build
//! it, switch to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_handoff::message::{Generation as Number, Prepare};
use baton_handoff::version::Version;
use baton_handoff::{Transaction, WorkerEnd};
use baton_metrics::Region;
use tokio::sync::oneshot;

use super::adoption::Offer;
use super::service::{ServeError, Service, shard_count};
use super::{ActError, Worker, limits};
use crate::generation::blueprint::{self, Blueprint, Drawn};
use crate::lifecycle::Compiled;

/// A configuration that is being compiled.
pub(super) struct Compiling {
    pub(super) number: Number,
    pub(super) asked: Transaction,
    pub(super) answer: oneshot::Receiver<Result<Drawn, Vec<String>>>,
}

impl Worker<'_> {
    /// Keeps a compiled configuration as the pending one.
    pub(super) fn compiled(&mut self, drawn: Result<Drawn, Vec<String>>) -> Compiled {
        let blueprint = match drawn {
            Err(problems) => return Compiled::Bad(problems),
            Ok(Drawn::Unchanged(blueprint)) => return Compiled::Unchanged(blueprint.plan(true)),
            Ok(Drawn::New(blueprint)) => blueprint,
        };
        let held = match &mut self.service {
            Some(service) => service.listeners().held(),
            None => match self.start(&blueprint) {
                Ok(()) => BTreeSet::new(),
                Err(problem) => return Compiled::Bad(vec![problem]),
            },
        };
        let plan = blueprint.plan(false);
        if let Some(offer) = &mut self.offered {
            offer.listeners.clone_from(&plan.listeners);
        }
        self.draft = Some(blueprint);
        Compiled::Good { plan, held }
    }

    /// Sets up what the first configuration decides for the life of the process.
    fn start(&mut self, blueprint: &Blueprint) -> Result<(), String> {
        let config = blueprint.config();
        if let Some(log) = self.log {
            log.configure(&config.log).map_err(|error| error.to_string())?;
        }
        let shards = shard_count(config);
        let connections = config.supervisor.max_connections;
        let listeners = blueprint.plan(false).listeners.len();
        let idle = limits::idle_connections(config);
        let text = limits::shortage(self.descriptors, connections, listeners, shards, idle);
        if let Some(text) = text {
            tracing::warn!("{text}");
        }
        let region = self.region.take().ok_or("no metrics region was handed over")?;
        let region = Region::attach(region)
            .map_err(|error| format!("the metrics region cannot be used: {error}"))?;
        let speaks = self.end.as_ref().and_then(WorkerEnd::version);
        let wanted = config.supervisor.crash_recovery && speaks.is_some_and(carries_on);
        let records = self.lifeline.begin(wanted, shards, connections);
        let service = Service::start(config, region, records)
            .map_err(|error| format!("cannot start {shards} relay threads: {error}"))?;
        self.service = Some(service);
        Ok(())
    }

    pub(super) fn drop_pending(&mut self) {
        self.draft = None;
        self.offered = None;
        self.compiling = None;
        self.arrived.clear();
        if let Some(service) = &mut self.service {
            service.drop_pending();
        }
    }

    pub(super) fn compile(&mut self, prepare: Prepare) {
        let published = self.service.as_ref().and_then(Service::published);
        let running = published.map(|generation| Arc::clone(generation.config()));
        let (number, asked) = (prepare.generation, self.asked);
        self.offered = Some(Offer::of(&prepare));
        let (done, answer) = oneshot::channel();
        let started =
            std::thread::Builder::new().name("baton-compile".to_owned()).spawn(move || {
                // Given up: an abort came first.
                let _given_up = done.send(blueprint::draw(&prepare, running.as_deref()));
            });
        // Without a thread the sender is gone as well, and that is an answer.
        if let Err(error) = started {
            tracing::error!(%error, "no thread can be had to compile a configuration");
        }
        self.compiling = Some(Compiling { number, asked, answer });
    }

    pub(super) fn take_listeners(&mut self) {
        let arrived = std::mem::take(&mut self.arrived);
        if let (Some(service), Some(draft)) = (&mut self.service, &self.draft) {
            service.take(draft, arrived);
        }
    }

    /// Makes the pending generation.
    pub(super) fn build(&mut self, number: Number) -> Result<(), ServeError> {
        let draft = self.draft.take().filter(|draft| draft.number() == number);
        let (Some(service), Some(draft)) = (&mut self.service, draft) else {
            return Err(ServeError::Unprepared(format!("generation {} is gone", number.0)));
        };
        service.build(draft)
    }

    /// Switches to the generation that was built.
    pub(super) async fn publish(&mut self, number: Number) -> Result<(), ServeError> {
        let Some(service) = &mut self.service else {
            return Err(ServeError::Unprepared(format!("generation {} is gone", number.0)));
        };
        service.publish(number).await?;
        if let Some(offer) = self.offered.take().filter(|offer| offer.is(number)) {
            self.accepted = Some(offer);
        }
        if let Some(limit) = service.drain_timeout() {
            self.lifecycle.set_orphan_drain(limit);
        }
        Ok(())
    }

    pub(super) async fn resume(&mut self) -> Result<(), ServeError> {
        match &mut self.service {
            Some(service) => service.resume().await,
            None => Err(ServeError::Unprepared("nothing was ever served".to_owned())),
        }
    }
}

/// Whether a supervisor that speaks this protocol can have connections carried on.
pub(super) fn carries_on(speaks: Version) -> bool {
    speaks >= Version(2)
}

/// What it means that a generation is not served.
pub(super) fn unserved(generation: Number, error: ServeError) -> ActError {
    match error {
        ServeError::Gone(gone) => ActError::Gone(gone),
        ServeError::Unprepared(_) | ServeError::Register(_) | ServeError::Admin(_) => {
            ActError::Unserved(generation, error.to_string())
        }
    }
}

/// Waits for the compiler; for ever when it does not run.
pub(super) async fn drawn(compiling: &mut Option<Compiling>) -> Result<Drawn, Vec<String>> {
    match compiling {
        Some(Compiling { answer, .. }) => answer.await.unwrap_or_else(|_| {
            Err(vec!["the configuration could not be compiled, see the worker's log".to_owned()])
        }),
        None => std::future::pending().await,
    }
}
