//! The supervisor's own series in the metrics region.

use std::time::SystemTime;

use baton_metrics::{Counter, Gauge, Lane, Region, catalog};

use crate::action::Outcome;

pub(crate) struct Meters {
    lane: Lane,
    restarts: Counter,
    last_reload: Gauge,
}

impl Meters {
    /// Registers what exists from the beginning, so that a first reload is a step from 0 to 1.
    pub(crate) fn new(region: &Region) -> Self {
        let lane = region.claim_supervisor_lane(std::process::id());
        let restarts = lane.counter(&catalog::WORKER_RESTARTS, &[]);
        let last_reload = lane.gauge(&catalog::CONFIG_LAST_RELOAD_SUCCESS, &[]);
        let meters = Self { lane, restarts, last_reload };
        for result in ["success", "failure"] {
            meters.reloads(result);
            meters.upgrades(result);
        }
        meters
    }

    pub(crate) fn restarted(&self) {
        self.restarts.inc();
    }

    pub(crate) fn reloaded(&self, outcome: Outcome) {
        self.reloads(label(outcome)).inc();
    }

    pub(crate) fn upgraded(&self, outcome: Outcome) {
        self.upgrades(label(outcome)).inc();
    }

    /// A configuration was accepted just now.
    pub(crate) fn stamp(&self) {
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => self.last_reload.set_duration(since),
            Err(error) => tracing::warn!(%error, "the clock is before 1970"),
        }
    }

    fn reloads(&self, result: &str) -> Counter {
        self.lane.counter(&catalog::RELOADS, &[("result", result)])
    }

    fn upgrades(&self, result: &str) -> Counter {
        self.lane.counter(&catalog::UPGRADES, &[("result", result)])
    }
}

fn label(outcome: Outcome) -> &'static str {
    if outcome.is_ok() { "success" } else { "failure" }
}
