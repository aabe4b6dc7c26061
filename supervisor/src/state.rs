//! The supervisor's decisions, without doing anything: an [`Event`] and the time go in, a list
//! of [`Action`]s comes out.
//!
//! ```text
//! Idle → Check → Spawn → Prepare → Shift → Migrate → Watch → (Retire, in the background) → Replace → Idle
//!         failure up to Prepare: given up, the old side was never touched
//!         failure in Shift, Migrate or Watch: the old side is called back
//! ```
//!
//! Start, reload, upgrade and the replacement of a dead worker are one [`Transition`] that enters
//! at different phases: a reload offers to the worker that serves (so nothing is spawned, watched
//! or retired), the others offer to a fresh process. Migrate is of an upgrade only, as is Replace,
//! the supervisor's own renewal. Beside any transition, whoever serves is given what dead workers
//! left ([`remains`]): a new worker that is killed inside a transition thus gives its connections
//! back to the old one, and the other way round.
//!
//! Invariants, each held by a property test over random and hostile event sequences:
//! * A listener that was accepted is closed only by a success that no longer wants it, or by
//!   the end.
//! * The old worker is not asked to stop accepting before the new one says `Active`.
//! * Outside of Shift at most one worker is told to accept.
//! * What a dead worker left is given only to one that serves, only after the death was seen, and
//!   to one living worker at a time.
//! * At most one worker gives its connections away.
//! * Every request gets exactly one reply.
//! * Every deadline that has passed is gone or moved after one `Tick`.
//!
//! A message that does not fit the moment (late, doubled, of a former attempt) is dropped. What
//! a worker can spoil by its words is its own standing, never another's.

mod adopt;
mod fallback;
mod finish;
mod limits;
mod loss;
mod migrate;
mod offer;
mod past;
mod quarantine;
mod queue;
mod remains;
mod replace;
mod saved;
mod shift;
mod stop;
mod transition;
mod view;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use baton_handoff::message::{Generation, ListenerKey, ToSupervisor, WorkerId};

use crate::action::{Action, Kind, Notify, Order, Severity};
use crate::backoff::Backoff;
use crate::event::{Binary, ConfigText, Event, Millis, Request, RequestId, Signal};
pub(crate) use adopt::{Adoptee, Adoption, heir};
use fallback::Former;
use past::Past;
use quarantine::Quarantine;
use queue::{Pending, Queue};
use remains::Remains;
use replace::Replacing;
pub(crate) use saved::Machine;
use stop::Ending;
use transition::Transition;
use worker::Worker;

/// What the operator can tune; fixed for the life of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Our version, for the greeting.
    pub(crate) version: String,
    /// From the offer to `Ready`.
    pub(crate) ready_timeout: Duration,
    /// How long a new worker is watched before the old one is dismissed.
    pub(crate) watch: Duration,
    /// How long connections may move; zero: they stay and drain.
    pub(crate) migrate: Duration,
    /// What a retiring worker gets for its connections.
    pub(crate) drain_timeout: Duration,
    /// An upgrade replaces the supervisor as well.
    pub(crate) replaces: bool,
}

/// What a dead worker is replaced with: the last combination that stood its test.
#[derive(Debug)]
struct Accepted {
    generation: Generation,
    config: Arc<ConfigText>,
    binary: Binary,
}

/// The course of the process.
#[derive(Debug)]
enum Life {
    /// No worker has served yet.
    Starting,
    /// The normal state, whether or not a worker serves at the moment.
    Running,
    /// Workers are ending; the process follows the last one.
    Stopping(Ending),
    /// `Exit` was said.
    Ended,
}

/// The whole state of the supervisor.
#[derive(Debug)]
pub(crate) struct State {
    settings: Settings,
    life: Life,
    workers: BTreeMap<WorkerId, Worker>,
    serving: Option<WorkerId>,
    /// Open sockets that belong to an accepted configuration.
    listeners: BTreeSet<ListenerKey>,
    accepted: Accepted,
    /// The build before, as long as the accepted one is young.
    former: Option<Former>,
    /// What dead workers left.
    remains: Remains,
    transition: Option<Transition>,
    replacing: Option<Replacing>,
    queue: Queue,
    backoff: Backoff,
    /// When the next replacement starts, while nobody serves and nothing else goes on.
    respawn_at: Option<Millis>,
    quarantine: Quarantine,
    last: Option<Past>,
    next_worker: u32,
    next_ticket: u64,
    next_generation: Generation,
}

/// One call of [`State::handle`]: the time, and the actions collected so far.
#[derive(Debug)]
struct Turn {
    now: Millis,
    out: Vec<Action>,
}

impl Turn {
    fn act(&mut self, action: Action) {
        self.out.push(action);
    }

    fn send(&mut self, worker: WorkerId, order: Order) {
        self.act(Action::Send { worker, order });
    }

    fn log(&mut self, severity: Severity, text: String) {
        self.act(Action::Log { severity, text });
    }

    fn status(&mut self, text: String) {
        self.act(Action::Notify(Notify::Status(text)));
    }
}

impl State {
    /// Nothing has happened yet; [`Event::Start`] sets off.
    pub(crate) fn new(settings: Settings, binary: Binary, config: Arc<ConfigText>) -> Self {
        Self {
            settings,
            life: Life::Starting,
            workers: BTreeMap::new(),
            serving: None,
            listeners: BTreeSet::new(),
            accepted: Accepted { generation: Generation(1), config, binary },
            former: None,
            remains: Remains::default(),
            transition: None,
            replacing: None,
            queue: Queue::default(),
            backoff: Backoff::default(),
            respawn_at: None,
            quarantine: Quarantine::default(),
            last: None,
            next_worker: 1,
            next_ticket: 1,
            next_generation: Generation(2),
        }
    }

    /// Takes one event in and says what to do about it.
    pub(crate) fn handle(&mut self, event: Event, now: Millis) -> Vec<Action> {
        let mut turn = Turn { now, out: Vec::new() };
        let turn_ref = &mut turn;
        match event {
            Event::Start => self.start(turn_ref),
            Event::Adopted(adoption) => self.adopted(turn_ref, adoption),
            Event::Requested { id, request } => self.requested(turn_ref, request, Some(id)),
            Event::Signal(signal) => self.signalled(turn_ref, signal),
            Event::ConfigRead { ticket, result } => self.config_read(turn_ref, ticket, result),
            Event::Opened { ticket, result } => self.opened(turn_ref, ticket, result),
            Event::Checked { ticket, result } => self.checked(turn_ref, ticket, result),
            Event::Spawned { worker, pid } => self.spawned(worker, pid),
            Event::SpawnFailed { worker, problem } => self.spawn_failed(turn_ref, worker, problem),
            Event::Replaced { result } => self.replaced(turn_ref, result),
            Event::Bound { ticket, result } => self.bound(turn_ref, ticket, result),
            Event::Agreed { worker, protocol } => self.agreed(worker, protocol),
            Event::NotMigrating { problem } => self.not_migrating(turn_ref, &problem),
            Event::Message { worker, message } => self.message(turn_ref, worker, message),
            Event::Closed { worker } => self.closed(turn_ref, worker),
            Event::Broken { worker, problem } => self.broken(turn_ref, worker, &problem),
            Event::Exited { worker, exit } => self.exited(turn_ref, worker, &exit),
            Event::Tick => self.tick(turn_ref),
        }
        self.relieve(&mut turn);
        self.set_moving(&mut turn);
        turn.out
    }

    /// When [`Event::Tick`] is due, if nothing else happens before.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let workers =
            self.workers.iter().filter_map(|(id, worker)| worker.deadline(self.patience(*id)));
        let transition = self.transition.as_ref().and_then(|transition| transition.deadline);
        let respawn = self.respawn_at.filter(|_| self.is_free());
        let remains = self.remains.due();
        let former = self.former.as_ref().map(|former| former.until);
        workers.chain(transition).chain(respawn).chain(remains).chain(former).min()
    }

    fn start(&mut self, turn: &mut Turn) {
        match (&self.life, &self.transition) {
            (Life::Starting, None) => self.begin_worker(turn, Kind::Start),
            (Life::Starting, Some(_)) | (Life::Running | Life::Stopping(_) | Life::Ended, _) => {}
        }
    }

    fn requested(&mut self, turn: &mut Turn, request: Request, id: Option<RequestId>) {
        let kind = match &request {
            Request::Reload => Kind::Reload,
            Request::Upgrade { .. } => Kind::Upgrade,
            Request::Stop => return self.stop(turn, id),
        };
        match self.life {
            Life::Starting | Life::Running => {}
            Life::Stopping(_) | Life::Ended => {
                return self.refuse(turn, kind, id, stop::STOPPING.into());
            }
        }
        let pending = Pending { request, requesters: id.into_iter().collect() };
        if self.is_free() && matches!(self.life, Life::Running) {
            return self.begin(turn, pending);
        }
        match self.queue.push(pending) {
            Ok(()) => {
                let going_on = match (&self.transition, &self.replacing) {
                    (Some(transition), _) => transition.kind,
                    (None, Some(_)) => Kind::Upgrade,
                    (None, None) => Kind::Start,
                };
                let going_on = going_on.as_str();
                turn.act(Action::Progress {
                    to: id.into_iter().collect(),
                    kind,
                    phase: "queued",
                    text: format!("waits for the {going_on} that is going on"),
                });
            }
            Err(problem) => self.refuse(turn, kind, id, problem),
        }
    }

    fn signalled(&mut self, turn: &mut Turn, signal: Signal) {
        match signal {
            Signal::Hangup => self.requested(turn, Request::Reload, None),
            Signal::User2 => {
                self.requested(turn, Request::Upgrade { binary: None, force: false }, None);
            }
            Signal::Terminate => match self.life {
                Life::Starting | Life::Running => self.stop(turn, None),
                Life::Stopping(_) => self.cut(turn),
                Life::Ended => {}
            },
        }
    }

    fn message(&mut self, turn: &mut Turn, id: WorkerId, message: ToSupervisor) {
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.is_alive()) else {
            return;
        };
        worker.hear(turn.now);
        match message {
            ToSupervisor::Hello(hello) => self.greeted(turn, id, hello),
            ToSupervisor::Plan(plan) => self.planned(turn, id, plan),
            ToSupervisor::Refused(refused) => self.refused(turn, id, refused),
            ToSupervisor::Ready(generation) => self.ready(turn, id, generation),
            ToSupervisor::Active(generation) => self.active(turn, id, generation),
            ToSupervisor::Quiesced => self.quiesced(turn, id),
            ToSupervisor::Drained { cut } => self.drained(turn, id, cut),
            ToSupervisor::Pong(pulse) => self.pulsed(turn, id, pulse),
            // Answers are given to who asked before the machine hears of them.
            ToSupervisor::Answer(_) => Self::dropped(turn, id, "answer"),
            ToSupervisor::Adopted(_) | ToSupervisor::Returned(_) => {
                Self::dropped(turn, id, "return of what it has");
            }
            ToSupervisor::Lifeline => worker.lifeline = true,
            ToSupervisor::Migrated(migrated) => self.migrated(turn, id, migrated),
            ToSupervisor::Recovered(recovered) => self.recovered(turn, id, recovered),
            ToSupervisor::Nak(nak) => self.not_understood(turn, id, &nak),
        }
    }

    /// What workers are started from.
    pub(crate) fn binary(&self) -> &Binary {
        &self.accepted.binary
    }

    /// Nothing is going on.
    pub(crate) fn is_free(&self) -> bool {
        self.transition.is_none() && self.replacing.is_none()
    }

    fn dropped(turn: &mut Turn, id: WorkerId, what: &str) {
        turn.log(Severity::Debug, format!("worker {}: dropped an unexpected {what}", id.0));
    }

    fn tick(&mut self, turn: &mut Turn) {
        let ids: Vec<_> = self.workers.keys().copied().collect();
        for id in ids {
            self.worker_overdue(turn, id);
        }
        let due = self.transition.as_ref().and_then(|transition| transition.deadline);
        if due.is_some_and(|due| due <= turn.now) {
            self.transition_overdue(turn);
        }
        self.recovery_overdue(turn);
        self.former_expires(turn);
        self.settle(turn);
    }
}
