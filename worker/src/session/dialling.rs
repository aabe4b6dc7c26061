//! Choosing and dialling, counted: a selection machine with its books.
//!
//! The dialler tells the machine what happens; in between stands [`Counted`], which counts each
//! attempt under its target. An attempt that is begun and comes to no end, because another one
//! won or the client left, counts as cancelled when the books are closed.

use smallvec::SmallVec;

use crate::flow::{AttemptId, Event, LineIndex, Moment, Select, Step, Steps};
use crate::generation::RuleSeries;
use crate::select::Machine;
use crate::shard::ShardSeries;
use crate::upstream::LineSet;

/// A machine whose attempts are counted.
pub(super) struct Counted<'a> {
    machine: &'a mut Machine,
    lines: &'a LineSet,
    series: &'a RuleSeries,
    dials: &'a ShardSeries,
    attempts: SmallVec<[Attempt; 2]>,
}

struct Attempt {
    id: AttemptId,
    line: LineIndex,
    asked: Moment,
    /// Begun and not ended.
    open: bool,
}

impl<'a> Counted<'a> {
    /// Counts what `machine` does with `lines`.
    pub(super) fn new(
        machine: &'a mut Machine,
        lines: &'a LineSet,
        series: &'a RuleSeries,
        dials: &'a ShardSeries,
    ) -> Self {
        Self { machine, lines, series, dials, attempts: SmallVec::new() }
    }

    /// Notes attempts that the machine has just asked for.
    fn note(&mut self, steps: &[Step], now: Moment) {
        for step in steps {
            match *step {
                Step::Dial { attempt, line, .. } => {
                    self.attempts.push(Attempt { id: attempt, line, asked: now, open: false });
                }
                Step::WakeAt(_) | Step::Cancel(_) | Step::Use(_) | Step::GiveUp(_) => {}
            }
        }
    }

    fn count(&mut self, event: &Event, now: Moment) {
        let (id, open) = match event {
            Event::Started(id) => (*id, true),
            Event::Connected { attempt, .. } | Event::Failed { attempt, .. } => (*attempt, false),
            Event::TargetFull(_) => return self.dials.target_full.inc(),
            Event::ProcessFull(_) => return self.dials.process_full.inc(),
            Event::Woke => return,
        };
        let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.id == id) else {
            return;
        };
        attempt.open = open;
        let series = self.series.target(self.lines.node(attempt.line).target);
        match event {
            Event::Started(_) => {
                series.attempts.inc();
                self.dials.waited.observe(now.since(attempt.asked));
            }
            Event::Connected { connect, .. } => {
                // A prewarmed socket was no dial.
                if let Some(connect) = connect {
                    series.success.inc();
                    series.latency.observe(*connect);
                }
            }
            Event::Failed { .. } => series.failures.inc(),
            Event::TargetFull(_) | Event::ProcessFull(_) | Event::Woke => {}
        }
    }
}

impl Select for Counted<'_> {
    fn start(&mut self, now: Moment, steps: &mut Steps) {
        self.machine.start(now, steps);
        self.note(steps, now);
    }

    fn on(&mut self, event: Event, now: Moment, steps: &mut Steps) {
        self.count(&event, now);
        let before = steps.len();
        self.machine.on(event, now, steps);
        self.note(steps.get(before..).unwrap_or_default(), now);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        for attempt in self.attempts.iter().filter(|attempt| attempt.open) {
            self.series.target(self.lines.node(attempt.line).target).canceled.inc();
        }
    }
}
