//! `boost`: the cached winner, hedged if the rule says so; without one, a race of the best two.
//!
//! Cold: the two lines [`rank`] picks are dialled at once, never more than two are in flight,
//! and a failed one is replaced by the next best untried line. The first to connect wins and
//! is cached. Warm: the cached line is dialled alone. With `hedge` a backup is added when it
//! has not finished after twice its usual time (clamped), counted from its real start, and
//! only if a place to dial is free at that moment. A cached line that fails makes the
//! connection an ordinary race of the others, at once; so that silence is such a failure too
//! and not the end of the connection, it gets half of the rule's time while there are others.
//!
//! Quota refusals change neither line nor cache: the cached line is still the best, we only
//! could not use it now.

use std::sync::Arc;
use std::time::Duration;

use baton_config::model::Hedge;

use super::cache::RefreshTicket;
use super::flights::{Flights, Launch, Settled};
use super::notes::Notes;
use super::rank;
use super::selector::Selector;
use super::walk;
use crate::flow::{AttemptId, Event, Fault, LineIndex, Moment, Quota, Step, Steps};

/// The most that may be in flight at once.
pub(super) const WIDTH: u16 = 2;

/// The machine.
#[derive(Debug)]
pub(super) struct Boost {
    pub(super) selector: Arc<Selector>,
    pub(super) flights: Flights,
    hedge: Option<Hedge>,
    phase: Phase,
    deadline: Moment,
    /// How the next race attempt takes its quota.
    quota: Quota,
    /// A quota refusal brought us here: the cached winner stays whoever wins.
    spare_cache: bool,
    /// The cache entry this connection stands for.
    token: Option<u64>,
    refresh: Option<RefreshTicket>,
    notes: Notes,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The cached line is dialled.
    Warm { primary: AttemptId, hedging: Hedging },
    /// A race.
    Cold,
}

#[derive(Debug, Clone, Copy)]
enum Hedging {
    /// No backup will start by itself: not wanted, or already decided.
    Off,
    /// The primary has not really begun.
    Waiting,
    /// A backup starts at this moment.
    Armed { since: Moment, at: Moment },
}

impl Boost {
    pub(super) fn new(selector: Arc<Selector>, flights: Flights, hedge: Option<Hedge>) -> Self {
        Self::with_quota(selector, flights, hedge, Quota::Wait)
    }

    pub(super) fn with_quota(
        selector: Arc<Selector>,
        flights: Flights,
        hedge: Option<Hedge>,
        quota: Quota,
    ) -> Self {
        Self {
            selector,
            flights,
            hedge,
            phase: Phase::Cold,
            deadline: Moment::default(),
            quota,
            spare_cache: false,
            token: None,
            refresh: None,
            notes: Notes::default(),
        }
    }

    /// Only what is free at once from here on, and the cache stays as it is.
    pub(super) fn without_waiting(&mut self) {
        self.quota = Quota::Immediate;
        self.spare_cache = true;
    }

    pub(super) fn start(&mut self, now: Moment, out: &mut Steps) {
        self.deadline = now.after(self.selector.timeout);
        if !self.start_warm(now, out) {
            self.race(now, out);
        }
    }

    /// Begins with a race, whatever is cached.
    pub(super) fn start_race(&mut self, deadline: Moment, now: Moment, out: &mut Steps) {
        self.deadline = deadline;
        self.race(now, out);
    }

    /// Dials the cached line, if there is one that is usable.
    fn start_warm(&mut self, now: Moment, out: &mut Steps) -> bool {
        self.notes.cache_hit = Some(false);
        let Some(hit) = self.selector.winner.get(&self.flights.lines, now) else {
            return false;
        };
        if !self.flights.candidates.contains(&hit.line) || self.flights.tried(hit.line) {
            return false;
        }
        let launch =
            Launch { deadline: self.patience(hit.line, now), ..self.launch(self.quota, false) };
        let Ok(primary) = self.flights.launch(hit.line, launch, now, out) else {
            return false;
        };
        if hit.stale && self.flights.candidates.len() > 1 {
            self.refresh = RefreshTicket::take(&self.selector, hit.line);
        }
        let hedging = if self.hedge.is_some() { Hedging::Waiting } else { Hedging::Off };
        self.phase = Phase::Warm { primary, hedging };
        self.token = Some(hit.token);
        self.notes.cache_hit = Some(true);
        true
    }

    /// How long the cached line may stay silent: half of the time, or twice its usual time if that
    /// is more, but never so long that nothing is left for the others. With a hedge they are not
    /// left waiting, and the line keeps the whole time.
    fn patience(&self, cached: LineIndex, now: Moment) -> Moment {
        let others = self.hedge.is_none() && self.flights.open(now).any(|line| line != cached);
        if !others {
            return self.deadline;
        }
        let usual = Duration::from_nanos(self.flights.lines.line(cached).ewma_nanos());
        let most = self.deadline.since(now).saturating_sub(walk::LEAST_SHARE);
        walk::share(self.deadline, 2, now).max(now.after((2 * usual).min(most)))
    }

    pub(super) fn on(&mut self, event: Event, now: Moment, out: &mut Steps) {
        let settled = self.flights.settle(event, now);
        match self.phase {
            Phase::Cold => self.on_race(settled, now, out),
            Phase::Warm { primary, hedging } => self.on_warm(primary, hedging, settled, now, out),
        }
    }

    pub(super) fn on_race(&mut self, settled: Settled, now: Moment, out: &mut Steps) {
        match settled {
            Settled::Connected(attempt) => self.win_race(attempt, now, out),
            Settled::Failed(..) => self.race(now, out),
            Settled::TargetFull(_) => {
                self.quota = Quota::Immediate;
                self.race(now, out);
            }
            Settled::ProcessFull(_) => self.give_up_if_alone(now, out),
            Settled::Started(_) | Settled::Woke | Settled::Nothing => {}
        }
    }

    fn on_warm(
        &mut self,
        primary: AttemptId,
        hedging: Hedging,
        settled: Settled,
        now: Moment,
        out: &mut Steps,
    ) {
        let next = match (settled, hedging) {
            (Settled::Connected(attempt), _) if attempt == primary => {
                self.notes.hedge.avoided = matches!(hedging, Hedging::Armed { .. });
                return self.flights.win(attempt, out);
            }
            (Settled::Connected(attempt), _) => {
                self.notes.hedge.won = true;
                return self.win_race(attempt, now, out);
            }
            (Settled::Failed(attempt, fault), _) if attempt == primary => {
                if let Some(token) = self.token.take().filter(|_| fault != Fault::Local) {
                    self.selector.winner.evict(token);
                }
                self.phase = Phase::Cold;
                return self.race(now, out);
            }
            (Settled::TargetFull(attempt), _) if attempt == primary => {
                self.token = None;
                self.without_waiting();
                self.phase = Phase::Cold;
                return self.race(now, out);
            }
            (Settled::ProcessFull(attempt), _) if attempt == primary => {
                self.token = None;
                self.without_waiting();
                self.phase = Phase::Cold;
                return self.give_up_if_alone(now, out);
            }
            (Settled::Started(attempt), Hedging::Waiting) if attempt == primary => {
                self.arm(primary, now, out)
            }
            (Settled::Woke, Hedging::Armed { since, at }) => self.wake(since, at, now, out),
            (Settled::TargetFull(attempt) | Settled::ProcessFull(attempt), _) => {
                // Nothing was dialled, so it may still become the failover.
                self.flights.forget(attempt);
                self.notes.hedge.launched = None;
                self.notes.hedge.skipped_capacity = true;
                Hedging::Off
            }
            (Settled::Failed(..), _) => Hedging::Off,
            (Settled::Started(_) | Settled::Woke | Settled::Nothing, unchanged) => unchanged,
        };
        self.phase = Phase::Warm { primary, hedging: next };
    }

    /// Starts the hedge clock.
    fn arm(&mut self, primary: AttemptId, now: Moment, out: &mut Steps) -> Hedging {
        let Some(hedge) = self.hedge else { return Hedging::Off };
        let line = self.flights.lines.line(self.flights.line_of(primary));
        let delay = match line.ewma_nanos() {
            0 => hedge.max_delay,
            nanos => Duration::from_nanos(nanos.saturating_mul(2)),
        };
        // `max` before `min`, so that reversed limits could not panic as `clamp` would.
        let at = now.after(delay.max(hedge.min_delay).min(hedge.max_delay));
        if at >= self.deadline {
            self.notes.hedge.skipped_deadline = true;
            return Hedging::Off;
        }
        self.notes.hedge.scheduled = true;
        out.push(Step::WakeAt(at));
        Hedging::Armed { since: now, at }
    }

    /// The hedge clock may have run out.
    fn wake(&mut self, since: Moment, at: Moment, now: Moment, out: &mut Steps) -> Hedging {
        if now < at {
            out.push(Step::WakeAt(at));
            return Hedging::Armed { since, at };
        }
        if now >= self.deadline {
            // Woken late; the primary's own deadline is being told at this very moment.
            self.notes.hedge.skipped_deadline = true;
            return Hedging::Off;
        }
        let Some(line) = rank::best(&self.flights, now) else {
            self.notes.hedge.no_candidate = true;
            return Hedging::Off;
        };
        match self.flights.launch(line, self.launch(Quota::Immediate, false), now, out) {
            Ok(_) => self.notes.hedge.launched = Some(now.since(since)),
            Err(_) => self.notes.hedge.no_candidate = true,
        }
        Hedging::Off
    }

    /// Fills the race up to two; ends when nothing is in flight and nothing left to try.
    pub(super) fn race(&mut self, now: Moment, out: &mut Steps) {
        if now < self.deadline {
            if self.flights.in_flight() == 0 {
                for line in rank::top_two(&self.flights, now).into_iter().flatten() {
                    self.enter(line, now, out);
                }
            }
            while self.flights.in_flight() < WIDTH {
                let Some(line) = rank::best(&self.flights, now) else { break };
                self.enter(line, now, out);
            }
        }
        self.give_up_if_alone(now, out);
    }

    fn enter(&mut self, line: LineIndex, now: Moment, out: &mut Steps) {
        let launch = self.launch(self.quota, true);
        if self.flights.launch(line, launch, now, out).is_err() {
            self.flights.rule_out(line);
        }
    }

    fn launch(&self, quota: Quota, fresh: bool) -> Launch {
        Launch { deadline: self.deadline, quota, fresh, marks: true }
    }

    fn give_up_if_alone(&mut self, now: Moment, out: &mut Steps) {
        if self.flights.in_flight() == 0 {
            self.flights.give_up(out, self.deadline, now);
        }
    }

    fn win_race(&mut self, attempt: AttemptId, now: Moment, out: &mut Steps) {
        self.token = if self.spare_cache {
            None
        } else {
            let line = self.flights.lines.line(self.flights.line_of(attempt));
            Some(self.selector.winner.put(line, now))
        };
        self.flights.win(attempt, out);
    }

    pub(super) fn notes(&self) -> Notes {
        self.notes
    }

    /// The cache entry this connection stands for.
    pub(super) fn cached(&self) -> Option<(Arc<Selector>, u64)> {
        self.token.map(|token| (Arc::clone(&self.selector), token))
    }

    pub(super) fn take_refresh(&mut self) -> Option<RefreshTicket> {
        self.refresh.take()
    }
}
