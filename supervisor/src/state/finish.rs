//! How a transition ends, and what comes after it.

use std::collections::BTreeSet;

use baton_handoff::message::{Generation, ListenerKey, WorkerId};

use super::past::Past;
use super::transition::{Failure, Step, Transition};
use super::worker::Role;
use super::{Life, State, Turn};
use super::{limits, migrate};
use crate::action::{Action, Force, Kind, Notify, Order, Outcome, Report, Severity};
use crate::event::{Millis, RequestId};

/// What a report is about.
#[derive(Debug)]
pub(super) struct Matter {
    pub(super) kind: Kind,
    pub(super) requesters: Vec<RequestId>,
    pub(super) started: Millis,
}

impl Matter {
    fn of(transition: Transition) -> Self {
        let Transition { kind, requesters, started, .. } = transition;
        Self { kind, requesters, started }
    }
}

impl State {
    /// The offered generation serves and stood its test.
    pub(super) fn succeed(&mut self, turn: &mut Turn) {
        let Some(mut transition) = self.transition.take() else { return };
        self.keep_listeners(turn, &transition);
        let build = transition.binary.as_ref().map(|binary| binary.build);
        let same = transition.kind == Kind::Upgrade && build == Some(self.accepted.binary.build);
        self.accept(turn, &transition);
        if let Some(old) = transition.old {
            self.retire(turn, old);
        }
        let serving = self.serving.and_then(|id| Some((id, self.workers.get(&id)?)));
        let by = serving.map_or_else(String::new, |(id, worker)| {
            format!(" on worker {} (version {})", id.0, worker.version)
        });
        let build = if same { ", of the same build as before" } else { "" };
        let moved = transition.moved.as_ref().map(migrate::summary).unwrap_or_default();
        let summary = format!("generation {} serves{by}{build}{moved}", transition.generation.0);
        let problems = std::mem::take(&mut transition.problems);
        if let Life::Starting = self.life {
            self.life = Life::Running;
        }
        let matter = Matter::of(transition);
        if matter.kind == Kind::Upgrade && self.settings.replaces {
            return self.replace(turn, matter, summary);
        }
        self.conclude(turn, matter, Outcome::Success, summary, problems);
        self.settle(turn);
    }

    fn keep_listeners(&mut self, turn: &mut Turn, transition: &Transition) {
        let wanted: BTreeSet<ListenerKey> =
            transition.plan.iter().map(|wanted| wanted.key.clone()).collect();
        match transition.kind {
            Kind::Reload | Kind::Upgrade => {
                let closed: Vec<_> = self.listeners.difference(&wanted).cloned().collect();
                self.listeners = wanted;
                if !closed.is_empty() {
                    turn.act(Action::CloseListeners { keys: closed });
                }
            }
            // The same configuration as before: nothing it had may go.
            Kind::Start | Kind::Respawn | Kind::Fallback | Kind::Stop => {
                self.listeners.extend(wanted);
            }
        }
        turn.act(Action::NameListeners { plan: transition.plan.clone() });
    }

    fn accept(&mut self, turn: &mut Turn, transition: &Transition) {
        self.accepted.generation = transition.generation;
        let next = Generation(transition.generation.0.saturating_add(1));
        self.next_generation = self.next_generation.max(next);
        if let Some(config) = &transition.config {
            self.accepted.config = config.clone();
        }
        if let Some(binary) = &transition.binary {
            let former = std::mem::replace(&mut self.accepted.binary, binary.clone());
            if former.id != binary.id {
                self.succeeded_by_another(turn, former);
            }
            if transition.kind == Kind::Upgrade {
                self.quarantine.clear(binary.build);
            }
        }
    }

    /// The worker says that the configuration on offer is the one it serves.
    pub(super) fn unchanged(&mut self, turn: &mut Turn) {
        let Some(transition) = self.transition.take() else { return };
        let summary =
            format!("nothing changed; generation {} serves on", self.accepted.generation.0);
        self.conclude(turn, Matter::of(transition), Outcome::Unchanged, summary, Vec::new());
        self.settle(turn);
    }

    /// The transition came to nothing; what served before serves on, or will be replaced.
    pub(super) fn fail(&mut self, turn: &mut Turn, failure: Failure) {
        let Some(transition) = self.transition.take() else { return };
        let Failure { problems, outcome, blame, answered } = failure;
        self.withdraw(turn, &transition, answered);
        if !transition.fresh.is_empty() {
            turn.act(Action::CloseListeners { keys: transition.fresh.clone() });
        }
        if let Some(binary) = &transition.binary {
            if blame && transition.kind == Kind::Upgrade {
                self.quarantine.blame(binary.build);
            }
            if binary.id != self.accepted.binary.id {
                turn.act(Action::ReleaseBinary { binary: binary.id });
            }
        }
        let kind = transition.kind.as_str();
        let summary = match (outcome, self.serving) {
            (Outcome::Reverted, _) => format!("{kind} reverted; the old worker serves again"),
            (_, Some(_)) => {
                format!("{kind} failed; generation {} serves on", self.accepted.generation.0)
            }
            (_, None) => format!("{kind} failed; no worker serves"),
        };
        self.conclude(turn, Matter::of(transition), outcome, summary, problems.clone());
        match self.life {
            Life::Starting => self.end(turn, 1, problems, None),
            Life::Running | Life::Stopping(_) | Life::Ended => self.settle(turn),
        }
    }

    /// Takes the offer back from whoever has it.
    fn withdraw(&mut self, turn: &mut Turn, transition: &Transition, answered: bool) {
        if transition.kind == Kind::Upgrade && transition.step == Step::Checking {
            turn.act(Action::CancelCheck { ticket: transition.ticket });
        }
        let Some(id) = transition.candidate else { return };
        if !transition.in_place {
            return self.put_down(turn, id);
        }
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.is_alive()) else {
            return;
        };
        let unanswered = transition.occupies(id) && !answered;
        if unanswered {
            // Its silence counts again from here.
            worker.hear(turn.now);
            turn.send(id, Order::Abort(transition.generation));
        }
        if unanswered && transition.step != Step::Binding {
            // Its answer may still come. The number is spent, so that it cannot be taken for an
            // answer to the next offer.
            self.next_generation = Generation(transition.generation.0.saturating_add(1));
        }
    }

    /// Kills a worker that nobody depends on.
    pub(super) fn put_down(&mut self, turn: &mut Turn, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.is_alive()) {
            worker.role = Role::Doomed;
            turn.act(Action::Signal { worker: id, force: Force::Kill });
        }
    }

    pub(super) fn conclude(
        &mut self,
        turn: &mut Turn,
        matter: Matter,
        outcome: Outcome,
        summary: String,
        problems: Vec<String>,
    ) {
        let Matter { kind, requesters, started } = matter;
        match kind {
            Kind::Reload => turn.act(Action::CountReload(outcome)),
            Kind::Upgrade => turn.act(Action::CountUpgrade(outcome)),
            Kind::Start | Kind::Respawn | Kind::Fallback | Kind::Stop => {}
        }
        if outcome.is_ok() && !matches!(kind, Kind::Respawn | Kind::Fallback) {
            turn.act(Action::StampReload);
        }
        let duration = turn.now.since(started).as_millis();
        let report = Report {
            kind,
            outcome,
            summary,
            problems,
            generation: self.accepted.generation,
            duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
        };
        self.announce(turn, &requesters, report);
        if self.is_running() {
            match kind {
                Kind::Start | Kind::Reload | Kind::Upgrade => {
                    turn.act(Action::Notify(Notify::Ready));
                }
                Kind::Respawn | Kind::Fallback | Kind::Stop => {}
            }
            if self.serving.is_some() {
                turn.status(format!("serving generation {}", self.accepted.generation.0));
            }
        }
    }

    fn announce(&mut self, turn: &mut Turn, requesters: &[RequestId], report: Report) {
        let severity = if report.outcome.is_ok() { Severity::Info } else { Severity::Error };
        let mut text = format!("{}: {}", report.kind.as_str(), report.summary);
        for problem in &report.problems {
            text.push_str("; ");
            text.push_str(problem);
        }
        turn.log(severity, text);
        for to in requesters {
            turn.act(Action::Reply { to: *to, report: report.clone() });
        }
        self.last = Some(Past::now(report, turn.now));
    }

    /// Answers a request that cannot even wait.
    pub(super) fn refuse(
        &self,
        turn: &mut Turn,
        kind: Kind,
        requester: Option<RequestId>,
        problem: String,
    ) {
        turn.log(Severity::Warn, format!("{}: {problem}", kind.as_str()));
        if let Some(to) = requester {
            let report = Report {
                kind,
                outcome: Outcome::Failed,
                summary: format!("{} refused", kind.as_str()),
                problems: vec![problem],
                generation: self.accepted.generation,
                duration_ms: 0,
            };
            turn.act(Action::Reply { to, report });
        }
    }

    /// Between transitions: the next request, or a worker where none serves.
    pub(super) fn settle(&mut self, turn: &mut Turn) {
        if !self.is_running() || !self.is_free() {
            return;
        }
        if self.serving.is_some() {
            self.respawn_at = None;
        }
        if let Some(pending) = self.queue.pop() {
            return self.begin(turn, pending);
        }
        if self.serving.is_some() {
            return;
        }
        let at = match self.respawn_at {
            Some(at) => at,
            None => {
                let at = self.backoff.failed(turn.now);
                let wait = at.since(turn.now);
                turn.status(format!(
                    "no worker serves ({} failures); next attempt in {wait:?}",
                    self.backoff.failures()
                ));
                self.respawn_at = Some(at);
                at
            }
        };
        if at <= turn.now {
            self.respawn_at = None;
            self.replace_dead(turn);
        }
    }

    /// The worker that serves.
    pub(crate) fn serving(&self) -> Option<WorkerId> {
        self.serving
    }

    /// One worker serves and nobody else is alive, nothing is going on and nothing carried on.
    pub(crate) fn is_quiet(&self) -> bool {
        let alone = self.serving.is_some() && self.workers.len() == 1;
        self.is_running() && self.is_free() && alone && !self.remains.is_given()
    }

    /// A step of the transition has taken too long.
    pub(super) fn transition_overdue(&mut self, turn: &mut Turn) {
        let Some(transition) = &self.transition else { return };
        let (candidate, old) = (transition.candidate, transition.old);
        let who = candidate.map_or_else(|| "the worker".into(), |id| format!("worker {}", id.0));
        match transition.step {
            Step::Checking => {
                let limit = limits::CHECK;
                let failure = match transition.binary {
                    Some(_) if transition.kind == Kind::Upgrade => Failure::of_build(format!(
                        "the new binary did not answer its self-check within {limit:?}"
                    )),
                    Some(_) | None => Failure::of_system(vec![format!(
                        "the configuration could not be read within {limit:?}"
                    )]),
                };
                self.fail(turn, failure);
            }
            Step::Greeting => {
                let problem = format!("{who} did not say hello in time");
                self.fail(turn, Failure::of_build(problem));
            }
            Step::Planning | Step::Binding | Step::Readying => {
                let limit = self.settings.ready_timeout;
                let problem = format!("{who} was not ready within {limit:?}");
                self.fail(turn, Failure::of_build(problem));
            }
            Step::Activating => {
                let problem = format!("{who} did not begin to accept in time");
                self.kill_overdue(turn, candidate, problem);
            }
            Step::Quiescing => {
                turn.log(Severity::Warn, "the old worker is late to stop accepting".into());
                self.shifted(turn);
            }
            Step::Migrating => {
                turn.log(Severity::Warn, "the old worker does not come to an end of giving".into());
                self.watch(turn);
            }
            Step::Watching => self.probe(turn),
            Step::Probing => {
                let problem = format!("{who} gave no sign of life at the end of the watch");
                self.kill_overdue(turn, candidate, problem);
            }
            Step::Reverting => {
                let problem = "the old worker did not begin to accept again in time".into();
                self.kill_overdue(turn, old, problem);
            }
        }
    }

    fn kill_overdue(&mut self, turn: &mut Turn, worker: Option<WorkerId>, problem: String) {
        if let Some(id) = worker {
            self.put_down(turn, id);
            self.lost(turn, id, problem);
        }
    }
}
