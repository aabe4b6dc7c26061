//! Life without a supervisor, and the way out of it.
//!
//! A worker whose supervisor died serves on, because nothing its clients need died with it. For
//! [`ORPHAN_GRACE`] it waits for a successor to call at its adoption socket; then it drains.
//! Whoever calls is a guest until it says `Adopt`, and a guest changes nothing: not even one that
//! calls and hangs up again and again makes the grace longer.

use std::time::Duration;

use baton_handoff::message::Standing;

use super::{Action, Lifecycle, Phase};
use crate::flow::Moment;

/// How long a worker without a supervisor goes on before it drains by itself.
const ORPHAN_GRACE: Duration = Duration::from_secs(300);
/// From the call to `Adopt`; a supervisor says it in the same breath.
const GUEST: Duration = Duration::from_secs(5);

impl Lifecycle {
    /// The control channel has ended.
    pub(super) fn control_lost(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = self.drop_pending();
        self.guest_until = None;
        match self.phase {
            // It has no client and nobody can ever give it one.
            Phase::Booting | Phase::Idle => {
                self.phase = Phase::Done;
                actions.push(Action::Exit(1));
            }
            Phase::Serving(_) | Phase::Quiesced(_) if self.orphaned_until.is_none() => {
                self.orphaned_until = Some(now.after(ORPHAN_GRACE));
                actions.push(Action::Warn(format!(
                    "the supervisor is gone: serving on for {} s, then draining",
                    ORPHAN_GRACE.as_secs()
                )));
            }
            Phase::Serving(_) | Phase::Quiesced(_) | Phase::Retiring { .. } | Phase::Done => {}
        }
        actions
    }

    /// Somebody called at the adoption socket.
    pub(super) fn called(&mut self, now: Moment) -> Vec<Action> {
        self.guest_until = Some(now.after(GUEST));
        Vec::new()
    }

    /// The guest is our supervisor from here on.
    pub(super) fn adopted(&mut self) -> Vec<Action> {
        let standing = match self.phase {
            Phase::Serving(_) => Standing::Serving,
            Phase::Quiesced(_) => Standing::Standby,
            Phase::Retiring { .. } => Standing::Retiring,
            Phase::Booting | Phase::Idle | Phase::Done => return not_an_orphan(),
        };
        if self.guest_until.take().is_none() {
            return not_an_orphan();
        }
        self.orphaned_until = None;
        vec![
            Action::Account(standing),
            Action::RenewLifeline,
            Action::Warn("another supervisor has taken over".into()),
        ]
    }

    /// The guest speaks no protocol that we speak: nobody who calls will, so there is nothing to
    /// wait for, and it needs the listeners.
    pub(super) fn stranger(&mut self, problem: String, now: Moment) -> Vec<Action> {
        if self.guest_until.take().is_none() {
            return vec![Action::Warn(problem)];
        }
        self.orphaned_until = None;
        let mut actions = vec![Action::Warn(format!("draining: {problem}"))];
        actions.extend(self.drain(self.orphan_drain, now));
        if self.phase != Phase::Done {
            actions.push(Action::HangUp);
        }
        actions
    }

    /// What time does to an orphan; `None` to anybody else.
    pub(super) fn orphan_tick(&mut self, now: Moment) -> Option<Vec<Action>> {
        if let Some(until) = self.guest_until {
            if now < until {
                return Some(Vec::new());
            }
            self.guest_until = None;
            return Some(vec![Action::HangUp]);
        }
        let until = self.orphaned_until?;
        if now < until {
            return Some(Vec::new());
        }
        self.orphaned_until = None;
        Some(self.drain(self.orphan_drain, now))
    }
}

fn not_an_orphan() -> Vec<Action> {
    vec![Action::Warn("adoption of a worker that has a supervisor".into())]
}
