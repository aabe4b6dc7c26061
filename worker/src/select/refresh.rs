//! The background race of `boost`, which looks for a new winner before the cached one expires.

use std::sync::Arc;
use std::time::Duration;

use super::boost::Boost;
use super::cache::RefreshTicket;
use super::flights::{Flights, Settled};
use crate::flow::{Event, Moment, Quota, Steps};

/// How long a background race may take.
const REFRESH_LIMIT: Duration = Duration::from_secs(2);

/// The background race that replaces a cached winner before it expires.
#[derive(Debug)]
pub(super) struct Refresh {
    /// A race with a quota of its own.
    pub(super) boost: Boost,
    /// Held until the race is over, so that there is only one.
    ticket: Option<RefreshTicket>,
}

impl Refresh {
    pub(super) fn new(ticket: RefreshTicket, flights: Flights) -> Self {
        let selector = Arc::clone(&ticket.selector);
        let boost = Boost::with_quota(selector, flights, None, Quota::Background);
        Self { boost, ticket: Some(ticket) }
    }

    pub(super) fn start(&mut self, now: Moment, out: &mut Steps) {
        self.boost.start_race(now.after(REFRESH_LIMIT), now, out);
        self.give_ticket_back();
    }

    pub(super) fn on(&mut self, event: Event, now: Moment, out: &mut Steps) {
        let settled = self.boost.flights.settle(event, now);
        match settled {
            // Background places are taken without waiting anyway; there is no second quota.
            Settled::TargetFull(_) => self.boost.race(now, out),
            Settled::Connected(_)
            | Settled::Failed(..)
            | Settled::ProcessFull(_)
            | Settled::Started(_)
            | Settled::Woke
            | Settled::Nothing => self.boost.on_race(settled, now, out),
        }
        self.give_ticket_back();
    }

    fn give_ticket_back(&mut self) {
        if self.boost.flights.done() {
            self.ticket = None;
        }
    }
}
