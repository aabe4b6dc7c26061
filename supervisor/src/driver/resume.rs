//! The first moments of an image: everything that the former one left is taken up again.
//!
//! Whatever can fail comes before a message is read from any channel, because the way back is
//! open until then and the former image must find everything as it left it.

use std::process::ExitCode;
use std::rc::Rc;

use baton_handoff::SupervisorEnd;
use baton_handoff::faults::{self, Who};
use baton_handoff::inherit::passed::Passed;
use baton_handoff::message::WorkerId;
use baton_handoff::version::Version;
use baton_metrics::Region;
use nix::unistd::{Pid, alarm};
use tokio::runtime::LocalRuntime;

use super::clock::Clock;
use super::launch::{Launch, Processes};
use super::lifeline::Lifeline;
use super::programs::Programs;
use super::worker::Live;
use super::{Driver, Parts, Signals, runtime};
use crate::control::server::{Answers, ControlSocket};
use crate::event::{Event, Exit, Millis};
use crate::listeners::Listeners;
use crate::options::StartError;
use crate::orphans;
use crate::program::Program;
use crate::reexec::{self, Saved};
use crate::runtime_dir::RuntimeDir;
use crate::state::State;

/// A supervisor that has everything in its hands and has not begun.
pub(crate) struct Resumed {
    runtime: LocalRuntime,
    driver: Driver<Processes>,
    control: ControlSocket,
    signals: Signals,
}

impl Resumed {
    /// Takes up what the former image left, for a supervisor of this version.
    ///
    /// # Errors
    /// Why it cannot; nothing was changed then.
    pub(crate) fn take(
        saved: Saved,
        passed: &mut Passed,
        version: String,
    ) -> Result<Self, StartError> {
        faults::i_am(Who::Supervisor(u32::try_from(saved.images + 1).unwrap_or(u32::MAX)));
        faults::point("reexec.read");
        let runtime = runtime()?;
        let (driver, control, signals) =
            runtime.block_on(async { resume(saved, passed, version) })?;
        faults::point("reexec.restored");
        Ok(Self { runtime, driver, control, signals })
    }

    /// Runs the instance until it was stopped. `result`: whether the replacement that the former
    /// image tried is this one.
    pub(crate) fn run(self, result: Result<(), String>) -> Result<ExitCode, StartError> {
        let Self { runtime, mut driver, control, signals } = self;
        alarm::cancel();
        driver.notifier.alive();
        // The former image may be of a release that did not.
        orphans::take_in();
        let workers = driver.state.processes();
        orphans::reap(|pid: Pid| workers.iter().any(|(_, ours)| is(pid, *ours)));
        reexec::let_signals_in()
            .map_err(|source| StartError::Io { operation: "let signals in", source })?;
        match &result {
            Ok(()) => driver.images += 1,
            Err(problem) => tracing::error!(problem, "the new version has given up"),
        }
        let code = runtime.block_on(async {
            for (worker, pid) in workers {
                // Its end was seen by the former image, or there is no descriptor to watch it.
                if !driver.workers.contains_key(&worker) {
                    let exit = Exit { how: format!("unseen (pid {pid})"), orderly: false };
                    driver.answers.push_back(Event::Exited { worker, exit });
                }
            }
            driver.run(Event::Replaced { result }, control, Some(signals)).await
        });
        runtime.shutdown_background();
        code
    }
}

fn is(pid: Pid, ours: u32) -> bool {
    i32::try_from(ours) == Ok(pid.as_raw())
}

fn resume(
    saved: Saved,
    passed: &mut Passed,
    version: String,
) -> Result<(Driver<Processes>, ControlSocket, Signals), StartError> {
    let io_error = |operation| move |source| StartError::Io { operation, source };
    let clock = Clock::resume(Millis(saved.uptime_ms));
    let runtime_dir = RuntimeDir::resume(saved.runtime_dir, passed.copy(saved.lock)?);
    let control = ControlSocket::resume(passed.copy(saved.control)?, &runtime_dir.control_socket())
        .map_err(io_error("take over the control socket"))?;
    let region = Region::attach(passed.copy(saved.region)?)?;
    let accepted = saved.machine.binary().clone();
    let program = Program::of(accepted.path.clone(), passed.copy(saved.program)?)
        .map_err(io_error("take over the workers' executable"))?;
    let mut programs = Programs::resume(saved.next_binary);
    programs.keep(accepted.id, program);
    if let Some((former, fd)) = saved.machine.former().cloned().zip(saved.former) {
        let program = Program::of(former.path, passed.copy(fd)?)
            .map_err(io_error("take over the executable of the build before"))?;
        programs.keep(former.id, program);
    }
    let mut listeners = Listeners::default();
    for listener in saved.listeners {
        let socket = passed.copy(listener.fd)?;
        listeners
            .resume(listener.key, listener.rule, listener.role.into(), socket)
            .map_err(io_error("take over a listener"))?;
    }
    let state =
        State::restore(saved.machine, version, clock.now()).map_err(StartError::Contradiction)?;
    let launch = Processes { identity: saved.identity.map(Into::into) };
    let mut ends = Vec::new();
    for channel in saved.channels {
        let socket = passed.copy(channel.fd)?;
        let end = match channel.protocol {
            Some(protocol) => SupervisorEnd::resume(socket, Version(protocol)),
            None => SupervisorEnd::new(socket),
        };
        ends.push((WorkerId(channel.worker), end.map_err(io_error("take over a channel"))?));
    }
    let mut lifelines = Vec::new();
    for lifeline in saved.lifelines {
        let fds = vec![passed.copy(lifeline.table)?, passed.copy(lifeline.keeper)?];
        lifelines.extend(Lifeline::of(fds).map(|fds| (WorkerId(lifeline.worker), fds)));
    }
    let mut driver = Driver::assemble(Parts {
        state,
        clock,
        launch,
        installed: saved.installed,
        source: saved.source.into(),
        log: saved.log.into(),
        images: saved.images,
        programs,
        listeners,
        region,
        runtime_dir: Rc::new(runtime_dir),
    })?;
    for client in saved.clients {
        let socket = passed.copy(client.fd)?;
        let copy = socket.try_clone().map_err(io_error("take over a control client"))?;
        let answers = Answers::resume(copy, driver.underway.clone())
            .map_err(io_error("take over a control client"))?;
        driver.requests.resume(client.id, answers, socket, client.since);
    }
    let signals = Signals::install().map_err(io_error("handle signals"))?;
    // From here on nothing fails; messages may be read.
    let pids = driver.state.processes();
    for (id, end) in ends {
        let pid = pids.iter().find(|(worker, _)| *worker == id).map(|(_, pid)| *pid);
        match pid.map(|pid| driver.launch.adopt(pid)) {
            Some(Ok(launched)) => driver.attend(id, launched, end),
            Some(Err(error)) => tracing::warn!(worker = id.0, %error, "a worker is gone"),
            None => tracing::warn!(worker = id.0, "a channel without a worker is closed"),
        }
    }
    for (id, lifeline) in lifelines {
        match driver.workers.get(&id) {
            Some(live) => live.keep_lifeline(lifeline),
            None => {
                driver.remains.insert(id, Rc::new(lifeline));
            }
        }
    }
    Ok((driver, control, signals))
}

impl<L: Launch> Driver<L> {
    /// Begins to attend to a process.
    pub(super) fn attend(
        &mut self,
        id: WorkerId,
        launched: super::launch::Launched,
        end: SupervisorEnd,
    ) {
        let live = Live::attend(id, launched, end, &self.events, &self.underway, self.clock);
        self.workers.insert(id, live);
    }
}
