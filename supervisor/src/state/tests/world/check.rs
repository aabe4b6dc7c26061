//! What must hold whatever happens.
#![allow(clippy::wildcard_enum_match_arm, reason = "most of what happens is of no interest here")]

use std::collections::{BTreeMap, BTreeSet};

use baton_handoff::message::{Migrated, ToSupervisor, WorkerId};

use super::World;
use crate::action::{Action, Order};
use crate::event::Event;

/// What has been said about connections, as far as it still counts.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Dead workers whose lifeline is kept.
    kept: BTreeSet<WorkerId>,
    /// Who was told to carry on what whom left, and has neither answered nor ended.
    adopters: BTreeMap<WorkerId, BTreeSet<WorkerId>>,
    /// Who gives to whom.
    moving: Option<(WorkerId, WorkerId)>,
}

impl World {
    /// Before the machine hears of it.
    pub(super) fn note_event(&mut self, event: &Event) {
        match event {
            Event::Exited { worker, .. } => {
                self.ledger.adopters.remove(worker);
            }
            Event::Message { worker, message: ToSupervisor::Recovered(_) } => {
                self.ledger.adopters.remove(worker);
            }
            Event::Message { worker, message: ToSupervisor::Migrated(Migrated { over, .. }) }
                if *over =>
            {
                self.ledger.moving.take_if(|(from, _)| from == worker);
            }
            _ => {}
        }
    }

    /// When the machine says so.
    pub(super) fn note_action(&mut self, action: &Action) {
        match action {
            Action::Forget { worker, remains: true } => {
                assert!(self.ledger.kept.insert(*worker));
                assert!(self.ledger.kept.len() <= 9, "what is left is bounded");
            }
            Action::LetGo { worker } => assert!(self.ledger.kept.remove(worker), "let go twice"),
            Action::Recover { worker, dead } => {
                assert_eq!(self.state.serving, Some(*worker), "it does not serve");
                let whose: BTreeSet<_> = dead.iter().map(|dead| dead.worker).collect();
                assert!(whose.is_subset(&self.ledger.kept), "their death was not seen");
                let taken = self.ledger.adopters.values().any(|of| !of.is_disjoint(&whose));
                assert!(!taken, "somebody else may be carrying it on");
                let since: Vec<_> = dead.iter().map(|dead| dead.since_ms).collect();
                assert!(since.is_sorted(), "the one that died last comes first");
                self.ledger.adopters.insert(*worker, whose);
            }
            Action::Migrate { from, to, .. } => {
                let alive =
                    |id: &WorkerId| self.processes.get(id).is_some_and(|process| process.alive);
                let going_on = self.ledger.moving.filter(|(from, to)| alive(from) && alive(to));
                assert_eq!(going_on, None, "two conversations at once");
                assert_eq!(self.state.serving, Some(*to));
                self.ledger.moving = Some((*from, *to));
            }
            Action::Send { worker, order: Order::Drain(_) | Order::Activate(_) } => {
                self.ledger.moving.take_if(|(from, _)| from == worker);
            }
            _ => {}
        }
    }

    /// After every event.
    pub(super) fn check(&self) {
        let accepting = self.processes.values().filter(|process| process.accepting).count();
        let shifting = matches!(self.phase().as_deref(), Some("shift"));
        assert!(accepting <= if shifting { 2 } else { 1 }, "{accepting} accept");
        let both = self.state.is_replacing() && self.state.transition.is_some();
        assert!(!both, "something begins while the supervisor is being replaced");
        if self.exit.is_some() {
            assert!(self.processes.values().all(|process| !process.alive));
            assert!(self.open.is_empty(), "listeners left open: {:?}", self.open);
        }
    }

    /// Nothing leaks when all is quiet.
    pub(in super::super) fn check_quiet(&self) {
        if self.exit.is_none() {
            let former = usize::from(self.state.former.is_some());
            assert_eq!(self.binaries.len(), 1 + former, "executables left open");
            assert_eq!(self.open, self.kept, "sockets of no accepted configuration left open");
        }
        assert_eq!(self.ledger.kept, BTreeSet::new(), "a lifeline is kept for ever");
        assert_eq!(self.unanswered(), []);
    }
}
