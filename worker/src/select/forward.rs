//! `forward`: a selector with failure marks, backups and retries.
//!
//! Per selection: eligibility (candidates that active probes do not exclude) → marked ones out
//! → backups out while a primary is left → the strategy. A retry selects again without the
//! targets this connection has tried, and never widens what is eligible: an unmarked primary
//! that was tried keeps the backups out. When every target is marked, the last resort is the
//! one whose mark ends first, or nothing if the rule says `reject`; a sole target is always
//! used, marked or not. Never an unasked direct connection.
//!
//! `parallel` dials several at once. Its failures mark nobody: a dead candidate stays in the
//! group and may be raced again.

use std::sync::Arc;

use baton_config::model::{Forward as Spec, OnAllFailed, ParallelMode, Strategy};

use super::flights::{Flights, Launch, Settled};
use super::roundrobin::nth;
use super::selector::{Affinity, Selector};
use super::{strategy, walk};
use crate::flow::{Candidates, Event, LineIndex, Moment, Quota, Steps};
use crate::upstream::{LineSet, Node};

/// The machine.
#[derive(Debug)]
pub(super) struct Forward {
    selector: Arc<Selector>,
    spec: Spec,
    pub(super) flights: Flights,
    affinity: Affinity,
    rng: fastrand::Rng,
    deadline: Moment,
    quota: Quota,
    /// Selections that may still be made.
    left: u16,
    /// Whether the first selection has been made.
    begun: bool,
    /// Whether an attempt of the present selection has failed.
    failed: bool,
}

impl Forward {
    pub(super) fn new(
        selector: Arc<Selector>,
        spec: &Spec,
        flights: Flights,
        affinity: Affinity,
        rng: fastrand::Rng,
    ) -> Self {
        Self {
            left: u16::from(spec.retries) + 1,
            spec: spec.clone(),
            selector,
            flights,
            affinity,
            rng,
            deadline: Moment::default(),
            quota: Quota::Wait,
            begun: false,
            failed: false,
        }
    }

    pub(super) fn start(&mut self, now: Moment, out: &mut Steps) {
        self.deadline = now.after(self.selector.timeout);
        self.next(now, out);
    }

    pub(super) fn on(&mut self, event: Event, now: Moment, out: &mut Steps) {
        match self.flights.settle(event, now) {
            Settled::Connected(attempt) => self.flights.win(attempt, out),
            Settled::Failed(..) => {
                self.failed = true;
                self.next_if_alone(now, out);
            }
            Settled::TargetFull(_) => {
                self.quota = Quota::Immediate;
                self.next_if_alone(now, out);
            }
            Settled::ProcessFull(_) if self.flights.in_flight() == 0 => {
                self.flights.give_up(out, self.deadline, now);
            }
            Settled::ProcessFull(_) | Settled::Started(_) | Settled::Woke | Settled::Nothing => {}
        }
    }

    /// Selects again once nothing of the present selection is in flight.
    fn next_if_alone(&mut self, now: Moment, out: &mut Steps) {
        if self.flights.in_flight() > 0 {
            return;
        }
        if !std::mem::take(&mut self.failed) {
            // Nothing was dialled, for lack of quota: this was no selection.
            self.left = self.left.saturating_add(1);
        }
        self.next(now, out);
    }

    fn next(&mut self, now: Moment, out: &mut Steps) {
        while self.left > 0 && now < self.deadline {
            let pool = pool(
                &self.flights.lines,
                &self.flights.candidates,
                |line| self.flights.tried(line),
                self.spec.selector.on_all_failed,
                now,
            );
            let racers = self.pick(&pool, now);
            if racers.is_empty() {
                break;
            }
            let rounds = pool.len().div_ceil(racers.len()).min(usize::from(self.left));
            let launch = Launch {
                deadline: walk::share(self.deadline, rounds, now),
                quota: self.quota,
                fresh: false,
                marks: !matches!(self.spec.selector.strategy, Strategy::Parallel { .. }),
            };
            self.left -= 1;
            for line in racers {
                if self.flights.launch(line, launch, now, out).is_err() {
                    self.flights.rule_out(line);
                }
            }
            if self.flights.in_flight() > 0 {
                return;
            }
        }
        self.flights.give_up(out, self.deadline, now);
    }

    /// Who is dialled next; empty when the pool is.
    fn pick(&mut self, pool: &Candidates, now: Moment) -> Candidates {
        let lines = &self.flights.lines;
        let begun = std::mem::replace(&mut self.begun, true);
        // Retries have a cursor of their own: on the main one, every failure of a dead target
        // would shift the turn and give its neighbours unequal shares.
        let turn = || if begun { self.selector.retry_turn() } else { self.selector.turn() };
        let one = match self.spec.selector.strategy {
            Strategy::Round => nth(pool, turn()),
            Strategy::Rand => strategy::rand(pool, lines, &mut self.rng),
            Strategy::Fifo => pool.first().copied(),
            Strategy::Hash => strategy::hash(pool, lines, self.affinity.0),
            Strategy::LeastConn => strategy::least_conn(pool, lines, &mut self.rng),
            Strategy::Latency => strategy::latency(pool, lines, &mut self.rng, now),
            Strategy::Parallel { max, mode } => {
                let count = match usize::from(max) {
                    0 => pool.len(),
                    max => max.min(pool.len()),
                };
                if count == pool.len() {
                    return pool.clone();
                }
                return match mode {
                    ParallelMode::Round => strategy::consecutive(pool, count, turn()),
                    ParallelMode::Rand => strategy::drawn(pool, count, &mut self.rng),
                };
            }
        };
        one.into_iter().collect()
    }
}

/// What may be chosen now, in configured order.
pub(super) fn pool(
    lines: &LineSet,
    candidates: &Candidates,
    tried: impl Fn(LineIndex) -> bool,
    on_all_failed: OnAllFailed,
    now: Moment,
) -> Candidates {
    let marked = |node: &Node| now < node.line.marked_until();
    let sole = candidates.len() == 1;
    let (mut primary, mut backup) = (false, false);
    for &line in candidates {
        let node = lines.node(line);
        if !node.line.unhealthy() && (sole || !marked(node)) {
            *(if node.backup { &mut backup } else { &mut primary }) = true;
        }
    }
    let untried =
        candidates.iter().copied().filter(|&line| !lines.line(line).unhealthy() && !tried(line));
    if primary || backup {
        return untried
            .filter(|&line| {
                let node = lines.node(line);
                (sole || !marked(node)) && node.backup != primary
            })
            .collect();
    }
    match on_all_failed {
        OnAllFailed::LastResort => {
            untried.min_by_key(|&line| lines.line(line).marked_until()).into_iter().collect()
        }
        OnAllFailed::Reject => Candidates::new(),
    }
}
