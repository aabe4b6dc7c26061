//! Check, Spawn, Prepare: everything before anyone is asked to serve. A failure here changes
//! nothing for clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use baton_handoff::message::{
    Generation, HelloSupervisor, HelloWorker, ListenerWanted, Migrate, Nak, Plan, Recover, Refused,
    WorkerId,
};

use super::queue::Pending;
use super::transition::{Failure, Step, Transition};
use super::worker::{Role, Worker};
use super::{Life, State, Turn, limits};
use crate::action::{Action, Kind, Notify, Order, Severity};
use crate::event::{Binary, BinaryId, ConfigText, Millis, Request, RequestId, Ticket};

impl State {
    /// Sets off on a reload or an upgrade; nothing else is going on.
    pub(super) fn begin(&mut self, turn: &mut Turn, pending: Pending) {
        let Pending { request, requesters } = pending;
        match request {
            Request::Reload => self.begin_reload(turn, requesters),
            Request::Upgrade { binary, force } => {
                let mut transition = self.transition(turn, Kind::Upgrade, requesters);
                transition.old = self.serving;
                transition.path = binary;
                transition.force = force;
                self.begin_upgrade(turn, transition);
            }
            Request::Stop => requesters.into_iter().for_each(|id| self.stop(turn, Some(id))),
        }
    }

    fn begin_reload(&mut self, turn: &mut Turn, requesters: Vec<RequestId>) {
        let mut transition = self.transition(turn, Kind::Reload, requesters);
        transition.candidate = self.serving;
        transition.in_place = self.serving.is_some();
        transition.checked = true;
        transition.binary = Some(self.accepted.binary.clone());
        let ticket = transition.ticket;
        self.transition = Some(transition);
        turn.act(Action::Notify(Notify::Reloading));
        let deadline = Some(turn.now.after(limits::CHECK));
        self.enter(turn, Step::Checking, deadline, "reading the configuration".into());
        turn.act(Action::ReadConfig { ticket });
    }

    fn begin_upgrade(&mut self, turn: &mut Turn, transition: Transition) {
        let (ticket, path) = (transition.ticket, transition.path.clone());
        self.transition = Some(transition);
        turn.act(Action::Notify(Notify::Reloading));
        let retiring = self.retiring();
        if retiring >= limits::RETIRING {
            let problem = format!("upgrade refused: {retiring} workers are still draining");
            return self.fail(turn, Failure::of_system(vec![problem]));
        }
        let deadline = Some(turn.now.after(limits::CHECK));
        self.enter(turn, Step::Checking, deadline, "checking the new binary".into());
        turn.act(Action::ReadConfig { ticket });
        turn.act(Action::OpenBinary { ticket, path });
    }

    /// Sets off on the first worker or a replacement, from what was accepted last.
    pub(super) fn begin_worker(&mut self, turn: &mut Turn, kind: Kind) {
        let mut transition = self.transition(turn, kind, Vec::new());
        transition.generation = self.accepted.generation;
        transition.config = Some(Arc::clone(&self.accepted.config));
        transition.binary = Some(self.accepted.binary.clone());
        transition.checked = true;
        self.transition = Some(transition);
        self.checks_done(turn);
    }

    fn transition(&mut self, turn: &Turn, kind: Kind, requesters: Vec<RequestId>) -> Transition {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.saturating_add(1);
        Transition {
            ticket,
            kind,
            requesters,
            started: turn.now,
            step: Step::Checking,
            deadline: None,
            generation: self.next_generation,
            config: None,
            binary: None,
            checked: false,
            force: false,
            path: None,
            candidate: None,
            in_place: false,
            old: None,
            plan: Vec::new(),
            fresh: Vec::new(),
            moved: None,
            problems: Vec::new(),
        }
    }

    /// Moves the transition to a step and tells whoever waits.
    pub(super) fn enter(
        &mut self,
        turn: &mut Turn,
        step: Step,
        deadline: Option<Millis>,
        text: String,
    ) {
        let Some(transition) = &mut self.transition else { return };
        transition.step = step;
        transition.deadline = deadline;
        turn.act(Action::Progress {
            to: transition.requesters.clone(),
            kind: transition.kind,
            phase: step.phase(),
            text,
        });
    }

    /// The transition that asked under `ticket` and is still at `step`.
    fn awaiting(&mut self, ticket: Ticket, step: Step) -> Option<&mut Transition> {
        self.transition.as_mut().filter(|t| t.ticket == ticket && t.step == step)
    }

    pub(super) fn config_read(
        &mut self,
        turn: &mut Turn,
        ticket: Ticket,
        result: Result<Arc<ConfigText>, String>,
    ) {
        let Some(transition) = self.awaiting(ticket, Step::Checking) else { return };
        match result {
            Ok(config) => {
                transition.config = Some(config);
                self.checks_done(turn);
            }
            Err(problem) => self.fail(turn, Failure::of_system(vec![problem])),
        }
    }

    pub(super) fn opened(
        &mut self,
        turn: &mut Turn,
        ticket: Ticket,
        result: Result<Binary, String>,
    ) {
        let awaited = self
            .awaiting(ticket, Step::Checking)
            .is_some_and(|transition| transition.kind == Kind::Upgrade && !transition.checked);
        let binary = match result {
            Ok(binary) if awaited => binary,
            Ok(binary) => return turn.act(Action::ReleaseBinary { binary: binary.id }),
            Err(problem) if awaited => {
                return self.fail(turn, Failure::of_system(vec![problem]));
            }
            Err(_) => return,
        };
        let (id, build, path) = (binary.id, binary.build, binary.path.clone());
        let quarantined = self.quarantine.holds(build);
        let Some(transition) = self.awaiting(ticket, Step::Checking) else { return };
        if let Some(former) = transition.binary.replace(binary) {
            turn.act(Action::ReleaseBinary { binary: former.id });
        }
        if quarantined && !transition.force {
            let problem = format!(
                "{}: this build failed repeatedly and is not tried again without --force",
                path.display()
            );
            return self.fail(turn, Failure::of_system(vec![problem]));
        }
        turn.act(Action::SelfCheck { ticket, binary: id });
    }

    pub(super) fn checked(
        &mut self,
        turn: &mut Turn,
        ticket: Ticket,
        result: Result<String, String>,
    ) {
        let Some(transition) = self.awaiting(ticket, Step::Checking) else { return };
        if transition.binary.is_none() {
            return;
        }
        match result {
            Ok(version) => {
                transition.checked = true;
                let offered = transition.binary.as_ref().map(|binary| binary.build);
                let same = offered == Some(self.accepted.binary.build);
                let which = if same { " (same build)" } else { "" };
                turn.log(Severity::Info, format!("the new binary is version {version}{which}"));
                self.checks_done(turn);
            }
            Err(problem) => self.fail(turn, Failure::of_build(problem)),
        }
    }

    /// Goes on once everything is at hand: to the worker that serves, or to a fresh one.
    fn checks_done(&mut self, turn: &mut Turn) {
        let Some(transition) = &self.transition else { return };
        let (Some(_), true, Some(binary)) =
            (&transition.config, transition.checked, &transition.binary)
        else {
            return;
        };
        match transition.candidate {
            Some(worker) if transition.in_place => self.offer(turn, worker, false),
            Some(_) | None => {
                let (binary, generation) = (binary.id, transition.generation);
                self.spawn(turn, binary, generation);
            }
        }
    }

    fn spawn(&mut self, turn: &mut Turn, binary: BinaryId, generation: Generation) {
        let id = WorkerId(self.next_worker);
        self.next_worker = self.next_worker.saturating_add(1);
        self.workers.insert(id, Worker::new(generation, turn.now));
        if let Some(transition) = &mut self.transition {
            transition.candidate = Some(id);
        }
        let deadline = Some(turn.now.after(self.hello_limit()));
        self.enter(turn, Step::Greeting, deadline, format!("starting worker {}", id.0));
        turn.act(Action::Spawn { worker: id, binary });
        let version = self.settings.version.clone();
        turn.send(id, Order::Hello(HelloWorker { worker: id, version }));
    }

    /// Nothing is gained by killing the only worker there is because a machine that starts
    /// everything at once is slow to run it.
    fn hello_limit(&self) -> Duration {
        match self.serving {
            Some(_) => limits::HELLO,
            None => self.settings.ready_timeout.max(limits::HELLO),
        }
    }

    pub(super) fn spawned(&mut self, worker: WorkerId, pid: u32) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.pid = Some(pid);
        }
    }

    pub(super) fn spawn_failed(&mut self, turn: &mut Turn, worker: WorkerId, problem: String) {
        if self.workers.get(&worker).is_none_or(|worker| worker.pid.is_some()) {
            return;
        }
        self.workers.remove(&worker);
        self.lost(turn, worker, format!("worker {} cannot be started: {problem}", worker.0));
        self.leave_if_empty(turn);
    }

    pub(super) fn greeted(&mut self, turn: &mut Turn, id: WorkerId, hello: HelloSupervisor) {
        let awaited = self
            .transition
            .as_ref()
            .is_some_and(|t| t.candidate == Some(id) && t.step == Step::Greeting);
        if !awaited {
            return Self::dropped(turn, id, "Hello");
        }
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.version = hello.version;
        }
        self.offer(turn, id, true);
    }

    fn offer(&mut self, turn: &mut Turn, worker: WorkerId, fresh: bool) {
        let deadline = Some(turn.now.after(self.settings.ready_timeout));
        let Some(transition) = &self.transition else { return };
        let (generation, config) = (transition.generation, transition.config.clone());
        let Some(config) = config else { return };
        let text = format!("offering generation {} to worker {}", generation.0, worker.0);
        self.enter(turn, Step::Planning, deadline, text);
        turn.act(Action::Prepare { worker, generation, config, with_region: fresh });
    }

    pub(super) fn planned(&mut self, turn: &mut Turn, id: WorkerId, plan: Plan) {
        let Some(transition) = self
            .transition
            .as_mut()
            .filter(|t| t.offers(id, plan.generation) && t.step == Step::Planning)
        else {
            return Self::dropped(turn, id, "Plan");
        };
        if plan.unchanged && transition.in_place {
            return self.unchanged(turn);
        }
        if let Err(problem) = plausible(&plan.listeners) {
            return self.broken(turn, id, &problem);
        }
        let missing: Vec<ListenerWanted> = plan
            .listeners
            .iter()
            .filter(|wanted| !self.listeners.contains(&wanted.key))
            .cloned()
            .collect();
        transition.plan = plan.listeners;
        if missing.is_empty() {
            return self.hand_over(turn);
        }
        transition.fresh = missing.iter().map(|wanted| wanted.key.clone()).collect();
        let (ticket, deadline) = (transition.ticket, transition.deadline);
        let text = match missing.len() {
            1 => "binding 1 new listener".to_owned(),
            count => format!("binding {count} new listeners"),
        };
        self.enter(turn, Step::Binding, deadline, text);
        turn.act(Action::Bind { ticket, wanted: missing });
    }

    pub(super) fn bound(
        &mut self,
        turn: &mut Turn,
        ticket: Ticket,
        result: Result<(), Vec<String>>,
    ) {
        let Some(transition) = self.awaiting(ticket, Step::Binding) else { return };
        match result {
            Ok(()) => self.hand_over(turn),
            Err(problems) => {
                transition.fresh.clear();
                self.fail(turn, Failure::of_system(problems));
            }
        }
    }

    fn hand_over(&mut self, turn: &mut Turn) {
        let Some(transition) = &self.transition else { return };
        let Some(worker) = transition.candidate else { return };
        let generation = transition.generation;
        let keys: Vec<_> = transition.plan.iter().map(|wanted| wanted.key.clone()).collect();
        let deadline = transition.deadline;
        let text = format!("handing {} listeners to worker {}", keys.len(), worker.0);
        self.enter(turn, Step::Readying, deadline, text);
        turn.act(Action::HandListeners { worker, generation, keys });
    }

    pub(super) fn refused(&mut self, turn: &mut Turn, id: WorkerId, refused: Refused) {
        let awaited = self.transition.as_ref().is_some_and(|t| {
            t.offers(id, refused.generation)
                && matches!(
                    t.step,
                    Step::Planning | Step::Binding | Step::Readying | Step::Activating
                )
        });
        if !awaited {
            return Self::dropped(turn, id, "Refused");
        }
        let mut problems = refused.problems;
        if problems.is_empty() {
            problems.push(format!("worker {} refuses without saying why", id.0));
        }
        self.fail(turn, Failure::refused(problems));
    }

    /// A worker did not take one of our messages: another release, or out of descriptors.
    pub(super) fn not_understood(&mut self, turn: &mut Turn, id: WorkerId, nak: &Nak) {
        let problem =
            format!("worker {} did not take message type {}: {}", id.0, nak.kind, nak.reason);
        if nak.kind == Recover::KIND && self.remains.is_with(id) {
            return self.give_up_remains(turn, &problem);
        }
        let takes_part = |t: &Transition| t.candidate == Some(id) || t.old == Some(id);
        if nak.kind == Migrate::KIND && self.transition.as_ref().is_some_and(takes_part) {
            return self.not_migrating(turn, &problem);
        }
        let concerned = self
            .transition
            .as_ref()
            .and_then(|t| (t.candidate == Some(id)).then_some((t.in_place, t.step)));
        match concerned {
            Some((_, Step::Greeting | Step::Planning | Step::Binding | Step::Readying)) => {
                self.fail(turn, Failure::of_build(problem));
            }
            Some((
                _,
                Step::Activating
                | Step::Quiescing
                | Step::Migrating
                | Step::Watching
                | Step::Probing,
            )) => {
                self.broken(turn, id, &problem);
            }
            Some((_, Step::Checking | Step::Reverting)) | None => {
                turn.log(Severity::Warn, problem);
            }
        }
    }

    pub(super) fn retiring(&self) -> usize {
        self.workers.values().filter(|w| matches!(w.role, Role::Retiring { .. })).count()
    }

    /// Whether transitions may begin at all.
    pub(super) fn is_running(&self) -> bool {
        match self.life {
            Life::Running => true,
            Life::Starting | Life::Stopping(_) | Life::Ended => false,
        }
    }
}

/// A plan is untrusted: its keys must be unique, because descriptors travel by key.
fn plausible(plan: &[ListenerWanted]) -> Result<(), String> {
    if plan.len() > limits::PLAN {
        return Err(format!("its plan asks for {} listeners", plan.len()));
    }
    let mut seen = BTreeSet::new();
    match plan.iter().find(|wanted| !seen.insert(&wanted.key)) {
        None => Ok(()),
        Some(double) => Err(format!("its plan asks twice for {:?}", double.key.0)),
    }
}
