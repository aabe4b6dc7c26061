//! `baton status`: what the machine sees, with what only the driver knows.

use super::Driver;
use super::launch::Launch;
use crate::control::protocol::{ListenerStatus, Status, SupervisorStatus};

impl<L: Launch> Driver<L> {
    pub(super) fn status(&self) -> Status {
        let view = self.state.view(self.clock.now());
        let listeners = self.listeners.info().into_iter().map(|listener| ListenerStatus {
            rule: listener.rule,
            address: listener.address.to_string(),
            inode: listener.inode,
        });
        Status {
            supervisor: SupervisorStatus {
                pid: std::process::id(),
                version: self.state.version().into(),
                images: self.images,
                uptime_seconds: self.clock.uptime().as_secs(),
                state: view.state.into(),
                config: self.source.name(),
            },
            workers: view.workers,
            listeners: listeners.collect(),
            transition: view.transition,
            recovery: view.recovery,
            last_transition: view.last_transition,
        }
    }
}
