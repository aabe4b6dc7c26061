//! `normal`, `regex`, `tls`: the candidates in order until one connects.
//!
//! The rule's `timeout` bounds the whole walk, and each attempt gets an equal share of what is
//! left of it: a black-holed first target must not eat the time of those behind it. A target
//! that refuses at once costs nothing, so its share goes to the others.

use std::time::Duration;

use super::flights::{Flights, Launch, Settled};
use crate::flow::{Event, Moment, Quota, Steps};

/// No attempt gets less, unless the whole walk has less left.
pub(super) const LEAST_SHARE: Duration = Duration::from_millis(250);

/// When an attempt counts as failed: after an equal share of what is left until `deadline`,
/// at least [`LEAST_SHARE`], never beyond `deadline`.
pub(super) fn share(deadline: Moment, attempts_left: usize, now: Moment) -> Moment {
    let left = u32::try_from(attempts_left).unwrap_or(u32::MAX).max(1);
    now.after((deadline.since(now) / left).max(LEAST_SHARE)).min(deadline)
}

/// The machine.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) flights: Flights,
    timeout: Duration,
    deadline: Moment,
    quota: Quota,
}

impl Walk {
    pub(super) fn new(flights: Flights, timeout: Duration) -> Self {
        Self { flights, timeout, deadline: Moment::default(), quota: Quota::Wait }
    }

    pub(super) fn start(&mut self, now: Moment, out: &mut Steps) {
        self.deadline = now.after(self.timeout);
        self.next(now, out);
    }

    pub(super) fn on(&mut self, event: Event, now: Moment, out: &mut Steps) {
        match self.flights.settle(event, now) {
            Settled::Connected(attempt) => self.flights.win(attempt, out),
            Settled::Failed(..) => self.next(now, out),
            Settled::TargetFull(_) => {
                // One bounded wait a connection: from now on only what is free at once.
                self.quota = Quota::Immediate;
                self.next(now, out);
            }
            Settled::ProcessFull(_) => self.flights.give_up(out, self.deadline, now),
            Settled::Started(_) | Settled::Woke | Settled::Nothing => {}
        }
    }

    fn next(&mut self, now: Moment, out: &mut Steps) {
        while now < self.deadline {
            let mut open = self.flights.open(now);
            let Some(line) = open.next() else { break };
            let left = 1 + open.count();
            let launch = Launch {
                deadline: share(self.deadline, left, now),
                quota: self.quota,
                fresh: false,
                marks: true,
            };
            match self.flights.launch(line, launch, now, out) {
                Ok(_) => return,
                Err(_) => self.flights.rule_out(line),
            }
        }
        self.flights.give_up(out, self.deadline, now);
    }
}
