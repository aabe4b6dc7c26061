//! Starting processes, behind a trait: tests start their workers inside their own process.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use baton_handoff::version::{Version, VersionRange, ours};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;

use crate::action::Force;
use crate::child::Child;
use crate::event::Exit;
use crate::privilege::Identity;
use crate::program::{Program, SelfCheck};

/// A future of the one thread.
pub(crate) type Local<T> = Pin<Box<dyn Future<Output = T>>>;

/// A started worker process.
pub(crate) struct Launched {
    pub(crate) pid: u32,
    /// Resolves when the process was reaped.
    pub(crate) exit: Local<Exit>,
    /// Signals to it; those after its end go nowhere.
    pub(crate) signals: mpsc::UnboundedSender<Force>,
}

/// How processes come about.
pub(crate) trait Launch {
    /// Asks an executable who it is; the answer takes at most `limit`.
    fn self_check(&self, program: Rc<Program>, limit: Duration)
    -> Local<Result<SelfCheck, String>>;

    /// Starts a worker with its end of the control channel.
    ///
    /// # Errors
    /// What the system said.
    fn worker(&self, program: &Program, control: OwnedFd) -> io::Result<Launched>;

    /// Attends to a worker that runs already.
    ///
    /// # Errors
    /// It has ended, or there is no free descriptor.
    fn adopt(&self, pid: u32) -> io::Result<Launched>;

    /// Who the workers are, where that is not who we are.
    fn identity(&self) -> Option<Identity>;

    /// Whether children of children end up with this process.
    fn reaps(&self) -> bool;

    /// Whether this process can become another program.
    fn replaces(&self) -> bool;
}

impl Launched {
    fn of(child: Child) -> Self {
        let (signals, received) = mpsc::unbounded_channel();
        Self { pid: child.pid(), exit: Box::pin(attend(child, received)), signals }
    }
}

/// Real processes.
#[derive(Debug)]
pub(crate) struct Processes {
    /// Who the workers are to be; `None` is who we are.
    pub(crate) identity: Option<Identity>,
}

impl Launch for Processes {
    fn self_check(
        &self,
        program: Rc<Program>,
        limit: Duration,
    ) -> Local<Result<SelfCheck, String>> {
        Box::pin(async move { program.self_check(limit).await })
    }

    fn worker(&self, program: &Program, control: OwnedFd) -> io::Result<Launched> {
        let child = program.spawn_worker(control, self.identity)?;
        Ok(Launched::of(child))
    }

    fn adopt(&self, pid: u32) -> io::Result<Launched> {
        Child::of(pid).map(Launched::of)
    }

    fn identity(&self) -> Option<Identity> {
        self.identity
    }

    fn reaps(&self) -> bool {
        true
    }

    fn replaces(&self) -> bool {
        true
    }
}

/// Stays with a process until it has ended: waits, and passes signals on.
async fn attend(child: Child, mut signals: mpsc::UnboundedReceiver<Force>) -> Exit {
    loop {
        tokio::select! {
            exit = child.wait() => return exit,
            Some(force) = signals.recv() => {
                let signal = match force {
                    Force::Terminate => Signal::SIGTERM,
                    Force::Kill => Signal::SIGKILL,
                };
                if let Err(error) = child.signal(signal) {
                    tracing::warn!(pid = child.pid(), %signal, %error, "cannot signal");
                }
            }
        }
    }
}

/// Whether a worker of the program that introduced itself can talk with us.
pub(crate) fn compatible(check: &SelfCheck) -> Result<String, String> {
    let theirs = VersionRange::new(Version(check.protocol_min), Version(check.protocol_max))
        .ok_or_else(|| "its self-check names no protocol version".to_owned())?;
    ours().negotiate(theirs).map_err(|refusal| format!("version {}: {refusal}", check.version))?;
    Ok(check.version.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(min: u16, max: u16) -> SelfCheck {
        SelfCheck {
            version: "9.9.9".into(),
            protocol_min: min,
            protocol_max: max,
            state_formats: vec![1],
            rehearses: true,
        }
    }

    #[test]
    fn a_program_with_a_common_protocol_passes_and_one_without_is_told_why() {
        assert_eq!(compatible(&check(1, 2)), Ok("9.9.9".into()));
        let problem = compatible(&check(900, 901)).unwrap_err();
        assert!(problem.starts_with("version 9.9.9: no common protocol"), "{problem}");
        assert!(compatible(&check(3, 2)).is_err());
    }
}
