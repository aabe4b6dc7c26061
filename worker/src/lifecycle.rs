//! What a worker may do when: the pure machine behind the control conversation.
//!
//! ```text
//! Booting ──Hello──▶ Idle ──Activate──▶ Serving ◀──Activate── Quiesced
//!                                          │ ───────Quiesce──▶  │
//!                                          └──────Drain─────────┴──▶ Retiring ──▶ Done
//! ```
//!
//! Beside the phase there is at most one *pending* generation (a reload, or the first
//! configuration of a fresh process): `Compiling → Planned → Ready`. The two are separate
//! because a serving worker compiles its next generation without a word to its clients.
//!
//! The driver (`boot`) feeds events and carries out the returned actions in order. Nothing here
//! reads a clock, a socket or a file, so every order of messages can be tested.
//!
//! Invariants:
//! * a worker that has not been activated accepts nothing;
//! * a generation is published only after its `Ready` was sent and its `Activate` received;
//! * whatever happens to a pending generation, the serving one is untouched;
//! * after `Retiring` there is no way back.

use std::collections::BTreeSet;
use std::time::Duration;

use baton_handoff::message::{Drain, Generation, ListenerKey, Prepare, Refused, ToSupervisor};

use crate::flow::Moment;

mod action;
mod event;
mod moving;
mod orphan;
#[cfg(test)]
mod tests;

pub(crate) use action::Action;
pub(crate) use event::{Compiled, Event};

/// Generations that may still have connections while a newer one serves.
pub(crate) const MAX_RETIRED: u32 = 8;

/// What the worker is to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for the supervisor's `Hello`.
    Booting,
    /// Greeted; has never served.
    Idle,
    /// Accepting for this generation.
    Serving(Generation),
    /// Has served this generation; connections go on, nothing is accepted.
    Quiesced(Generation),
    /// Ending; connections are cut at the moment given, or already were.
    Retiring {
        /// When what is left is cut; `None` after the cut.
        cut_at: Option<Moment>,
    },
    /// The process is about to exit.
    Done,
}

/// The generation in preparation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pending {
    None,
    Compiling(Generation),
    /// Waiting for sockets; the set holds the keys not yet received.
    Planned(Generation, BTreeSet<ListenerKey>),
    Ready(Generation),
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    phase: Phase,
    /// What to return to when putting a generation in service fails.
    fallback: Phase,
    pending: Pending,
    /// Set when the control pair is gone: when to begin draining.
    orphaned_until: Option<Moment>,
    /// Set while somebody is on the channel who has not said yet that it adopts us.
    guest_until: Option<Moment>,
    /// The drain limit used when nobody is left to give one.
    orphan_drain: Duration,
    /// Connections that the cut ended, for `Drained`.
    cut: u64,
}

impl Lifecycle {
    /// A fresh worker.
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Booting,
            fallback: Phase::Booting,
            pending: Pending::None,
            orphaned_until: None,
            guest_until: None,
            orphan_drain: Duration::from_secs(10),
            cut: 0,
        }
    }

    /// Where the machine stands.
    #[cfg(test)]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The `drainTimeout` of the serving configuration, used when the worker is an orphan.
    pub(crate) fn set_orphan_drain(&mut self, limit: Duration) {
        self.orphan_drain = limit;
    }

    /// How many connections the cut ended; told by the driver when it has carried out `Cut`.
    pub(crate) fn record_cut(&mut self, connections: u64) {
        self.cut = self.cut.saturating_add(connections);
    }

    /// When `Tick` must come at the latest, besides once a second.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let phase = match self.phase {
            Phase::Retiring { cut_at } => cut_at,
            Phase::Booting | Phase::Idle | Phase::Done => None,
            Phase::Serving(_) | Phase::Quiesced(_) => self.orphaned_until,
        };
        phase.into_iter().chain(self.guest_until).min()
    }

    /// Takes one event and says what to do.
    pub(crate) fn on(&mut self, event: Event, now: Moment) -> Vec<Action> {
        if self.phase == Phase::Done {
            return Vec::new();
        }
        match event {
            Event::Hello => self.hello(),
            Event::Prepare { prepare, retired } => self.prepare(prepare, retired),
            Event::Compiled(generation, compiled) => self.compiled(generation, compiled),
            Event::Listeners { generation, keys, last } => self.listeners(generation, &keys, last),
            Event::Activate(generation) => self.activate(generation),
            Event::Abort(generation) => self.abort(generation),
            Event::Quiesce => self.quiesce(),
            Event::Drain(Drain { timeout_ms }) => {
                self.drain(Duration::from_millis(timeout_ms), now)
            }
            Event::Ping => vec![Action::Pulse],
            Event::Tick => self.tick(now),
            Event::ControlLost => self.control_lost(now),
            Event::Called => self.called(now),
            Event::Adopt => self.adopted(),
            Event::Stranger(problem) => self.stranger(problem, now),
            Event::Migrate(migrate) => self.migrate(migrate),
            Event::Recover(recover) => self.recover(recover),
            Event::Report(message) => vec![Action::Send(message)],
            Event::Empty => self.empty(),
            Event::ServiceFailed(generation, problem) => self.service_failed(generation, problem),
            Event::Terminate => self.drain(Duration::ZERO, now),
            Event::KeeperLost => vec![
                Action::Warn("the keeper was killed; another one takes its place".to_owned()),
                Action::RenewLifeline,
            ],
            Event::Broken => {
                self.phase = Phase::Done;
                vec![Action::Exit(1)]
            }
        }
    }

    fn hello(&mut self) -> Vec<Action> {
        match self.phase {
            Phase::Booting => {
                self.phase = Phase::Idle;
                vec![Action::Greet]
            }
            Phase::Serving(_) | Phase::Quiesced(_) | Phase::Retiring { .. }
                if self.guest_until.is_some() =>
            {
                vec![Action::Greet]
            }
            Phase::Idle
            | Phase::Serving(_)
            | Phase::Quiesced(_)
            | Phase::Retiring { .. }
            | Phase::Done => vec![Action::Warn("a second hello from the supervisor".to_owned())],
        }
    }

    fn prepare(&mut self, prepare: Prepare, retired: u32) -> Vec<Action> {
        let generation = prepare.generation;
        match self.phase {
            Phase::Idle | Phase::Serving(_) => {}
            Phase::Booting => return refuse(generation, "prepare before hello"),
            Phase::Quiesced(_) => return refuse(generation, "the worker has stopped accepting"),
            Phase::Retiring { .. } | Phase::Done => {
                return refuse(generation, "the worker is draining");
            }
        }
        if retired >= MAX_RETIRED {
            let text = format!("reload refused: {MAX_RETIRED} generations are still draining");
            return refuse(generation, &text);
        }
        // A newer configuration replaces one that was never activated.
        let mut actions = self.drop_pending();
        self.pending = Pending::Compiling(generation);
        actions.push(Action::Compile(prepare));
        actions
    }

    fn compiled(&mut self, generation: Generation, compiled: Compiled) -> Vec<Action> {
        if self.pending != Pending::Compiling(generation) {
            // Aborted or replaced in the meantime; the result was dropped with it.
            return Vec::new();
        }
        match compiled {
            Compiled::Unchanged(plan) => {
                let mut actions = self.drop_pending();
                actions.push(Action::Send(ToSupervisor::Plan(plan)));
                actions
            }
            Compiled::Good { plan, held } => {
                let missing = plan
                    .listeners
                    .iter()
                    .map(|wanted| wanted.key.clone())
                    .filter(|key| !held.contains(key))
                    .collect();
                self.pending = Pending::Planned(generation, missing);
                vec![Action::Send(ToSupervisor::Plan(plan))]
            }
            Compiled::Bad(problems) => {
                let mut actions = self.drop_pending();
                actions.push(refused(generation, problems));
                actions
            }
        }
    }

    fn listeners(
        &mut self,
        generation: Generation,
        keys: &[ListenerKey],
        last: bool,
    ) -> Vec<Action> {
        let missing = match &mut self.pending {
            Pending::Planned(pending, missing) if *pending == generation => missing,
            Pending::None | Pending::Compiling(_) | Pending::Planned(..) | Pending::Ready(_) => {
                return refuse(generation, "listeners for a generation that was not planned");
            }
        };
        for key in keys {
            missing.remove(key);
        }
        let mut actions = vec![Action::TakeListeners];
        if last {
            if missing.is_empty() {
                self.pending = Pending::Ready(generation);
                actions.push(Action::Build(generation));
                if self.phase == Phase::Idle {
                    actions.push(Action::Lifeline);
                }
                actions.push(Action::Send(ToSupervisor::Ready(generation)));
            } else {
                let problems = missing
                    .iter()
                    .map(|ListenerKey(key)| format!("no socket was handed over for {key}"))
                    .collect();
                actions.extend(self.drop_pending());
                actions.push(refused(generation, problems));
            }
        }
        actions
    }

    fn activate(&mut self, generation: Generation) -> Vec<Action> {
        let active = Action::Send(ToSupervisor::Active(generation));
        match (self.phase, &self.pending) {
            (Phase::Idle | Phase::Serving(_), Pending::Ready(ready)) if *ready == generation => {
                self.pending = Pending::None;
                self.fallback = std::mem::replace(&mut self.phase, Phase::Serving(generation));
                vec![Action::Serve(generation), active]
            }
            (Phase::Quiesced(served), _) if served == generation => {
                self.fallback = std::mem::replace(&mut self.phase, Phase::Serving(generation));
                vec![Action::Resume(generation), active]
            }
            (Phase::Serving(serving), _) if serving == generation => vec![active],
            (
                Phase::Booting
                | Phase::Idle
                | Phase::Serving(_)
                | Phase::Quiesced(_)
                | Phase::Retiring { .. }
                | Phase::Done,
                Pending::None | Pending::Compiling(_) | Pending::Planned(..) | Pending::Ready(_),
            ) => refuse(generation, "this generation is not ready"),
        }
    }

    fn abort(&mut self, generation: Generation) -> Vec<Action> {
        let matches = match &self.pending {
            Pending::None => false,
            Pending::Compiling(pending)
            | Pending::Planned(pending, _)
            | Pending::Ready(pending) => *pending == generation,
        };
        if matches { self.drop_pending() } else { Vec::new() }
    }

    fn quiesce(&mut self) -> Vec<Action> {
        let quiesced = Action::Send(ToSupervisor::Quiesced);
        match self.phase {
            Phase::Serving(generation) => {
                self.phase = Phase::Quiesced(generation);
                let mut actions = self.drop_pending();
                actions.extend([Action::StopAccepting, quiesced]);
                actions
            }
            // Nothing is polled: that is what was asked for.
            Phase::Booting
            | Phase::Idle
            | Phase::Quiesced(_)
            | Phase::Retiring { .. }
            | Phase::Done => vec![quiesced],
        }
    }

    fn drain(&mut self, timeout: Duration, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        match self.phase {
            Phase::Booting | Phase::Idle => {
                actions.extend(self.drop_pending());
                actions.extend(self.finish());
                return actions;
            }
            Phase::Serving(_) => {
                actions.extend(self.drop_pending());
                actions.extend([Action::StopAccepting, Action::CloseListeners]);
            }
            Phase::Quiesced(_) => {
                actions.extend(self.drop_pending());
                actions.push(Action::CloseListeners);
            }
            Phase::Retiring { cut_at: None } | Phase::Done => return Vec::new(),
            Phase::Retiring { cut_at: Some(at) } => {
                // A second request may shorten the wait, never lengthen it.
                if !timeout.is_zero() {
                    self.phase = Phase::Retiring { cut_at: Some(at.min(now.after(timeout))) };
                    return Vec::new();
                }
            }
        }
        if timeout.is_zero() {
            self.phase = Phase::Retiring { cut_at: None };
            actions.push(Action::Cut);
        } else {
            self.phase = Phase::Retiring { cut_at: Some(now.after(timeout)) };
            actions.push(Action::WatchEmpty);
        }
        actions
    }

    fn tick(&mut self, now: Moment) -> Vec<Action> {
        if let Phase::Retiring { cut_at: Some(at) } = self.phase
            && now >= at
        {
            self.phase = Phase::Retiring { cut_at: None };
            return vec![Action::Cut];
        }
        if let Some(actions) = self.orphan_tick(now) {
            return actions;
        }
        match self.phase {
            Phase::Booting => Vec::new(),
            Phase::Idle | Phase::Serving(_) | Phase::Quiesced(_) | Phase::Retiring { .. } => {
                vec![Action::Pulse]
            }
            Phase::Done => Vec::new(),
        }
    }

    fn empty(&mut self) -> Vec<Action> {
        match self.phase {
            Phase::Retiring { .. } => self.finish(),
            Phase::Booting | Phase::Idle | Phase::Serving(_) | Phase::Quiesced(_) | Phase::Done => {
                Vec::new()
            }
        }
    }

    fn service_failed(&mut self, generation: Generation, problem: String) -> Vec<Action> {
        if self.phase == Phase::Serving(generation) {
            // The driver has put everything back.
            self.phase = self.fallback;
        }
        let mut actions = self.drop_pending();
        actions.extend([Action::Warn(problem.clone()), refused(generation, vec![problem])]);
        actions
    }

    fn finish(&mut self) -> Vec<Action> {
        self.phase = Phase::Done;
        vec![Action::Send(ToSupervisor::Drained { cut: self.cut }), Action::Exit(0)]
    }

    fn drop_pending(&mut self) -> Vec<Action> {
        match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::None => Vec::new(),
            Pending::Compiling(_) | Pending::Planned(..) | Pending::Ready(_) => {
                vec![Action::DropPending]
            }
        }
    }
}

fn refused(generation: Generation, problems: Vec<String>) -> Action {
    Action::Send(ToSupervisor::Refused(Refused { generation, problems }))
}

fn refuse(generation: Generation, problem: &str) -> Vec<Action> {
    vec![refused(generation, vec![problem.to_owned()])]
}
