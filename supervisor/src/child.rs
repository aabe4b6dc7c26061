//! A process that the supervisor started: its exit, and signals that cannot hit a stranger.

use std::io;
use std::process::ExitStatus;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

/// A started process. Dropping it neither kills nor reaps: workers outlive a supervisor.
#[derive(Debug)]
pub(crate) struct Child {
    inner: tokio::process::Child,
    pid: Pid,
}

impl Child {
    /// Starts the command.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let inner = command.spawn()?;
        let pid = inner
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or_else(|| io::Error::other("the process was gone before it had a number"))?;
        Ok(Self { inner, pid: Pid::from_raw(pid) })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the end; may be called again after it.
    ///
    /// # Errors
    /// When the status cannot be had.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.inner.wait().await
    }

    /// Sends a signal, or nothing when the process was already reaped: its number may be
    /// somebody else's by then.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.inner.id().is_some() {
            kill(self.pid, signal)?;
        }
        Ok(())
    }
}
