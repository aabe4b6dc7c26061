//! The counters of a rule, looked up once when its generation is built.
//!
//! Each shard has its own handles over its own cells, so counting touches no memory that another
//! thread writes. A family is registered only for rules that have the feature.

use std::time::Duration;

use baton_config::model::{self, Mode};
use baton_metrics::{Counter, Gauge, Histogram, Lane, catalog};

use crate::accept::admission::Refusal;
use crate::relay::{Direction, Ending, Outcome, Side};
use crate::select::Notes;

/// What one shard counts of one rule.
#[derive(Debug)]
pub(crate) struct RuleSeries {
    /// Connections taken into service.
    pub(crate) accepted: Counter,
    /// Connections in service.
    pub(crate) active: Gauge,
    rejected: [Counter; Refusal::ALL.len()],
    to_upstream: DirectionSeries,
    to_client: DirectionSeries,
    duration: Histogram,
    boost: Option<BoostSeries>,
    targets: Box<[TargetSeries]>,
}

#[derive(Debug)]
struct DirectionSeries {
    bytes: Counter,
    errors: Counter,
}

/// What one shard counts of the dials to one target.
#[derive(Debug)]
pub(crate) struct TargetSeries {
    /// Begun.
    pub(crate) attempts: Counter,
    /// Established.
    pub(crate) success: Counter,
    /// Failed.
    pub(crate) failures: Counter,
    /// Given up because another one won or the client left.
    pub(crate) canceled: Counter,
    /// Of successful connects.
    pub(crate) latency: Histogram,
}

#[derive(Debug)]
struct BoostSeries {
    hits: Counter,
    misses: Counter,
    decision: Histogram,
    refreshes: RefreshSeries,
    hedge: Option<HedgeSeries>,
}

/// What became of background races.
#[derive(Debug, Clone)]
pub(crate) struct RefreshSeries {
    /// The cached line won again.
    pub(crate) kept: Counter,
    /// Another one won.
    pub(crate) replaced: Counter,
    /// Nobody connected in time, or there was no place to dial.
    pub(crate) failed: Counter,
}

#[derive(Debug)]
struct HedgeSeries {
    scheduled: Counter,
    launched: Counter,
    won: Counter,
    avoided: Counter,
    skipped_capacity: Counter,
    skipped_deadline: Counter,
    no_candidate: Counter,
    delay: Histogram,
}

impl RuleSeries {
    /// The series of `rule` in one shard's lane.
    pub(super) fn new(rule: &model::Rule, lane: &Lane) -> Self {
        let name = rule.name.as_str();
        let of_rule = [("rule", name), ("mode", rule.mode.as_str())];
        let rejected = Refusal::ALL.map(|reason| {
            let labels = [of_rule[0], of_rule[1], ("reason", reason.as_str())];
            lane.counter(&catalog::CONNECTIONS_REJECTED, &labels)
        });
        let direction = |direction| {
            let labels = [("rule", name), ("direction", direction)];
            DirectionSeries {
                bytes: lane.counter(&catalog::RELAY_BYTES, &labels),
                errors: lane.counter(&catalog::RELAY_ERRORS, &labels),
            }
        };
        let targets = rule.targets.iter().map(|target| {
            let labels = [("rule", name), ("target", target.name.as_str())];
            TargetSeries {
                attempts: lane.counter(&catalog::DIAL_ATTEMPTS, &labels),
                success: lane.counter(&catalog::DIAL_SUCCESS, &labels),
                failures: lane.counter(&catalog::DIAL_FAILURES, &labels),
                canceled: lane.counter(&catalog::DIAL_CANCELED, &labels),
                latency: lane.histogram(&catalog::DIAL_LATENCY_SECONDS, &labels),
            }
        });
        Self {
            accepted: lane.counter(&catalog::CONNECTIONS_ACCEPTED, &of_rule),
            active: lane.gauge(&catalog::CONNECTIONS_ACTIVE, &of_rule),
            rejected,
            to_upstream: direction("client_to_upstream"),
            to_client: direction("upstream_to_client"),
            duration: lane.histogram(&catalog::RELAY_DURATION, &[("rule", name)]),
            boost: BoostSeries::new(rule, lane),
            targets: targets.collect(),
        }
    }

    /// A client was not let in.
    pub(crate) fn rejected(&self, refusal: Refusal) {
        self.rejected[refusal.index()].inc();
    }

    /// Bytes have been relayed.
    pub(crate) fn moved(&self, to_upstream: u64, to_client: u64) {
        if to_upstream > 0 {
            self.to_upstream.bytes.add(to_upstream);
        }
        if to_client > 0 {
            self.to_client.bytes.add(to_client);
        }
    }

    /// A relay has ended after this time.
    pub(crate) fn ended(&self, outcome: &Outcome, lasted: Duration) {
        self.duration.observe(lasted);
        match &outcome.ending {
            Ending::Clean | Ending::Cut(_) => {}
            // The direction whose bytes come from the side that broke.
            Ending::Failed(failure) => match failure.side {
                Side::Client => self.direction(Direction::ToUpstream).errors.inc(),
                Side::Upstream => self.direction(Direction::ToClient).errors.inc(),
            },
        }
    }

    /// What choosing an upstream was like; `took` is present when one was found.
    pub(crate) fn decided(&self, notes: Notes, took: Option<Duration>) {
        let Some(boost) = &self.boost else { return };
        match notes.cache_hit {
            Some(true) => boost.hits.inc(),
            Some(false) => boost.misses.inc(),
            None => {}
        }
        if let Some(took) = took {
            boost.decision.observe(took);
        }
        let Some(hedge) = &boost.hedge else { return };
        let notes = notes.hedge;
        for (happened, counter) in [
            (notes.scheduled, &hedge.scheduled),
            (notes.launched.is_some(), &hedge.launched),
            (notes.won, &hedge.won),
            (notes.avoided, &hedge.avoided),
            (notes.skipped_capacity, &hedge.skipped_capacity),
            (notes.skipped_deadline, &hedge.skipped_deadline),
            (notes.no_candidate, &hedge.no_candidate),
        ] {
            if happened {
                counter.inc();
            }
        }
        if let Some(delay) = notes.launched {
            hedge.delay.observe(delay);
        }
    }

    /// Where background races are counted, in the modes that have them.
    pub(crate) fn refreshes(&self) -> Option<RefreshSeries> {
        self.boost.as_ref().map(|boost| boost.refreshes.clone())
    }

    /// The series of a target, by its position in the rule.
    pub(crate) fn target(&self, target: u16) -> &TargetSeries {
        &self.targets[usize::from(target)]
    }

    fn direction(&self, direction: Direction) -> &DirectionSeries {
        match direction {
            Direction::ToUpstream => &self.to_upstream,
            Direction::ToClient => &self.to_client,
        }
    }
}

impl BoostSeries {
    /// For the modes that race.
    fn new(rule: &model::Rule, lane: &Lane) -> Option<Self> {
        let hedged = match &rule.mode {
            Mode::Boost(hedge) => hedge.is_some(),
            Mode::RoundRobin => false,
            Mode::Normal | Mode::Regex | Mode::Tls | Mode::Forward(_) => return None,
        };
        let name = rule.name.as_str();
        let labels = [("rule", name)];
        Some(Self {
            hits: lane.counter(&catalog::BOOST_CACHE_HITS, &labels),
            misses: lane.counter(&catalog::BOOST_CACHE_MISSES, &labels),
            decision: lane.histogram(&catalog::BOOST_DECISION_DURATION, &labels),
            refreshes: RefreshSeries::new(name, lane),
            hedge: hedged.then(|| HedgeSeries::new(name, lane)),
        })
    }
}

impl RefreshSeries {
    fn new(rule: &str, lane: &Lane) -> Self {
        let race = |outcome| {
            lane.counter(&catalog::BOOST_REFRESHES, &[("rule", rule), ("outcome", outcome)])
        };
        Self { kept: race("kept"), replaced: race("replaced"), failed: race("failed") }
    }
}

impl HedgeSeries {
    fn new(rule: &str, lane: &Lane) -> Self {
        let event = |outcome| {
            lane.counter(&catalog::BOOST_HEDGE_EVENTS, &[("rule", rule), ("outcome", outcome)])
        };
        Self {
            scheduled: event("scheduled"),
            launched: event("launched"),
            won: event("won"),
            avoided: event("avoided"),
            skipped_capacity: event("skipped_capacity"),
            skipped_deadline: event("skipped_deadline"),
            no_candidate: event("no_candidate"),
            delay: lane.histogram(&catalog::BOOST_HEDGE_DELAY, &[("rule", rule)]),
        }
    }
}
