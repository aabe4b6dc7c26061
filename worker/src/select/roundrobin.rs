//! `roundrobin`: each connection takes the next target of the list, open or not.
//!
//! The cursor moves once a connection, over the list as configured (duplicates count), so the
//! share of a target does not depend on the others' failures. When that one target is excluded
//! or fails, the connection is raced over the others with a fresh `timeout`, sharing the
//! rule's winner cache.

use super::boost::Boost;
use super::flights::{Launch, Settled};
use crate::flow::{AttemptId, Event, Moment, Quota, Steps};

/// The machine.
#[derive(Debug)]
pub(super) struct RoundRobin {
    /// The race that follows when the first fails; holds the attempts of both.
    pub(super) boost: Boost,
    /// The attempt of the rotation, while it is all there is.
    first: Option<AttemptId>,
}

impl RoundRobin {
    pub(super) fn new(boost: Boost) -> Self {
        Self { boost, first: None }
    }

    pub(super) fn start(&mut self, now: Moment, out: &mut Steps) {
        let turn = self.boost.selector.turn();
        let flights = &mut self.boost.flights;
        let Some(line) = nth(&flights.candidates, turn) else {
            return self.boost.start(now, out);
        };
        let launch = Launch {
            deadline: now.after(self.boost.selector.timeout),
            quota: Quota::Wait,
            fresh: false,
            marks: true,
        };
        match flights.launch(line, launch, now, out) {
            Ok(attempt) => self.first = Some(attempt),
            Err(_) => {
                flights.rule_out(line);
                self.boost.start(now, out);
            }
        }
    }

    pub(super) fn on(&mut self, event: Event, now: Moment, out: &mut Steps) {
        if self.first.is_none() {
            return self.boost.on(event, now, out);
        }
        match self.boost.flights.settle(event, now) {
            Settled::Connected(attempt) => self.boost.flights.win(attempt, out),
            Settled::Failed(..) => {
                self.first = None;
                self.boost.start(now, out);
            }
            Settled::TargetFull(_) => {
                self.first = None;
                self.boost.without_waiting();
                self.boost.start(now, out);
            }
            Settled::ProcessFull(_) => {
                self.boost.flights.give_up(out, now, now);
            }
            Settled::Started(_) | Settled::Woke | Settled::Nothing => {}
        }
    }
}

/// The element a cursor stands at.
pub(super) fn nth<T: Copy>(list: &[T], turn: u64) -> Option<T> {
    let length = u64::try_from(list.len()).ok().filter(|&length| length > 0)?;
    usize::try_from(turn % length).ok().and_then(|index| list.get(index)).copied()
}
