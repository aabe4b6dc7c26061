//! The main thread: talks to the supervisor and carries out what [`Lifecycle`] decides.
//!
//! Everything that touches the supervisor, the shards as a whole, or the admin listener happens
//! here, one event after the other, so that a switch of generations has one author. Compiling a
//! configuration is the only work moved elsewhere; its answer is one more event. It has a thread
//! of its own: the pool of blocking threads is full of look-ups when a resolver is dead, which is
//! when somebody wants to reload.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use baton_handoff::adoption::Waiting;
use baton_handoff::faults::{self, Who};
use baton_handoff::message::{
    Answer, Generation as Number, HelloSupervisor, ListenerKey, Pulse, Query, ToSupervisor,
    ToWorker,
};
use baton_handoff::{Fault, Received, RecvError, Transaction, WorkerEnd};
use baton_logging::Log;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::accept::admission::ProcessCount;
use crate::flow::Moment;
use crate::generation::blueprint::{Blueprint, Drawn};
use crate::inspect;
use crate::lifecycle::{Action, Event, Lifecycle};
use crate::net;
use crate::shard::Gone;

mod adoption;
mod configure;
mod gauges;
mod lifeline;
mod limits;
mod moving;
mod service;
#[cfg(test)]
mod tests;
mod upkeep;

use adoption::{Offer, caller};
use configure::{Compiling, carries_on, drawn, unserved};
pub(crate) use lifeline::Early;
use lifeline::Lifeline;
use moving::{Moves, Said};
use service::Service;

/// How long a supervisor that does not read may hold up the conversation.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// Threads for name look-ups; more names than that wait for their turn.
const BLOCKING_THREADS: usize = 16;
/// How often a worker gives a sign of life.
const TICK: Duration = Duration::from_secs(1);

/// Runs a worker over its control socket until it is told to end.
///
/// `early` is what was begun before; absent in tests, where several workers and the test share
/// one process: signals are then left alone, and there is no keeper.
pub(crate) fn run(control: OwnedFd, log: Option<&Log>, early: Option<Early>) -> ExitCode {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .build_local(LocalOptions::default());
    let outcome = runtime.and_then(|runtime| {
        let code = runtime.block_on(async {
            let signals = early.is_some().then(Signals::install).transpose()?;
            Ok(Worker::new(control, log, signals, early)?.serve().await)
        });
        // Dropping it would wait for look-ups that a dead resolver keeps.
        runtime.shutdown_background();
        code
    });
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tracing::error!(%error, "the worker cannot start");
            ExitCode::FAILURE
        }
    }
}

/// Signals a worker knows. The supervisor decides when a worker ends, so the ones a terminal
/// sends to the whole process group are taken and left at that.
struct Signals {
    terminate: Signal,
    _left_alone: [Signal; 3],
}

impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            _left_alone: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::user_defined2())?,
            ],
        })
    }
}

/// What ended a wait.
enum Happened {
    Received(Result<Received<ToWorker>, RecvError>),
    Called(OwnedFd),
    Compiled(Result<Drawn, Vec<String>>),
    Emptied,
    Said(Said),
    Broken(String),
    Terminated,
    Tick,
}

/// What an action came to.
enum Acted {
    Done,
    /// The process is to end.
    Exit(u8),
}

/// Why an action was not carried out.
enum ActError {
    /// This generation is not served; what served before still does.
    Unserved(Number, String),
    Gone(Gone),
}

impl From<Gone> for ActError {
    fn from(gone: Gone) -> Self {
        Self::Gone(gone)
    }
}

struct Worker<'l> {
    /// The channel to the supervisor; `None` while there is none.
    end: Option<WorkerEnd>,
    /// We have closed it ourselves, and the machine does not know yet.
    hung_up: bool,
    /// Where a successor of a supervisor that died calls.
    adoption: Option<Waiting>,
    /// What the published generation was made of, and the pending one.
    accepted: Option<Offer>,
    offered: Option<Offer>,
    lifecycle: Lifecycle,
    log: Option<&'l Log>,
    signals: Option<Signals>,
    descriptors: u64,
    lifeline: Lifeline,
    moves: Moves,
    /// Descriptors that came with the last message and are neither the region nor a listener's.
    handed: Vec<OwnedFd>,
    /// The metrics region, until the service has it.
    region: Option<OwnedFd>,
    service: Option<Service>,
    draft: Option<Blueprint>,
    compiling: Option<Compiling>,
    /// Sockets that came with the last message and have no owner yet.
    arrived: Vec<(ListenerKey, OwnedFd)>,
    /// What the next answer refers to.
    asked: Transaction,
    /// What `Drained` will refer to.
    drain_asked: Transaction,
    watch_empty: bool,
    /// A question that has just come.
    query: Option<Query>,
    next_tick: Moment,
}

impl<'l> Worker<'l> {
    fn new(
        control: OwnedFd,
        log: Option<&'l Log>,
        signals: Option<Signals>,
        early: Option<Early>,
    ) -> io::Result<Self> {
        let (descriptors, lifeline) = match early {
            Some(Early { descriptors, keeper }) => (descriptors?, Lifeline::new(keeper)),
            None => (limits::raise_descriptors()?, Lifeline::default()),
        };
        Ok(Self {
            end: Some(WorkerEnd::new(control)?),
            hung_up: false,
            adoption: None,
            accepted: None,
            offered: None,
            lifecycle: Lifecycle::new(),
            log,
            signals,
            descriptors,
            lifeline,
            moves: Moves::new(),
            handed: Vec::new(),
            region: None,
            service: None,
            draft: None,
            compiling: None,
            arrived: Vec::new(),
            asked: Transaction::NONE,
            drain_asked: Transaction::NONE,
            watch_empty: false,
            query: None,
            next_tick: net::now().after(TICK),
        })
    }

    /// Takes events until the process is to exit; the exit code.
    async fn serve(mut self) -> u8 {
        loop {
            let happened = self.wait().await;
            let event = self.event(happened);
            self.answer_query().await;
            let Some(event) = event else { continue };
            let actions = self.lifecycle.on(event, net::now());
            match self.carry_out(actions).await {
                Ok(None) => {}
                Ok(Some(code)) => return self.leave(code),
                Err(Gone) => {
                    tracing::error!("a relay thread has ended by itself");
                    return self.leave(1);
                }
            }
        }
    }

    /// What is to be done before the process ends with this code.
    fn leave(&mut self, code: u8) -> u8 {
        if code != 0 && self.lifeline.holds() {
            // To end in order would reset the connections that others can carry on.
            baton_logging::flush();
            std::process::exit(code.into());
        }
        self.lifeline.end();
        code
    }

    async fn wait(&mut self) -> Happened {
        if std::mem::take(&mut self.hung_up) {
            return Happened::Received(Err(RecvError::Closed));
        }
        let wake = self.lifecycle.deadline().map_or(self.next_tick, |at| at.min(self.next_tick));
        let pause = wake.since(net::now());
        let Self { end, adoption, service, compiling, signals, watch_empty, moves, .. } = self;
        let count = service.as_ref().map(|service| Arc::clone(service.count()));
        tokio::select! {
            received = received(end.as_ref()) => Happened::Received(received),
            socket = caller(adoption.as_ref()), if end.is_none() => Happened::Called(socket),
            drawn = drawn(compiling) => Happened::Compiled(drawn),
            said = moves.said() => Happened::Said(said),
            problem = broken(service) => Happened::Broken(problem),
            () = emptied(count), if *watch_empty => Happened::Emptied,
            () = terminated(signals) => Happened::Terminated,
            () = tokio::time::sleep(pause) => Happened::Tick,
        }
    }

    /// What it means to the machine; `None` when it means nothing.
    fn event(&mut self, happened: Happened) -> Option<Event> {
        self.asked = Transaction::NONE;
        match happened {
            Happened::Received(Ok(received)) => self.message(received),
            Happened::Called(socket) => self.called(socket),
            Happened::Received(Err(RecvError::Refused(Fault::Version(refusal)))) => {
                Some(Event::Stranger(refusal.to_string()))
            }
            Happened::Received(Err(RecvError::Refused(fault))) => {
                tracing::warn!(%fault, "a message of the supervisor was not taken");
                None
            }
            Happened::Received(Err(error @ (RecvError::Closed | RecvError::Io(_)))) => {
                tracing::debug!(%error, "control channel");
                self.end = None;
                Some(Event::ControlLost)
            }
            Happened::Compiled(drawn) => {
                let Compiling { number, asked, .. } = self.compiling.take()?;
                self.asked = asked;
                Some(Event::Compiled(number, self.compiled(drawn)))
            }
            Happened::Emptied => {
                self.watch_empty = false;
                self.asked = self.drain_asked;
                Some(Event::Empty)
            }
            Happened::Said(Said { asked, message }) => {
                self.asked = asked;
                Some(Event::Report(message))
            }
            Happened::Broken(problem) => {
                tracing::error!(problem, "the worker cannot go on");
                Some(Event::Broken)
            }
            Happened::Terminated => Some(Event::Terminate),
            Happened::Tick => {
                let now = net::now();
                if now >= self.next_tick {
                    self.next_tick = now.after(TICK);
                    if let Some(service) = &self.service {
                        service.tick();
                    }
                    if self.lifeline.has_lost_its_keeper() {
                        return Some(Event::KeeperLost);
                    }
                }
                Some(Event::Tick)
            }
        }
    }

    fn message(&mut self, received: Received<ToWorker>) -> Option<Event> {
        let Received { message, fds, transaction } = received;
        self.asked = transaction;
        match message {
            ToWorker::Hello(hello) => {
                tracing::debug!(worker = hello.worker.0, supervisor = hello.version, "greeted");
                faults::i_am(Who::Worker(hello.worker.0));
                faults::point("greeted");
                Some(Event::Hello)
            }
            ToWorker::Prepare(prepare) => {
                self.region = fds.into_iter().next().or(self.region.take());
                let retired = self.service.as_ref().map_or(0, Service::retired);
                Some(Event::Prepare { prepare, retired })
            }
            ToWorker::Listeners(listeners) => {
                self.arrived = listeners.keys.iter().cloned().zip(fds).collect();
                Some(Event::Listeners {
                    generation: listeners.generation,
                    keys: listeners.keys,
                    last: listeners.last,
                })
            }
            ToWorker::Activate(generation) => Some(Event::Activate(generation)),
            ToWorker::Abort(generation) => Some(Event::Abort(generation)),
            ToWorker::Quiesce => Some(Event::Quiesce),
            ToWorker::Drain(drain) => {
                self.drain_asked = transaction;
                Some(Event::Drain(drain))
            }
            ToWorker::Ping => Some(Event::Ping),
            ToWorker::Query(query) => {
                self.query = Some(query);
                None
            }
            ToWorker::AdoptionSocket => {
                self.keep_adoption_socket(fds.into_iter().next());
                None
            }
            ToWorker::Adopt => Some(Event::Adopt),
            ToWorker::Migrate(migrate) => {
                self.handed = fds;
                Some(Event::Migrate(migrate))
            }
            ToWorker::Recover(recover) => {
                self.handed = fds;
                Some(Event::Recover(recover))
            }
            ToWorker::Nak(nak) => {
                tracing::warn!(kind = nak.kind, reason = nak.reason, "refused by the supervisor");
                None
            }
        }
    }

    /// Carries out actions in order; the exit code when the process is to end.
    async fn carry_out(&mut self, actions: Vec<Action>) -> Result<Option<u8>, Gone> {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match self.act(action).await {
                Ok(Acted::Done) => {}
                Ok(Acted::Exit(code)) => return Ok(Some(code)),
                Err(ActError::Gone(gone)) => return Err(gone),
                Err(ActError::Unserved(generation, problem)) => {
                    let failed = Event::ServiceFailed(generation, problem);
                    actions = self.lifecycle.on(failed, net::now()).into();
                }
            }
        }
        Ok(None)
    }

    async fn act(&mut self, action: Action) -> Result<Acted, ActError> {
        match action {
            Action::Greet => {
                let version = env!("CARGO_PKG_VERSION").to_owned();
                let hello = HelloSupervisor { version, pid: std::process::id() };
                self.send(&ToSupervisor::Hello(hello)).await;
            }
            Action::Send(message) => self.send(&message).await,
            Action::Pulse => self.send(&ToSupervisor::Pong(self.pulse())).await,
            Action::Compile(prepare) => self.compile(prepare),
            Action::TakeListeners => self.take_listeners(),
            Action::DropPending => self.drop_pending(),
            Action::Build(generation) => {
                self.build(generation).map_err(|error| unserved(generation, error))?;
            }
            Action::Serve(generation) => {
                self.publish(generation).await.map_err(|error| unserved(generation, error))?;
            }
            Action::Resume(generation) => {
                self.resume().await.map_err(|error| unserved(generation, error))?;
            }
            Action::StopAccepting => {
                if let Some(service) = &mut self.service {
                    service.stop_accepting().await?;
                }
            }
            Action::CloseListeners => {
                if let Some(service) = &mut self.service {
                    service.close_listeners().await?;
                }
            }
            Action::WatchEmpty => self.watch_empty = true,
            Action::Cut => {
                if let Some(service) = &self.service {
                    self.lifecycle.record_cut(service.cut().await?);
                }
                self.watch_empty = true;
            }
            Action::Account(standing) => self.account(standing).await,
            Action::Lifeline => self.send_lifeline().await,
            Action::RenewLifeline => {
                self.lifeline.renew();
                self.send_lifeline().await;
            }
            Action::Move(migrate) => {
                let socket = self.handed.pop();
                self.begin_move(migrate, socket);
            }
            Action::DeclineMove(side) => self.decline_move(side).await,
            Action::Recover(recover) => {
                let descriptors = std::mem::take(&mut self.handed);
                self.begin_recovery(&recover, descriptors);
            }
            Action::DeclineRecovery(recover) => self.decline_recovery(&recover).await,
            Action::HangUp => self.end = None,
            Action::Exit(code) => return Ok(Acted::Exit(code)),
            Action::Warn(text) => tracing::warn!("{text}"),
        }
        Ok(Acted::Done)
    }

    async fn send(&self, message: &ToSupervisor) {
        let Some(end) = &self.end else { return };
        let sending = end.reply(self.asked, message);
        match tokio::time::timeout(SEND_LIMIT, sending).await {
            Ok(Ok(())) => {}
            // A closed channel shows in the next `recv`.
            Ok(Err(error)) => tracing::debug!(%error, "control channel"),
            Err(_) => tracing::warn!("the supervisor does not read its messages"),
        }
    }

    async fn answer_query(&mut self) {
        let Some(Query { id, text }) = self.query.take() else { return };
        let published = self.service.as_ref().and_then(Service::published);
        let text = inspect::answer(&text, published.as_deref(), net::now());
        self.send(&ToSupervisor::Answer(Answer { id, text })).await;
    }

    fn pulse(&self) -> Pulse {
        let nothing = Pulse { generation: Number(0), connections: 0, retired_generations: 0 };
        self.service.as_ref().map_or(nothing, Service::pulse)
    }
}

async fn received(end: Option<&WorkerEnd>) -> Result<Received<ToWorker>, RecvError> {
    match end {
        Some(end) => end.recv().await,
        None => std::future::pending().await,
    }
}

async fn broken(service: &mut Option<Service>) -> String {
    match service {
        Some(service) => service.broken().await,
        None => std::future::pending().await,
    }
}

async fn terminated(signals: &mut Option<Signals>) {
    match signals {
        Some(signals) => {
            signals.terminate.recv().await;
        }
        None => std::future::pending().await,
    }
}

async fn emptied(count: Option<Arc<ProcessCount>>) {
    if let Some(count) = count {
        count.emptied().await;
    }
}
