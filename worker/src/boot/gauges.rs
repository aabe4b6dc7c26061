//! Gauges that are looked at rather than counted: refreshed once a second and before a scrape.
//!
//! Line gauges belong to the lines as they are now; when a name resolves to something new the
//! old ones are dropped and with them their series.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_config::model;
use baton_metrics::{Gauge, Lane, Record, catalog};

use crate::build::{self, Build};
use crate::dial::TargetSlots;
use crate::flow::Moment;
use crate::generation::{Generation, Routing, learned};
use crate::net;
use crate::process::Process;
use crate::upstream::{Gate, Line, LineSnapshot};

/// Gauges of the process and of every line of the published generation.
pub(super) struct Gauges {
    _build_info: Gauge,
    generation: Gauge,
    retired: Gauge,
    dials: Gauge,
    background: Gauge,
    checks: Gauge,
    waiting: Gauge,
    _limits: [Gauge; 4],
    rules: Vec<RuleGauges>,
}

struct RuleGauges {
    routing: Arc<Routing>,
    lines: Vec<LineGauges>,
}

struct LineGauges {
    line: Arc<Line>,
    slots: Arc<TargetSlots>,
    dials: Gauge,
    ewma: Gauge,
    observed: Gauge,
    failures: Gauge,
    last_attempt: Gauge,
    breaker: Option<BreakerGauges>,
    first_byte: Gauge,
    unhealthy: Option<Gauge>,
    record: Record,
}

struct BreakerGauges {
    open: Gauge,
    half_open: Gauge,
}

impl Gauges {
    /// The gauges of a process that counts in `lane`.
    pub(super) fn new(lane: &Lane) -> Self {
        let Build { version, commit } = build::current();
        let build = [("version", version), ("commit", commit)];
        let build_info = lane.gauge(&catalog::BUILD_INFO, &build);
        build_info.set(1);
        let limits = crate::dial::Limits::default();
        let limit = |class, places: u32| {
            let gauge = lane.gauge(&catalog::DIAL_BULKHEAD_LIMIT, &[("class", class)]);
            gauge.set(places.into());
            gauge
        };
        let taken = |class| lane.gauge(&catalog::DIAL_BULKHEAD_IN_FLIGHT, &[("class", class)]);
        let of_target = lane.gauge(&catalog::DIAL_BULKHEAD_TARGET_LIMIT, &[]);
        of_target.set(limits.target.into());
        Self {
            _build_info: build_info,
            generation: lane.gauge(&catalog::ROUTING_GENERATION, &[]),
            retired: lane.gauge(&catalog::ROUTING_RETIRED_GENERATIONS, &[]),
            dials: taken("foreground"),
            background: taken("background"),
            checks: taken("health"),
            waiting: lane.gauge(&catalog::DIAL_BULKHEAD_WAITING, &[]),
            _limits: [
                limit("foreground", limits.process),
                limit("background", limits.background),
                limit("health", limits.health),
                of_target,
            ],
            rules: Vec::new(),
        }
    }

    /// Looks at everything once.
    pub(super) fn refresh(&mut self, process: &Process, retired: u32) {
        self.retired.set(retired.into());
        self.dials.set(process.bulkhead.in_use().into());
        self.background.set(process.bulkhead.background_in_use().into());
        self.checks.set(process.bulkhead.health_in_use().into());
        self.waiting.set(i64::try_from(process.bulkhead.waiting()).unwrap_or(i64::MAX));
        let Some(generation) = process.published.load_full() else { return };
        self.generation.set(i64::try_from(generation.number().0).unwrap_or(i64::MAX));
        self.follow(process, &generation);
        let (now, wall) = (net::now(), SystemTime::now());
        for line in self.rules.iter().flat_map(|rule| &rule.lines) {
            line.refresh(now, wall);
        }
    }

    /// Leaves what the lines have learned for the process that takes over.
    pub(super) fn store_learned(&self) {
        for line in self.rules.iter().flat_map(|rule| &rule.lines) {
            line.record.store(&LineSnapshot::of(&line.line).to_words());
        }
    }

    /// Makes the line gauges those of the published lines; what stays keeps its gauges.
    fn follow(&mut self, process: &Process, generation: &Generation) {
        let mut before = std::mem::take(&mut self.rules).into_iter();
        for (configured, rule) in generation.rules() {
            let routing = rule.routing.load_full();
            let kept = before.next().filter(|before| Arc::ptr_eq(&before.routing, &routing));
            let gauges = kept.unwrap_or_else(|| RuleGauges::new(process, configured, routing));
            self.rules.push(gauges);
        }
    }
}

impl RuleGauges {
    fn new(process: &Process, configured: &model::Rule, routing: Arc<Routing>) -> Self {
        let (lane, name) = (process.lane(), configured.name.as_str());
        let lines = routing.lines.iter().map(|(index, node)| {
            // The addresses of an expanded target are lines of their own.
            let alone =
                routing.lines.iter().filter(|(_, other)| other.target == node.target).count() == 1;
            let address = node.address.to_string();
            // Places go by the address as it is written.
            let written = configured
                .targets
                .get(usize::from(node.target))
                .map_or_else(|| address.clone(), |target| target.address.to_string());
            let labels = [("rule", name), ("target", if alone { &node.name } else { &*address })];
            let gauge = |metric| lane.gauge(metric, &labels);
            LineGauges {
                line: Arc::clone(&node.line),
                slots: Arc::clone(routing.slots(index)),
                dials: lane
                    .gauge(&catalog::DIAL_BULKHEAD_TARGET_IN_FLIGHT, &[("target", &written)]),
                ewma: gauge(&catalog::ROUTE_LATENCY_EWMA),
                observed: gauge(&catalog::ROUTE_OBSERVED),
                failures: gauge(&catalog::ROUTE_CONSECUTIVE_FAILURES),
                last_attempt: gauge(&catalog::ROUTE_LAST_ATTEMPT),
                breaker: match node.line.gate() {
                    Gate::Breaker => Some(BreakerGauges {
                        open: gauge(&catalog::ROUTE_CIRCUIT_OPEN),
                        half_open: gauge(&catalog::ROUTE_HALF_OPEN),
                    }),
                    Gate::Marks(_) => None,
                },
                first_byte: gauge(&catalog::ROUTE_FIRST_BYTE_EWMA),
                unhealthy: configured
                    .health_check
                    .as_ref()
                    .map(|_| gauge(&catalog::ACTIVE_HEALTH_UNHEALTHY)),
                record: learned::record(process, name, &node.name, &node.address),
            }
        });
        let lines = lines.collect();
        Self { lines, routing }
    }
}

impl LineGauges {
    fn refresh(&self, now: Moment, wall: SystemTime) {
        let known = LineSnapshot::of(&self.line);
        self.ewma.set_duration(Duration::from_nanos(known.ewma_nanos));
        self.dials.set(self.slots.in_use().into());
        self.observed.set((known.ewma_nanos > 0).into());
        let failures = known.dial_streak.max(known.attributable_streak).max(known.fails);
        self.failures.set(failures.into());
        let last = (known.last_attempt != Moment::default())
            .then(|| wall.checked_sub(now.since(known.last_attempt)))
            .flatten()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        self.last_attempt.set_duration(last.unwrap_or_default());
        if let Some(breaker) = &self.breaker {
            breaker.open.set((known.open_until.is_some() && !known.probing).into());
            breaker.half_open.set(known.probing.into());
        }
        if let Some(unhealthy) = &self.unhealthy {
            unhealthy.set(known.unhealthy.into());
        }
        let first_byte = known.first_byte_load.ewma.nanos();
        self.first_byte.set_duration(Duration::from_nanos(first_byte));
    }
}
