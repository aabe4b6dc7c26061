//! The last moments of an image that makes room for the next: when nothing is in anybody's hands,
//! everything is written down and the process becomes the other program.
//!
//! Nothing may be lost with the memory, so it waits until no message is half handled, no answer
//! unwritten and no signal unheard. New clients wait in the control socket's queue meanwhile, new
//! signals with the kernel. What signals and clients ask for until then waits in the machine and
//! goes along: it comes after the replacement, and however much it is does not delay it.

use std::future::pending;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use baton_handoff::faults;
use baton_handoff::message::WorkerId;
use nix::unistd::alarm;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::launch::Launch;
use super::lifeline::Lifeline;
use super::rehearsal::Rehearsal;
use super::{Driver, Signals};
use crate::control::server::{ControlSocket, Incoming};
use crate::event::{BinaryId, Event};
use crate::program::Program;
use crate::reexec::{self, Call, FORMAT, Left, Saved, SavedChannel, SavedClient, SavedLifeline};
use crate::underway::Underway;

/// How long a control client whose line has not come holds it up.
const CALLERS: Duration = Duration::from_secs(1);
/// How long a worker or client that does not read may hold it up; then it is given up.
const LIMIT: Duration = Duration::from_secs(5);
/// Seconds after which the kernel ends a new image that hangs before it can watch itself.
const ALARM: u32 = 20;

/// A replacement that is under way.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) binary: BinaryId,
    pub(super) stage: Stage,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing has been done.
    Wanted,
    /// The new program rehearses.
    Rehearsing(Rehearsal),
    /// It has; this came of it.
    Rehearsed(Result<(), String>),
    /// Its moment is waited for.
    Due(Due),
}

/// A replacement that waits for its moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    binary: BinaryId,
    since: Instant,
}

/// What is shared with others and must stay open until the next image has it.
#[derive(Debug)]
pub(super) struct Heritage {
    /// What the process is to become; workers are started from it.
    pub(super) program: Rc<Program>,
    /// What they were started from before.
    former: Option<Rc<Program>>,
    lifelines: Vec<(WorkerId, Rc<Lifeline>)>,
}

impl Replacement {
    pub(super) fn of(binary: BinaryId) -> Self {
        Self { binary, stage: Stage::Wanted }
    }
}

impl Due {
    pub(super) fn now(binary: BinaryId) -> Self {
        Self { binary, since: Instant::now() }
    }

    /// When time alone changes something.
    fn next(self) -> Instant {
        let callers = self.since + CALLERS;
        if Instant::now() < callers { callers } else { self.since + LIMIT }
    }
}

/// Waits until there is a next step, or its moment may have come.
pub(super) async fn moment(
    under_way: &mut Option<Replacement>,
    underway: &Underway,
    callers: &Underway,
) {
    let Some(Replacement { stage, .. }) = under_way else { return pending().await };
    match stage {
        Stage::Wanted | Stage::Rehearsed(_) => {}
        Stage::Rehearsing(rehearsal) => *stage = Stage::Rehearsed(rehearsal.result().await),
        Stage::Due(due) => {
            tokio::select! {
                () = underway.cleared() => {}
                () = callers.cleared() => {}
                () = sleep_until(due.next()) => {}
            }
        }
    }
}

impl<L: Launch> Driver<L> {
    /// Becomes the next image if this is the moment. Whether there is something to look at anew.
    pub(super) async fn try_replace(
        &mut self,
        due: Due,
        asked: &mpsc::Receiver<Incoming>,
        control: &ControlSocket,
        signals: &mut Option<Signals>,
    ) -> bool {
        if !self.is_still(due, asked) {
            if due.since.elapsed() >= LIMIT {
                let problem = "a worker or a control client does not take what it is sent";
                self.not_replaced(problem.into());
            }
            return self.replacement.is_none();
        }
        if let Err(error) = reexec::hold_signals() {
            self.not_replaced(format!("cannot hold signals back: {error}"));
            return true;
        }
        // Signals that came before are in the runtime's hands, which it empties while this task
        // stands aside; those that come from here on wait with the kernel.
        yield_now().await;
        yield_now().await;
        let heard = self.hear(signals).await;
        let wanted = self.state.is_replacing() && self.exit.is_none();
        if wanted && self.is_still(due, asked) {
            let problem = match self.leave(due.binary, control) {
                Ok(never) => match never {},
                Err(problem) => problem,
            };
            self.not_replaced(problem);
        }
        if let Err(error) = reexec::let_signals_in() {
            tracing::error!(%error, "signals stay held back");
        }
        heard || self.replacement.is_none()
    }

    /// Whether the memory holds nothing that is not written down.
    fn is_still(&self, due: Due, asked: &mpsc::Receiver<Incoming>) -> bool {
        let callers = self.callers.is_clear() || due.since.elapsed() >= CALLERS;
        callers && self.underway.is_clear() && self.waiting.is_empty() && asked.is_empty()
    }

    /// Handles the signals that have come; whether there were any. No more come: they are held.
    async fn hear(&mut self, signals: &mut Option<Signals>) -> bool {
        let Some(signals) = signals else { return false };
        let mut heard = false;
        loop {
            let signal = tokio::select! {
                biased;
                signal = signals.next() => signal,
                () = std::future::ready(()) => return heard,
            };
            self.happened(super::Happened::Signal(signal));
            heard = true;
        }
    }

    pub(super) fn not_replaced(&mut self, problem: String) {
        self.replacement = None;
        self.take(Event::Replaced { result: Err(problem) });
    }

    /// Writes everything down and becomes the executable.
    fn leave(
        &self,
        binary: BinaryId,
        control: &ControlSocket,
    ) -> Result<std::convert::Infallible, String> {
        let heritage = self.heritage(binary)?;
        let program = &heritage.program;
        let state: OwnedFd;
        let mut left = Left::default();
        state = self.written(&heritage, control, &mut left)?;
        let call = Call {
            name: program.path().into(),
            state: left.leave(state.as_fd()),
            back: Some(left.leave(self.image.file())),
            failed: None,
        };
        faults::point("reexec.saved");
        left.open().map_err(|error| format!("cannot leave descriptors open: {error}"))?;
        // The thread that writes them ends with this image.
        baton_logging::flush();
        alarm::set(ALARM);
        faults::point("reexec.exec");
        let error = reexec::exec(program.file(), &call);
        alarm::cancel();
        Err(format!("{}: cannot be run: {error}", program.path().display()))
    }

    /// What it needs for that.
    ///
    /// # Errors
    /// The new program is not there, or did not say that it reads what we write.
    pub(super) fn heritage(&self, binary: BinaryId) -> Result<Heritage, String> {
        let program = self.programs.get(binary).ok_or("the new binary is not open any more")?;
        if !program.reads(FORMAT) {
            let path = program.path().display();
            return Err(format!("{path}: does not take over from this version of the supervisor"));
        }
        let former = self.state.former().and_then(|former| self.programs.get(former));
        Ok(Heritage { program, former, lifelines: self.lifelines().collect() })
    }

    /// Everything as it is now, sealed.
    pub(super) fn written<'a>(
        &'a self,
        heritage: &'a Heritage,
        control: &'a ControlSocket,
        left: &mut Left<'a>,
    ) -> Result<OwnedFd, String> {
        let saved = self.saved(heritage, control, left)?;
        let bytes = saved.encode().map_err(|error| format!("cannot write the state: {error}"))?;
        baton_handoff::seal(&bytes).map_err(|error| format!("no memory for the state: {error}"))
    }

    fn saved<'a>(
        &'a self,
        heritage: &'a Heritage,
        control: &'a ControlSocket,
        left: &mut Left<'a>,
    ) -> Result<Saved, String> {
        let Heritage { program, former, lifelines } = heritage;
        let mut channels = Vec::new();
        for (id, worker) in &self.workers {
            let (fd, version) = worker.channel();
            let protocol = version.map(|version| version.0);
            channels.push(SavedChannel { worker: id.0, protocol, fd: left.leave(fd) });
        }
        let clients = self.requests.waiting().map(|(id, since, fd)| SavedClient {
            id,
            since,
            fd: left.leave(fd),
        });
        let clients = clients.collect();
        let mut saved_lifelines = Vec::new();
        for (id, lifeline) in lifelines {
            let [table, keeper] = lifeline.descriptors().map(|fd| left.leave(fd));
            saved_lifelines.push(SavedLifeline { worker: id.0, table, keeper });
        }
        Ok(Saved {
            version: self.state.version().into(),
            images: self.images,
            uptime_ms: self.clock.now().0,
            log: self.log.into(),
            installed: self.installed.clone(),
            source: (&self.source).into(),
            runtime_dir: self.runtime_dir.path().into(),
            identity: self.launch.identity().map(Into::into),
            machine: self.state.save()?,
            next_binary: self.programs.next(),
            lock: left.leave(self.runtime_dir.lock()),
            control: left.leave(control.as_fd()),
            region: left.leave(self.region.as_fd()),
            program: left.leave(program.file()),
            former: former.as_ref().map(|former| left.leave(former.file())),
            listeners: self.listeners.saved(left),
            channels,
            lifelines: saved_lifelines,
            clients,
        })
    }
}
