//! A driver in virtual time: executes steps the way the dial driver does, and checks the
//! contract of `flow` while it does so.

use std::sync::Arc;
use std::time::Duration;

use baton_config::model::{Forward, HashKey, OnAllFailed, Rule, Selector as Spec, Strategy};

use crate::flow::{AttemptId, Event, Fault, GiveUp, LineIndex, Moment, Quota, Step, Steps};
use crate::select::{Affinity, Machine, Selector, Winner};
use crate::upstream::LineSet;

pub(super) const MS: u64 = 1_000_000;
pub(super) const START: Moment = Moment(1_000_000 * MS);

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn forward(strategy: Strategy) -> Forward {
    Forward {
        selector: Spec {
            strategy,
            max_fails: 1,
            fail_timeout: Duration::from_secs(10),
            on_all_failed: OnAllFailed::LastResort,
        },
        retries: 2,
        hash: HashKey::Client,
    }
}

/// A rule in service: its lines and its selector.
pub(super) struct Bench {
    pub(super) rule: Rule,
    pub(super) lines: Arc<LineSet>,
    pub(super) selector: Arc<Selector>,
    pub(super) now: Moment,
    pub(super) rng: fastrand::Rng,
}

/// What one line does with the next dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// Connects after so many milliseconds.
    Connects(u64),
    /// Hands out a prewarmed socket at once.
    Prewarmed,
    /// Fails after so many milliseconds.
    Fails(u64, Fault),
    /// Nothing ever happens: the deadline fails it.
    Silent,
    /// The target's quota is used up (said after the wait, or at once when immediate).
    TargetFull,
    /// The process's quota is.
    ProcessFull,
}

pub(super) const REFUSES: Does = Does::Fails(0, Fault::Dial);

/// How a connection ended, and all that was done for it.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) end: Result<LineIndex, GiveUp>,
    pub(super) winner: Option<Winner>,
    /// Every dial: when (milliseconds from the start), which line, its deadline likewise, quota, fresh.
    pub(super) dials: Vec<Dialled>,
    pub(super) cancelled: Vec<LineIndex>,
    pub(super) most_in_flight: usize,
    /// Milliseconds from start to end.
    pub(super) took: u64,
    pub(super) machine: Machine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialled {
    pub(super) at: u64,
    pub(super) line: u16,
    pub(super) deadline: u64,
    pub(super) quota: Quota,
    pub(super) fresh: bool,
}

impl Run {
    /// The dialled lines in order.
    pub(super) fn order(&self) -> Vec<u16> {
        self.dials.iter().map(|d| d.line).collect()
    }
}

impl Bench {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            lines: Arc::new(LineSet::for_rule(&rule, |_| None, None)),
            selector: Arc::new(Selector::for_rule(&rule)),
            rule,
            now: START,
            rng: fastrand::Rng::with_seed(7),
        }
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }

    pub(super) fn machine(&mut self) -> Machine {
        let candidates = self.lines.indexes().collect();
        self.selector.begin(&self.lines, candidates, Affinity::default(), self.rng.fork())
    }

    /// Runs one connection to its end; `does` says what a dial of a line meets. The clock of
    /// the bench moves on with it.
    pub(super) fn run(&mut self, does: impl FnMut(LineIndex) -> Does) -> Run {
        let machine = self.machine();
        self.drive(machine, does)
    }

    pub(super) fn drive(
        &mut self,
        machine: Machine,
        mut does: impl FnMut(LineIndex) -> Does,
    ) -> Run {
        let mut drive = Drive::new(machine, self.now);
        drive.start(&mut does);
        while drive.end.is_none() {
            drive.step(&mut does);
        }
        self.now = drive.now;
        drive.finish()
    }
}

/// One machine and the agenda of what will happen to it.
pub(super) struct Drive {
    machine: Machine,
    begun: Moment,
    pub(super) now: Moment,
    /// (when, order, what): what happens next.
    agenda: Vec<(Moment, u64, Event)>,
    stamp: u64,
    wake: Option<Moment>,
    lines: Vec<LineIndex>,
    flying: Vec<AttemptId>,
    dials: Vec<Dialled>,
    cancelled: Vec<LineIndex>,
    most_in_flight: usize,
    pub(super) end: Option<Result<LineIndex, GiveUp>>,
}

impl Drive {
    pub(super) fn new(machine: Machine, now: Moment) -> Self {
        Self {
            machine,
            begun: now,
            now,
            agenda: Vec::new(),
            stamp: 0,
            wake: None,
            lines: Vec::new(),
            flying: Vec::new(),
            dials: Vec::new(),
            cancelled: Vec::new(),
            most_in_flight: 0,
            end: None,
        }
    }

    pub(super) fn start(&mut self, does: &mut impl FnMut(LineIndex) -> Does) {
        let mut steps = Steps::new();
        self.machine.start(self.now, &mut steps);
        self.execute(steps, does);
    }

    /// When something happens next, if the machine still runs.
    pub(super) fn due(&self) -> Option<Moment> {
        if self.end.is_some() {
            return None;
        }
        self.agenda.iter().map(|&(at, ..)| at).chain(self.wake).min()
    }

    /// Lets the next thing happen.
    pub(super) fn step(&mut self, does: &mut impl FnMut(LineIndex) -> Does) {
        let due = self.due().expect("a machine that has not ended waits for something");
        let next = self
            .agenda
            .iter()
            .enumerate()
            .filter(|(_, (at, ..))| *at == due)
            .min_by_key(|(_, (_, stamp, _))| *stamp)
            .map(|(position, _)| position);
        let event = match next {
            Some(position) => self.agenda.remove(position).2,
            None => {
                self.wake = None;
                Event::Woke
            }
        };
        self.now = self.now.max(due);
        self.land(event);
        let mut steps = Steps::new();
        self.machine.on(event, self.now, &mut steps);
        self.execute(steps, does);
    }

    fn land(&mut self, event: Event) {
        match event {
            Event::Connected { attempt, .. }
            | Event::Failed { attempt, .. }
            | Event::TargetFull(attempt)
            | Event::ProcessFull(attempt) => self.flying.retain(|&a| a != attempt),
            Event::Started(_) | Event::Woke => {}
        }
    }

    fn plan(&mut self, at: Moment, event: Event) {
        self.stamp += 1;
        self.agenda.push((at, self.stamp, event));
    }

    fn execute(&mut self, steps: Steps, does: &mut impl FnMut(LineIndex) -> Does) {
        for step in steps {
            assert!(self.end.is_none(), "{step:?} after the end");
            match step {
                Step::Dial { attempt, line, deadline, quota, fresh } => {
                    self.dial(attempt, line, deadline, quota, fresh, does(line));
                }
                Step::WakeAt(at) => self.wake = Some(at),
                Step::Cancel(attempt) => {
                    assert!(self.flying.contains(&attempt), "cancelled what does not fly");
                    self.flying.retain(|&a| a != attempt);
                    self.cancelled.push(self.lines[usize::from(attempt.0)]);
                    // What was about to happen to it may still cross the cancel.
                }
                Step::Use(attempt) => {
                    assert!(self.flying.is_empty(), "ended with attempts in flight");
                    self.end = Some(Ok(self.lines[usize::from(attempt.0)]));
                }
                Step::GiveUp(reason) => {
                    assert!(self.flying.is_empty(), "gave up with attempts in flight");
                    self.end = Some(Err(reason));
                }
            }
        }
        assert_eq!(self.end.is_some(), self.machine.is_done());
    }

    fn dial(
        &mut self,
        attempt: AttemptId,
        line: LineIndex,
        deadline: Moment,
        quota: Quota,
        fresh: bool,
        does: Does,
    ) {
        assert_eq!(usize::from(attempt.0), self.lines.len(), "attempts are numbered in order");
        assert!(deadline > self.now, "a dial without time");
        self.lines.push(line);
        self.flying.push(attempt);
        self.most_in_flight = self.most_in_flight.max(self.flying.len());
        self.dials.push(Dialled {
            at: self.now.since(self.begun).as_millis() as u64,
            line: line.0,
            deadline: deadline.since(self.begun).as_millis() as u64,
            quota,
            fresh,
        });
        let refused_at = match quota {
            Quota::Wait => self.now.after(ms(250)).min(deadline),
            Quota::Immediate | Quota::Background => self.now,
        };
        let failed = |fault| Event::Failed { attempt, fault };
        match does {
            Does::TargetFull => self.plan(refused_at, Event::TargetFull(attempt)),
            Does::ProcessFull => self.plan(refused_at, Event::ProcessFull(attempt)),
            Does::Prewarmed if !fresh => {
                self.plan(self.now, Event::Connected { attempt, connect: None });
            }
            Does::Prewarmed => {
                self.plan(self.now, Event::Started(attempt));
                self.plan(self.now, Event::Connected { attempt, connect: Some(ms(1)) });
            }
            Does::Connects(after) if self.now.after(ms(after)) < deadline => {
                self.plan(self.now, Event::Started(attempt));
                let connect = Some(ms(after));
                self.plan(self.now.after(ms(after)), Event::Connected { attempt, connect });
            }
            Does::Fails(after, fault) if self.now.after(ms(after)) < deadline => {
                self.plan(self.now, Event::Started(attempt));
                self.plan(self.now.after(ms(after)), failed(fault));
            }
            Does::Connects(_) | Does::Fails(..) | Does::Silent => {
                self.plan(self.now, Event::Started(attempt));
                self.plan(deadline, failed(Fault::Dial));
            }
        }
    }

    pub(super) fn finish(mut self) -> Run {
        // Late events must find nothing to change.
        let mut steps = Steps::new();
        for (_, _, event) in std::mem::take(&mut self.agenda) {
            self.machine.on(event, self.now, &mut steps);
        }
        assert!(steps.is_empty(), "steps after the end");
        Run {
            end: self.end.expect("finished"),
            winner: self.machine.take_winner(),
            dials: self.dials,
            cancelled: self.cancelled,
            most_in_flight: self.most_in_flight,
            took: self.now.since(self.begun).as_millis() as u64,
            machine: self.machine,
        }
    }
}
