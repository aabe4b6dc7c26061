//! Workers that outlived their supervisor become ours.

use std::path::PathBuf;
use std::sync::Arc;

use baton_handoff::message::{ListenerKey, ToWorker, WorkerId};

use baton_handoff::version::OURS;

use super::Driver;
use super::launch::Launch;
use super::worker::Cargo;
use crate::event::{Binary, ConfigText, Event};
use crate::listeners::store_name;
use crate::state::{Adoptee, Adoption, heir};
use crate::survivors::{self, Survivor};

impl<L: Launch> Driver<L> {
    /// What to begin with: with the workers that are there, or from nothing.
    pub(super) async fn find_survivors(&mut self) -> Event {
        let survivors = survivors::adopt(&self.runtime_dir, self.state.version()).await;
        let mut workers = Vec::new();
        let mut estates = Vec::new();
        for survivor in survivors {
            let Survivor { id, pid, version, end, adopted, listeners, lifeline } = survivor;
            let protocol = end.version().unwrap_or(OURS.min());
            let has_lifeline = lifeline.is_some();
            match self.launch.adopt(pid) {
                Ok(launched) => self.attend(id, launched, end),
                Err(error) => {
                    tracing::warn!(worker = id.0, pid, %error, "a worker is gone");
                    continue;
                }
            }
            if let (Some(live), Some(lifeline)) = (self.workers.get(&id), lifeline) {
                live.keep_lifeline(lifeline);
            }
            workers.push(Adoptee {
                worker: id,
                pid,
                version,
                protocol,
                lifeline: has_lifeline,
                generation: adopted.generation,
                standing: adopted.standing,
            });
            estates.push((id, adopted, listeners));
        }
        let Some(Adoptee { worker: heir, pid, version, .. }) = heir(&workers).cloned() else {
            // Those that retire do so without us.
            self.workers.clear();
            return Event::Start;
        };
        let (binary, outdated) = self.executable(pid, &version);
        let mut keys = Vec::new();
        let mut config = Arc::new(ConfigText { name: String::new(), text: Vec::new() });
        for (id, adopted, listeners) in estates {
            // The sockets of the others are the same ones, or of no rule any more.
            if id != heir {
                continue;
            }
            config = Arc::new(ConfigText { name: adopted.source, text: adopted.config });
            for (wanted, socket) in listeners {
                let ListenerKey(key) = wanted.key.clone();
                match self.listeners.resume(key, wanted.rule, wanted.role, socket) {
                    Ok(()) => keys.push(wanted.key),
                    Err(error) => {
                        tracing::warn!(%error, listener = wanted.key.0, "a listener is lost");
                    }
                }
            }
        }
        for (inode, socket) in self.listeners.inodes(&keys) {
            self.notifier.keep(&store_name(inode), socket);
        }
        let listeners = keys;
        Event::Adopted(Adoption { workers, heir, config, binary, outdated, listeners })
    }

    /// The executable of a running worker, and whether it is not the installed one.
    fn executable(&mut self, pid: u32, version: &str) -> (Binary, bool) {
        let installed = self.state.binary().clone();
        let running = PathBuf::from(format!("/proc/{pid}/exe"));
        match self.programs.open(&running) {
            Ok(binary) if binary.build == installed.build => {
                self.programs.close(binary.id);
                (installed, false)
            }
            Ok(binary) => (Binary { path: installed.path, ..binary }, true),
            // Somebody else's process: its word is all there is.
            Err(error) => {
                tracing::debug!(pid, %error, "which program a worker runs is not known");
                (installed, version != self.state.version())
            }
        }
    }

    /// Gives a fresh worker the socket at which our successor would find it.
    pub(super) fn hand_adoption_socket(&self, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else { return };
        match baton_handoff::adoption::bind(&self.runtime_dir.adoption_socket(id)) {
            Ok(socket) => worker.send(ToWorker::AdoptionSocket, Cargo::Adoption(socket)),
            Err(error) => {
                tracing::warn!(worker = id.0, %error, "it could not be adopted after our death");
            }
        }
    }
}
