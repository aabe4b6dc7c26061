//! The attempts of one connection: the table every machine keeps them in.
//!
//! It owns the admissions, so whatever becomes of a machine (done, dropped in the middle),
//! each attempt is reported to its line once or given back. It also decides what is still
//! untried: an address counts as tried once it was launched, unless the launch was refused
//! its quota and [`forget`](Flights::forget) took it back.

use std::sync::Arc;

use smallvec::SmallVec;

use super::selector::Selector;
use crate::flow::{
    AttemptId, Candidates, Event, Fault, GiveUp, LineIndex, Moment, Quota, RelayEnd, Step, Steps,
};
use crate::upstream::{Admission, Held, LineSet, Refused};

/// The most attempts of one connection: what an [`AttemptId`] can count.
const MAX_ATTEMPTS: usize = 256;

/// The attempts of one connection, and how it ended.
#[derive(Debug)]
pub(super) struct Flights {
    pub(super) lines: Arc<LineSet>,
    pub(super) candidates: Candidates,
    attempts: SmallVec<[Attempt; 2]>,
    /// Lines that refused admission: tried for this connection, though never attempted.
    ruled_out: SmallVec<[LineIndex; 2]>,
    in_flight: u16,
    failed: bool,
    /// A target had no quota for us.
    target_full: bool,
    /// The process had none.
    process_full: bool,
    done: bool,
    winner: Option<Won>,
}

#[derive(Debug)]
struct Attempt {
    line: LineIndex,
    /// Present while in flight.
    admission: Option<Admission>,
    /// Whether the line counts as tried.
    tried: bool,
}

#[derive(Debug)]
struct Won {
    attempt: AttemptId,
    held: Held,
}

/// How one attempt is to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) deadline: Moment,
    pub(super) quota: Quota,
    pub(super) fresh: bool,
    /// Whether the outcome touches the failure marks.
    pub(super) marks: bool,
}

/// What an event meant, after the line was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// It was about nothing that is still in flight.
    Nothing,
    Started(AttemptId),
    /// The socket is there; [`Flights::win`] comes next.
    Connected(AttemptId),
    Failed(AttemptId, Fault),
    TargetFull(AttemptId),
    ProcessFull(AttemptId),
    Woke,
}

/// The candidates that are usable now, in order, duplicates collapsed.
pub(super) fn usable<'a>(
    lines: &'a LineSet,
    candidates: &'a Candidates,
    now: Moment,
) -> impl Iterator<Item = LineIndex> + 'a {
    candidates.iter().copied().filter(move |&line| {
        let node = lines.node(line);
        let twin = node.first() != line && candidates.contains(&node.first());
        !twin && node.line.usable(now)
    })
}

impl Flights {
    pub(super) fn new(lines: Arc<LineSet>, candidates: Candidates) -> Self {
        Self {
            lines,
            candidates,
            attempts: SmallVec::new(),
            ruled_out: SmallVec::new(),
            in_flight: 0,
            failed: false,
            target_full: false,
            process_full: false,
            done: false,
            winner: None,
        }
    }

    /// Whether the machine has ended.
    pub(super) fn done(&self) -> bool {
        self.done
    }

    pub(super) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// The line of an attempt.
    pub(super) fn line_of(&self, attempt: AttemptId) -> LineIndex {
        self.attempts[usize::from(attempt.0)].line
    }

    /// Whether this address was already tried by this connection.
    pub(super) fn tried(&self, line: LineIndex) -> bool {
        let first = self.lines.node(line).first();
        let attempted = self.attempts.iter().filter(|a| a.tried).map(|a| a.line);
        attempted
            .chain(self.ruled_out.iter().copied())
            .any(|tried| self.lines.node(tried).first() == first)
    }

    /// The candidates that are untried and usable now, in order, duplicates collapsed.
    pub(super) fn open(&self, now: Moment) -> impl Iterator<Item = LineIndex> {
        usable(&self.lines, &self.candidates, now).filter(|&line| !self.tried(line))
    }

    /// Starts an attempt. `Err` when the line does not admit one (anymore).
    pub(super) fn launch(
        &mut self,
        line: LineIndex,
        launch: Launch,
        now: Moment,
        out: &mut Steps,
    ) -> Result<AttemptId, Refused> {
        let number = self.attempts.len();
        let Some(attempt) = u8::try_from(number).ok().filter(|_| number < MAX_ATTEMPTS) else {
            return Err(Refused::Open);
        };
        let attempt = AttemptId(attempt);
        let mut admission = self.lines.line(line).admit(now)?;
        if !launch.marks {
            admission = admission.without_marks();
        }
        out.push(Step::Dial {
            attempt,
            line,
            deadline: launch.deadline,
            quota: launch.quota,
            fresh: launch.fresh || admission.is_probe(),
        });
        self.attempts.push(Attempt { line, admission: Some(admission), tried: true });
        self.in_flight += 1;
        Ok(attempt)
    }

    /// Makes a line whose launch was refused its quota untried again, and the refusal no reason
    /// to end: the launch was a bonus.
    pub(super) fn forget(&mut self, attempt: AttemptId) {
        self.attempts[usize::from(attempt.0)].tried = false;
        self.target_full = false;
        self.process_full = false;
    }

    /// Counts a line as tried although nothing was launched (it refused admission).
    pub(super) fn rule_out(&mut self, line: LineIndex) {
        self.ruled_out.push(line);
    }

    /// Tells the line what happened.
    pub(super) fn settle(&mut self, event: Event, now: Moment) -> Settled {
        match event {
            Event::Woke => Settled::Woke,
            Event::Started(attempt) => {
                let flight = self.attempts.get(usize::from(attempt.0));
                match flight.and_then(|flight| flight.admission.as_ref()) {
                    Some(admission) => {
                        admission.started(now);
                        Settled::Started(attempt)
                    }
                    None => Settled::Nothing,
                }
            }
            Event::Connected { attempt, connect } => match self.take(attempt) {
                Some(admission) => {
                    let held = admission.connected(connect, now);
                    self.winner = Some(Won { attempt, held });
                    Settled::Connected(attempt)
                }
                None => Settled::Nothing,
            },
            Event::Failed { attempt, fault } => match self.take(attempt) {
                Some(admission) => {
                    admission.failed(fault, now);
                    self.failed = true;
                    Settled::Failed(attempt, fault)
                }
                None => Settled::Nothing,
            },
            Event::TargetFull(attempt) => match self.take(attempt) {
                Some(admission) => {
                    drop(admission);
                    self.target_full = true;
                    Settled::TargetFull(attempt)
                }
                None => Settled::Nothing,
            },
            Event::ProcessFull(attempt) => match self.take(attempt) {
                Some(admission) => {
                    drop(admission);
                    self.process_full = true;
                    Settled::ProcessFull(attempt)
                }
                None => Settled::Nothing,
            },
        }
    }

    fn take(&mut self, attempt: AttemptId) -> Option<Admission> {
        let admission = self.attempts.get_mut(usize::from(attempt.0))?.admission.take()?;
        self.in_flight -= 1;
        Some(admission)
    }

    /// Ends with the attempt that connected: everybody else is cancelled.
    pub(super) fn win(&mut self, attempt: AttemptId, out: &mut Steps) {
        for (other, flight) in (0u8..=u8::MAX).zip(&mut self.attempts) {
            if flight.admission.take().is_some() {
                out.push(Step::Cancel(AttemptId(other)));
            }
        }
        self.in_flight = 0;
        self.done = true;
        out.push(Step::Use(attempt));
    }

    /// Ends without an upstream; nothing may be in flight.
    pub(super) fn give_up(&mut self, out: &mut Steps, deadline: Moment, now: Moment) {
        debug_assert_eq!(self.in_flight, 0);
        let reason = if self.process_full {
            GiveUp::QuotaExhausted
        } else if self.failed && now >= deadline {
            GiveUp::Deadline
        } else if self.failed {
            GiveUp::AllFailed
        } else if self.target_full {
            GiveUp::QuotaExhausted
        } else {
            GiveUp::NoneUsable
        };
        self.done = true;
        out.push(Step::GiveUp(reason));
    }

    /// The connection's line, once, after `Use`.
    pub(super) fn take_winner(&mut self, cached: Option<(Arc<Selector>, u64)>) -> Option<Winner> {
        let won = self.winner.take()?;
        Some(Winner { line: self.line_of(won.attempt), held: won.held, cached })
    }
}

/// The line that a connection got; kept by the session until the connection ends, so that
/// the line learns from it. Dropped without [`finish`](Self::finish) it says nothing.
#[derive(Debug)]
#[must_use = "the line counts the connection as active until this is dropped"]
pub struct Winner {
    line: LineIndex,
    held: Held,
    /// The rule's winner cache and the entry this connection stands for.
    cached: Option<(Arc<Selector>, u64)>,
}

impl Winner {
    /// For a connection that came from another process over this line of a set.
    pub fn adopted(line: LineIndex, held: Held) -> Self {
        Self { line, held, cached: None }
    }

    /// Which line of the set the machine was begun with.
    #[must_use]
    pub fn line(&self) -> LineIndex {
        self.line
    }

    /// The client spoke first, and the upstream's first byte came `span` after the client's
    /// first byte was forwarded.
    pub fn first_byte(&self, span: std::time::Duration, now: Moment) {
        self.held.first_byte(span, now);
    }

    /// The relay ended; a broken one drops the winner it was cached as.
    pub fn finish(self, end: RelayEnd, now: Moment) {
        match end {
            RelayEnd::AtOnce | RelayEnd::Broken => {
                if let Some((selector, token)) = &self.cached {
                    selector.winner.evict(*token);
                }
            }
            RelayEnd::Clean { .. } | RelayEnd::Neutral => {}
        }
        self.held.finish(end, now);
    }
}
