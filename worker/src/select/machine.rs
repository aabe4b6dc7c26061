//! The one type a driver knows: a machine of any mode.

use super::boost::Boost;
use super::cache::RefreshTicket;
use super::flights::{Flights, Winner};
use super::forward::Forward;
use super::notes::Notes;
use super::refresh::Refresh;
use super::roundrobin::RoundRobin;
use super::walk::Walk;
use crate::flow::{Event, Moment, Select, Steps};

/// The selection of one connection. Dropped in the middle, every attempt in flight counts as
/// cancelled: neutral for its line.
#[derive(Debug)]
pub struct Machine(Kind);

#[derive(Debug)]
pub(super) enum Kind {
    Walk(Walk),
    Boost(Boost),
    RoundRobin(RoundRobin),
    Forward(Forward),
    Refresh(Refresh),
}

impl Machine {
    pub(super) fn new(kind: Kind) -> Self {
        Self(kind)
    }

    /// Begins; called once, before any event. Adds what to do to `out`.
    pub fn start(&mut self, now: Moment, out: &mut Steps) {
        match &mut self.0 {
            Kind::Walk(walk) => walk.start(now, out),
            Kind::Boost(boost) => boost.start(now, out),
            Kind::RoundRobin(rotation) => rotation.start(now, out),
            Kind::Forward(forward) => forward.start(now, out),
            Kind::Refresh(refresh) => refresh.start(now, out),
        }
    }

    /// Takes an event. Adds what to do to `out`; nothing after the machine is done.
    pub fn on(&mut self, event: Event, now: Moment, out: &mut Steps) {
        if self.is_done() {
            return;
        }
        match &mut self.0 {
            Kind::Walk(walk) => walk.on(event, now, out),
            Kind::Boost(boost) => boost.on(event, now, out),
            Kind::RoundRobin(rotation) => rotation.on(event, now, out),
            Kind::Forward(forward) => forward.on(event, now, out),
            Kind::Refresh(refresh) => refresh.on(event, now, out),
        }
    }

    /// Whether `Use` or `GiveUp` was said.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.flights().done()
    }

    /// The line of the connection, after `Use`; once.
    pub fn take_winner(&mut self) -> Option<Winner> {
        let cached = match &self.0 {
            Kind::Boost(boost) => boost.cached(),
            Kind::RoundRobin(rotation) => rotation.boost.cached(),
            // A background race serves no client whose relay could break.
            Kind::Refresh(_) | Kind::Walk(_) | Kind::Forward(_) => None,
        };
        self.flights_mut().take_winner(cached)
    }

    /// A background race is due, and this connection is the one to ask for it (to be given to
    /// [`Selector::refresh`](super::Selector::refresh)); once.
    pub fn take_refresh(&mut self) -> Option<RefreshTicket> {
        match &mut self.0 {
            Kind::Boost(boost) => boost.take_refresh(),
            Kind::RoundRobin(rotation) => rotation.boost.take_refresh(),
            Kind::Walk(_) | Kind::Forward(_) | Kind::Refresh(_) => None,
        }
    }

    /// What happened on the way.
    #[must_use]
    pub fn notes(&self) -> Notes {
        match &self.0 {
            Kind::Boost(boost) => boost.notes(),
            Kind::RoundRobin(rotation) => rotation.boost.notes(),
            Kind::Walk(_) | Kind::Forward(_) | Kind::Refresh(_) => Notes::default(),
        }
    }

    fn flights(&self) -> &Flights {
        match &self.0 {
            Kind::Walk(walk) => &walk.flights,
            Kind::Boost(boost) => &boost.flights,
            Kind::RoundRobin(rotation) => &rotation.boost.flights,
            Kind::Forward(forward) => &forward.flights,
            Kind::Refresh(refresh) => &refresh.boost.flights,
        }
    }

    fn flights_mut(&mut self) -> &mut Flights {
        match &mut self.0 {
            Kind::Walk(walk) => &mut walk.flights,
            Kind::Boost(boost) => &mut boost.flights,
            Kind::RoundRobin(rotation) => &mut rotation.boost.flights,
            Kind::Forward(forward) => &mut forward.flights,
            Kind::Refresh(refresh) => &mut refresh.boost.flights,
        }
    }
}

impl Select for Machine {
    fn start(&mut self, now: Moment, steps: &mut Steps) {
        Self::start(self, now, steps);
    }

    fn on(&mut self, event: Event, now: Moment, steps: &mut Steps) {
        Self::on(self, event, now, steps);
    }
}
