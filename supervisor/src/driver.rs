//! The machine's hands: one thread that turns what happens into events and actions into system
//! calls. It decides nothing.
//!
//! ```text
//! signals, control clients, worker channels, exits, deadlines
//!         │ Event                        ▲ system calls
//!         ▼                              │
//!      State::handle ── Vec<Action> ── execute
//! ```
//!
//! Answers that an action has at once (a bind, a spawn) are handled before anything else, so the
//! machine never sees the world between an action and its answer. Everything else waits in one
//! bounded queue, which also holds back workers that talk too much.

mod adopt;
mod clock;
mod execute;
mod launch;
mod lifeline;
mod meters;
mod presence;
mod programs;
mod questions;
mod rate;
mod rehearsal;
mod replace;
mod requests;
mod resume;
mod status;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use baton_config::model::Level;
use baton_handoff::faults::{self, Who};
use baton_handoff::inherit::{self, Activated};
use baton_handoff::message::{Pulse, ToSupervisor, WorkerId};
use baton_metrics::Region;
use nix::unistd::Pid;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle, spawn_local};
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use crate::control::protocol::{Request as Asked, Response};
use crate::control::server::{ControlSocket, Desk, Incoming};
use crate::event::{Event, Millis, Request, Signal, Ticket};
use crate::listeners::Listeners;
use crate::options::{ConfigSource, Options, StartError, migrate_limit};
use crate::orphans;
use crate::privilege::Identity;
use crate::program::Program;
use crate::reexec::{let_signals_in, without_signals};
use crate::runtime_dir::RuntimeDir;
use crate::state::{Settings, State};
use crate::systemd::Notifier;
use crate::underway::Underway;
use clock::Clock;
use launch::{Launch, Processes};
pub(crate) use lifeline::Lifeline;
use meters::Meters;
use programs::Programs;
use replace::Replacement;
use requests::Requests;
pub(crate) use resume::Resumed;
use worker::Live;

/// Events that wait; more hold their senders back.
const EVENTS: usize = 64;
/// Control requests that wait; more hold their clients back.
const REQUESTS: usize = 16;

/// Runs an instance until it was stopped. To be called before the process opens descriptors of
/// its own, because socket activation speaks in numbers.
///
/// # Errors
/// Before anything serves: why it cannot. Later nothing is an error, only an event.
pub fn run(options: Options) -> Result<ExitCode, StartError> {
    let activated = inherit::listen_fds()?;
    faults::i_am(Who::Supervisor(1));
    orphans::take_in();
    let runtime_dir = Rc::new(RuntimeDir::open(&options.runtime_dir)?);
    let identity = options.process.user.as_ref().map(Identity::resolve).transpose()?;
    let io_error = |operation| move |source| StartError::Io { operation, source };
    let runtime = runtime()?;
    let code = runtime.block_on(async {
        let control_path = runtime_dir.control_socket();
        let mut driver = Driver::new(options, runtime_dir, Processes { identity })?;
        driver.adopt(activated);
        let signals = Signals::install().map_err(io_error("handle signals"))?;
        let_signals_in().map_err(io_error("let signals in"))?;
        let control =
            ControlSocket::bind(&control_path).map_err(io_error("bind the control socket"))?;
        let first = driver.find_survivors().await;
        driver.run(first, control, Some(signals)).await
    })?;
    // A configuration that is still being read from a pipe must not hold up the end.
    runtime.shutdown_background();
    Ok(code)
}

fn runtime() -> Result<LocalRuntime, StartError> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_start(without_signals)
        .build_local(LocalOptions::default())
        .map_err(|source| StartError::Io { operation: "start the event loop", source })
}

/// Everything the machine's actions need.
struct Driver<L> {
    state: State,
    clock: Clock,
    launch: L,
    installed: PathBuf,
    source: ConfigSource,
    log: Level,
    runtime_dir: Rc<RuntimeDir>,
    /// The program this process runs: the way back from the next one.
    image: Program,
    /// How many images this process has had, this one included.
    images: u64,
    /// Is to be replaced by the next one.
    replacement: Option<Replacement>,
    programs: Programs,
    listeners: Listeners,
    region: Region,
    meters: Meters,
    notifier: Notifier,
    workers: BTreeMap<WorkerId, Live>,
    /// Of dead workers, what their connections can be carried on with.
    remains: BTreeMap<WorkerId, Rc<Lifeline>>,
    checks: BTreeMap<Ticket, AbortHandle>,
    requests: Requests,
    /// Answers to actions, before anything else.
    answers: VecDeque<Event>,
    events: mpsc::Sender<Event>,
    waiting: mpsc::Receiver<Event>,
    /// What is between two queues, and control clients whose line has not come.
    underway: Underway,
    callers: Underway,
    exit: Option<(u8, Vec<String>)>,
    /// Why the control socket, which was removed, cannot be put back.
    absence: Option<String>,
    /// A reload, or a worker that is gone, may have left series in the region that no longer count.
    unswept: bool,
}

/// What a driver is made of: brought along, or left by the former image.
struct Parts<L> {
    state: State,
    clock: Clock,
    launch: L,
    installed: PathBuf,
    source: ConfigSource,
    log: Level,
    images: u64,
    programs: Programs,
    listeners: Listeners,
    region: Region,
    runtime_dir: Rc<RuntimeDir>,
}

/// The process's signals.
struct Signals {
    user1: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    user2: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    child: tokio::signal::unix::Signal,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        Ok(Self {
            user1: signal(SignalKind::user_defined1())?,
            hangup: signal(SignalKind::hangup())?,
            user2: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            child: signal(SignalKind::child())?,
        })
    }

    /// The next signal.
    async fn next(&mut self) -> Caught {
        tokio::select! {
            Some(()) = self.terminate.recv() => Caught::Signal(Signal::Terminate),
            Some(()) = self.interrupt.recv() => Caught::Signal(Signal::Terminate),
            Some(()) = self.hangup.recv() => Caught::Signal(Signal::Hangup),
            Some(()) = self.user2.recv() => Caught::Signal(Signal::User2),
            Some(()) = self.user1.recv() => Caught::Leave,
            Some(()) = self.child.recv() => Caught::Child,
            else => pending().await,
        }
    }
}

/// A signal that was taken.
enum Caught {
    /// One for the machine.
    Signal(Signal),
    /// SIGUSR1: end at once and leave the workers to a successor.
    Leave,
    /// SIGCHLD.
    Child,
}

/// What ended a wait.
enum Happened {
    Signal(Caught),
    Asked(Incoming),
    Moment,
    Event(Event),
    Watchdog,
    /// Time to see whether the instance can be found.
    Look,
    Deadline,
}

impl<L: Launch> Driver<L> {
    fn new(options: Options, runtime_dir: Rc<RuntimeDir>, launch: L) -> Result<Self, StartError> {
        let Options { binary, source, process, version, log, runtime_dir: _ } = options;
        let config = source.read().map_err(|problem| StartError::Refused(vec![problem]))?;
        let mut programs = Programs::default();
        let opened = programs
            .open(&binary)
            .map_err(|source| StartError::Binary { path: binary.clone(), source })?;
        let region = Region::open_or_create(runtime_dir.path(), process.region_size)?;
        if let Some(aside) = &region.set_aside {
            let (path, reason) = (aside.path.display(), &aside.reason);
            tracing::warn!(%path, %reason, "the metrics region was unusable and is set aside");
        }
        let region = region.region;
        let settings = Settings {
            version,
            ready_timeout: process.ready_timeout,
            watch: process.watch,
            migrate: migrate_limit(&process),
            drain_timeout: process.drain_timeout,
            replaces: launch.replaces(),
        };
        Self::assemble(Parts {
            state: State::new(settings, opened, Arc::new(config)),
            clock: Clock::start(),
            launch,
            installed: binary,
            source,
            log,
            images: 1,
            programs,
            listeners: Listeners::default(),
            region,
            runtime_dir,
        })
    }

    fn assemble(parts: Parts<L>) -> Result<Self, StartError> {
        let own = Path::new("/proc/self/exe");
        let image =
            Program::open(own).map_err(|source| StartError::Binary { path: own.into(), source })?;
        let (events, waiting) = mpsc::channel(EVENTS);
        Ok(Self {
            state: parts.state,
            clock: parts.clock,
            launch: parts.launch,
            installed: parts.installed,
            source: parts.source,
            log: parts.log,
            runtime_dir: parts.runtime_dir,
            image,
            images: parts.images,
            replacement: None,
            programs: parts.programs,
            listeners: parts.listeners,
            meters: Meters::new(&parts.region),
            region: parts.region,
            notifier: Notifier::from_env(),
            workers: BTreeMap::new(),
            remains: BTreeMap::new(),
            checks: BTreeMap::new(),
            requests: Requests::default(),
            answers: VecDeque::new(),
            events,
            waiting,
            underway: Underway::default(),
            callers: Underway::default(),
            exit: None,
            absence: None,
            unswept: false,
        })
    }

    async fn run(
        mut self,
        first: Event,
        mut control: ControlSocket,
        mut signals: Option<Signals>,
    ) -> Result<ExitCode, StartError> {
        let (requests, mut asked) = mpsc::channel(REQUESTS);
        let (underway, callers) = (self.underway.clone(), self.callers.clone());
        let desk = Desk { requests, underway: underway.clone(), callers: callers.clone() };
        let mut server = Some(spawn_local(control.serve(desk.clone())));
        let mut watchdog = self.notifier.watchdog_interval().map(|period| {
            let mut watchdog = interval(period);
            watchdog.set_missed_tick_behavior(MissedTickBehavior::Delay);
            watchdog
        });
        let mut look = interval(presence::INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.take(first);
        let (code, problems) = loop {
            if let Some(exit) = self.exit.take() {
                break exit;
            }
            if let Some(replacement) = self.rehearsed(&control) {
                end(server.take()).await;
                if self.try_replace(replacement, &asked, &control, &mut signals).await {
                    continue;
                }
            } else if server.is_none() {
                server = Some(spawn_local(control.serve(desk.clone())));
            }
            let deadline = self.state.next_deadline();
            let happened = tokio::select! {
                biased;
                signal = caught(&mut signals) => Happened::Signal(signal),
                Some(incoming) = asked.recv() => Happened::Asked(incoming),
                Some(event) = self.waiting.recv() => Happened::Event(event),
                () = replace::moment(&mut self.replacement, &underway, &callers) => Happened::Moment,
                () = tick(&mut watchdog) => Happened::Watchdog,
                _ = look.tick() => Happened::Look,
                () = at(self.clock, deadline) => Happened::Deadline,
            };
            if let Happened::Look = happened
                && !self.is_present(&control)
            {
                end(server.take()).await;
                self.return_to(&mut control);
            }
            self.happened(happened);
        };
        drop(asked);
        self.requests.farewell().await;
        end(server).await;
        match code {
            0 => Ok(ExitCode::SUCCESS),
            _ => Err(StartError::Refused(problems)),
        }
    }

    fn adopt(&mut self, activated: Vec<Activated>) {
        let (names, sockets): (Vec<Option<String>>, Vec<OwnedFd>) =
            activated.into_iter().map(|socket| (socket.name, socket.fd)).unzip();
        for (index, error) in self.listeners.adopt(sockets) {
            let name = names.get(index).and_then(Option::as_deref).unwrap_or("unknown");
            tracing::warn!(name, %error, "a socket of the service manager is not used");
        }
    }

    fn happened(&mut self, happened: Happened) {
        match happened {
            Happened::Signal(Caught::Signal(signal)) => self.take(Event::Signal(signal)),
            Happened::Signal(Caught::Leave) => self.leave_workers(),
            Happened::Signal(Caught::Child) => self.reap(),
            Happened::Asked(incoming) => self.asked(incoming),
            Happened::Event(event) => {
                if let Event::Checked { ticket, .. } = &event {
                    self.checks.remove(ticket);
                    self.reap();
                }
                let exited = matches!(event, Event::Exited { .. });
                let let_go = lets_go(&event);
                self.unswept |= exited;
                self.take(event);
                if exited {
                    // It may have hidden others: see `orphans`.
                    self.reap();
                }
                if (exited || let_go) && self.unswept && self.state.is_quiet() {
                    self.region.sweep();
                    self.unswept = false;
                }
            }
            Happened::Moment => self.reap(),
            Happened::Look => {}
            Happened::Watchdog => self.notifier.alive(),
            Happened::Deadline => self.take(Event::Tick),
        }
    }

    /// One event, what it causes, and the answers to that.
    fn take(&mut self, event: Event) {
        self.answers.push_back(event);
        while let Some(event) = self.answers.pop_front() {
            for action in self.state.handle(event, self.clock.now()) {
                self.execute(action);
            }
        }
    }

    /// Ends as if killed, but in order: workers that serve wait for a successor, one that does not
    /// yet ends by itself.
    fn leave_workers(&mut self) {
        tracing::info!("leaving the workers to a successor");
        self.notifier.stopping();
        self.exit = Some((0, Vec::new()));
    }

    fn asked(&mut self, incoming: Incoming) {
        let Incoming { request, answers, socket } = incoming;
        let request = match request {
            Asked::Status => return answers.send(Response::Status(Box::new(self.status()))),
            Asked::Query { text } => {
                let serving = self.state.serving();
                let worker = serving.and_then(|id| Some((id, self.workers.get(&id)?)));
                return questions::pass_on(worker, text, answers);
            }
            Asked::Reload => Request::Reload,
            Asked::Upgrade { binary, force } => Request::Upgrade { binary, force },
            Asked::Stop => Request::Stop,
        };
        let id = self.requests.admit(answers, socket, self.clock.now());
        self.take(Event::Requested { id, request });
    }

    /// Children of children end up with us: the keepers of dead workers, and as PID 1 of a container
    /// everybody. Not while a self-check or a rehearsal runs, whose process is not told apart from
    /// them; its end is the next occasion.
    fn reap(&self) {
        if self.launch.reaps() && self.checks.is_empty() && !self.is_rehearsing() {
            let ours = |pid: Pid| {
                self.workers.values().any(|worker| i32::try_from(worker.pid) == Ok(pid.as_raw()))
            };
            orphans::reap(ours);
        }
    }
}

/// Whether a worker says that it holds nothing of earlier generations any more.
fn lets_go(event: &Event) -> bool {
    matches!(
        event,
        Event::Message { message: ToSupervisor::Pong(Pulse { retired_generations: 0, .. }), .. }
    )
}

/// Ends the task that accepts control clients; those who wait stay in the socket's queue.
async fn end(server: Option<JoinHandle<()>>) {
    if let Some(server) = server {
        server.abort();
        let _cancelled = server.await;
    }
}

/// `signals` is absent in tests, which share their process.
async fn caught(signals: &mut Option<Signals>) -> Caught {
    match signals {
        Some(signals) => signals.next().await,
        None => pending().await,
    }
}

async fn at(clock: Clock, deadline: Option<Millis>) {
    match deadline {
        Some(deadline) => sleep_until(clock.instant(deadline)).await,
        None => pending().await,
    }
}

async fn tick(watchdog: &mut Option<tokio::time::Interval>) {
    match watchdog {
        Some(watchdog) => {
            watchdog.tick().await;
        }
        None => pending().await,
    }
}
