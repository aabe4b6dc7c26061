//! Actions, one by one: each becomes a call of an edge, and its answer, where there is one, an
//! event that is handled before anything else.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use baton_handoff::SupervisorEnd;
use baton_handoff::message::{
    Generation, ListenerKey, Listeners as ListenersMessage, Prepare, ToWorker, WorkerId,
};
use nix::sys::resource::{Resource, getrlimit};
use tokio::task::{spawn_blocking, spawn_local};

use super::Driver;
use super::launch::{Launch, compatible};
use super::replace::Replacement;
use super::worker::Cargo;
use crate::action::{Action, Notify, Severity};
use crate::budget;
use crate::event::{Binary, BinaryId, Event, Ticket};
use crate::listeners::{Unclaimed, store_name};
use crate::survivors;

/// Descriptors in one message; the kernel takes 253.
const BATCH: usize = 200;
/// The machine cancels a check before this; it bounds one that cannot be cancelled.
const SELF_CHECK: Duration = Duration::from_secs(30);

impl<L: Launch> Driver<L> {
    pub(super) fn execute(&mut self, action: Action) {
        match action {
            Action::ReadConfig { ticket } => self.read_config(ticket),
            Action::OpenBinary { ticket, path } => {
                let path = path.unwrap_or_else(|| self.installed.clone());
                let result = self.open_binary(&path);
                self.answers.push_back(Event::Opened { ticket, result });
            }
            Action::SelfCheck { ticket, binary } => self.self_check(ticket, binary),
            Action::CancelCheck { ticket } => self.end_check(ticket),
            Action::ReleaseBinary { binary } => self.programs.close(binary),
            Action::ReplaceSelf { binary } => {
                // The next image is not told of them.
                self.close_unclaimed();
                self.replacement = Some(Replacement::of(binary));
            }
            Action::Spawn { worker, binary } => self.spawn(worker, binary),
            Action::Send { worker, order } => self.send(worker, order.into(), Cargo::Nothing),
            Action::Prepare { worker, generation, config, with_region } => {
                if with_region {
                    self.hand_adoption_socket(worker);
                }
                let message = ToWorker::Prepare(Prepare {
                    generation,
                    source: config.name.clone(),
                    config: config.text.clone(),
                });
                let cargo = match with_region {
                    true => Cargo::Region(self.region.clone()),
                    false => Cargo::Nothing,
                };
                self.send(worker, message, cargo);
            }
            Action::HandListeners { worker, generation, keys } => {
                self.hand_listeners(worker, generation, &keys);
            }
            Action::Signal { worker, force } => {
                if let Some(worker) = self.workers.get(&worker) {
                    worker.signal(force);
                }
            }
            Action::Bind { ticket, wanted } => {
                let result = self.listeners.bind_missing(&wanted).map(|fresh| {
                    for (inode, socket) in self.listeners.inodes(&fresh) {
                        self.notifier.keep(&store_name(inode), socket);
                    }
                });
                self.answers.push_back(Event::Bound { ticket, result });
            }
            Action::CloseListeners { keys } => self.close_listeners(&keys),
            Action::NameListeners { plan } => self.listeners.name(&plan),
            Action::Forget { worker, remains } => {
                survivors::remove(&self.runtime_dir.adoption_socket(worker));
                self.bury(worker, remains);
            }
            Action::Migrate { from, to, timeout_ms } => self.migrate(from, to, timeout_ms),
            Action::Recover { worker, dead } => self.recover(worker, &dead),
            Action::LetGo { worker } => {
                self.remains.remove(&worker);
            }
            Action::Progress { to, kind, phase, text } => {
                tracing::info!(kind = kind.as_str(), phase, "{text}");
                self.requests.progress(&to, phase, &text);
            }
            Action::Reply { to, report } => self.requests.reply(to, report, self.clock.now()),
            Action::Notify(notify) => self.notify(&notify),
            Action::CountRestart => self.meters.restarted(),
            Action::CountReload(outcome) => {
                self.meters.reloaded(outcome);
                self.unswept |= outcome.is_ok();
            }
            Action::CountUpgrade(outcome) => self.meters.upgraded(outcome),
            Action::StampReload => self.meters.stamp(),
            Action::Log { severity, text } => match severity {
                Severity::Debug => tracing::debug!("{text}"),
                Severity::Info => tracing::info!("{text}"),
                Severity::Warn => tracing::warn!("{text}"),
                Severity::Error => tracing::error!("{text}"),
            },
            Action::Exit { code, problems } => self.exit = Some((code, problems)),
        }
    }

    fn read_config(&mut self, ticket: Ticket) {
        let (source, events) = (self.source.clone(), self.events.clone());
        spawn_local(async move {
            // Off the thread: the disk may be slow, the path may name a pipe.
            let result = match spawn_blocking(move || source.read()).await {
                Ok(result) => result.map(Arc::new),
                Err(error) => Err(format!("reading the configuration: {error}")),
            };
            let _ended = events.send(Event::ConfigRead { ticket, result }).await;
        });
    }

    fn open_binary(&mut self, path: &Path) -> Result<Binary, String> {
        if !path.is_absolute() {
            return Err(format!("{}: not an absolute path", path.display()));
        }
        self.programs.open(path).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn self_check(&mut self, ticket: Ticket, binary: BinaryId) {
        let Some(program) = self.programs.get(binary) else {
            let result = Err("the binary is not open any more".to_owned());
            return self.answers.push_back(Event::Checked { ticket, result });
        };
        let check = self.launch.self_check(Rc::clone(&program), SELF_CHECK);
        let events = self.events.clone();
        let task = spawn_local(async move {
            let result = check.await.and_then(|check| {
                program.note(&check);
                compatible(&check)
            });
            let _ended = events.send(Event::Checked { ticket, result }).await;
        });
        self.checks.insert(ticket, task.abort_handle());
    }

    /// Ends a check, or forgets one that has ended.
    pub(super) fn end_check(&mut self, ticket: Ticket) {
        if let Some(check) = self.checks.remove(&ticket) {
            check.abort();
        }
    }

    fn spawn(&mut self, worker: WorkerId, binary: BinaryId) {
        let event = match self.start_worker(worker, binary) {
            Ok(pid) => Event::Spawned { worker, pid },
            Err(error) => Event::SpawnFailed { worker, problem: error.to_string() },
        };
        self.answers.push_back(event);
    }

    fn start_worker(&mut self, worker: WorkerId, binary: BinaryId) -> std::io::Result<u32> {
        let program = self
            .programs
            .get(binary)
            .ok_or_else(|| std::io::Error::other("the binary is not open any more"))?;
        let (_, limit) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let shortage = budget::shortage(limit, self.state.movable(), self.listeners.count());
        if let Some(shortage) = shortage {
            return Err(std::io::Error::other(shortage));
        }
        let (ours, theirs) = baton_handoff::pair()?;
        let end = SupervisorEnd::new(ours)?;
        baton_handoff::faults::point("spawn");
        let launched = self.launch.worker(&program, theirs)?;
        let pid = launched.pid;
        self.attend(worker, launched, end);
        Ok(pid)
    }

    pub(super) fn send(&self, worker: WorkerId, message: ToWorker, cargo: Cargo) {
        if let Some(worker) = self.workers.get(&worker) {
            worker.send(message, cargo);
        }
    }

    fn hand_listeners(&mut self, id: WorkerId, generation: Generation, keys: &[ListenerKey]) {
        let Some(worker) = self.workers.get(&id) else { return };
        let mut batches = keys.chunks(BATCH).peekable();
        if batches.peek().is_none() {
            let empty = ListenersMessage { generation, keys: Vec::new(), last: true };
            return worker.send(ToWorker::Listeners(empty), Cargo::Nothing);
        }
        while let Some(batch) = batches.next() {
            let Some(sockets) = self.listeners.sockets(batch) else {
                // The machine only names what it had bound: a fault of ours, not of the worker's.
                tracing::error!(worker = id.0, "a listener to hand over is not open");
                return;
            };
            let last = batches.peek().is_none();
            let message = ListenersMessage { generation, keys: batch.to_vec(), last };
            worker.send(ToWorker::Listeners(message), Cargo::Sockets(sockets));
        }
    }

    fn close_listeners(&mut self, keys: &[ListenerKey]) {
        // At the end the manager keeps them: it knows whether there is another start, and drops
        // them if not.
        if !self.state.is_ending() {
            for (inode, _) in self.listeners.inodes(keys) {
                self.notifier.let_go(&store_name(inode));
            }
        }
        self.listeners.close(keys);
    }

    fn close_unclaimed(&mut self) {
        for Unclaimed { address, inode } in self.listeners.close_unclaimed() {
            tracing::warn!(%address, "no rule wants this socket of the service manager");
            self.notifier.let_go(&store_name(inode));
        }
    }

    fn notify(&mut self, notify: &Notify) {
        match notify {
            Notify::Ready => {
                // What still goes on may end with a configuration that wants one: the reload that
                // follows an adoption, for instance.
                if self.state.is_free() {
                    self.close_unclaimed();
                }
                self.notifier.ready();
            }
            Notify::Reloading => self.notifier.reloading(),
            Notify::Stopping => self.notifier.stopping(),
            Notify::Status(text) => self.notifier.status(text),
        }
    }
}
