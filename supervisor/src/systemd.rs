//! What the service manager hears: READY, RELOADING, STOPPING, STATUS, WATCHDOG; and what it keeps
//! for us: copies of the listening sockets, which come back at the next start as if it had bound
//! them. So a socket outlives a supervisor and every worker of it.
//!
//! Without a service manager every call is a no-op. A message that cannot be sent is logged and
//! never stops anything: the gateway's work does not depend on who watches it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use sd_notify::NotifyState;

/// The line to the service manager.
#[derive(Debug)]
pub(crate) struct Notifier {
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Reads the environment once.
    pub(crate) fn from_env() -> Self {
        Self { watchdog: sd_notify::watchdog_enabled() }
    }

    /// How often [`Self::alive`] must be called; half of what the manager asks for.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// All listeners serve; also ends a reload.
    pub(crate) fn ready(&self) {
        send(&[NotifyState::Ready]);
    }

    /// A reload has begun. The timestamp is mandatory: without it the manager waits in vain.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(stamp) => send(&[NotifyState::Reloading, stamp]),
            Err(error) => tracing::warn!(%error, "cannot read the clock for RELOADING"),
        }
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        send(&[NotifyState::Stopping]);
    }

    /// One line for `systemctl status`.
    pub(crate) fn status(&self, text: &str) {
        send(&[NotifyState::Status(text)]);
    }

    /// Has a socket kept under this name. The manager would drop what reports an error or a
    /// hang-up, and a listener at rest may look like either: hence FDPOLL=0.
    pub(crate) fn keep(&self, name: &str, socket: BorrowedFd<'_>) {
        let states =
            [NotifyState::FdStore, NotifyState::FdName(name), NotifyState::Custom("FDPOLL=0")];
        if let Err(error) = sd_notify::notify_with_fds(&states, &[socket]) {
            tracing::warn!(%error, "the service manager does not keep a listener");
        }
    }

    /// Has it not kept any more.
    pub(crate) fn let_go(&self, name: &str) {
        send(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)]);
    }

    /// Feeds the watchdog.
    pub(crate) fn alive(&self) {
        send(&[NotifyState::Watchdog]);
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
