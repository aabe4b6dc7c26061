//! A worker's process: its end, and signals that cannot hit a stranger.
//!
//! Held by a handle of the kernel and not through tokio's child, because it may have been started
//! by somebody else: by this process's former image, whose children are still ours, or by a
//! supervisor that died, whose children are not.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use baton_handoff::inherit::pidfd::Handle;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use crate::event::Exit;

/// A process. Dropping it neither kills nor reaps: workers outlive a supervisor.
#[derive(Debug)]
pub(crate) struct Child {
    pid: u32,
    handle: Handle,
}

impl Child {
    /// Starts the command.
    ///
    /// # Errors
    /// What the system said; nothing runs then.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        Self::of(child.id()).inspect_err(|_| {
            // Without a handle nobody would notice its end.
            if let Err(error) = child.kill().and_then(|()| child.wait()) {
                tracing::warn!(%error, "a process that cannot be attended to is left");
            }
        })
    }

    /// A process that runs already. For one that is no child of ours the caller knows that the
    /// number is still its own.
    ///
    /// # Errors
    /// It has ended, or there is no free descriptor.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, handle: Handle::open(pid)? })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the end and reaps.
    pub(crate) async fn wait(&self) -> Exit {
        let unseen = |how| Exit { how, orderly: false };
        loop {
            if let Err(error) = self.handle.ended().await {
                return unseen(format!("its end cannot be awaited: {error}"));
            }
            // Blocks not at all: it has ended.
            match waitid(Id::PIDFd(self.handle.as_fd()), WaitPidFlag::WEXITED) {
                Ok(WaitStatus::Exited(_, code)) => {
                    let how = ExitStatus::from_raw(code << 8).to_string();
                    return Exit { how, orderly: code == 0 };
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return unseen(ExitStatus::from_raw(signal as i32).to_string());
                }
                Ok(
                    WaitStatus::StillAlive
                    | WaitStatus::Stopped(..)
                    | WaitStatus::Continued(_)
                    | WaitStatus::PtraceEvent(..)
                    | WaitStatus::PtraceSyscall(_),
                )
                | Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => {
                    return unseen("in its own time (it is no child of ours)".into());
                }
                Err(error) => return unseen(format!("its exit status is unknown: {error}")),
            }
        }
    }

    /// Sends a signal, or nothing when the process has ended.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.handle.signal(signal as i32) {
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(()),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_end_is_told_the_way_it_came() {
        let child = Child::start(shell("exit 3")).unwrap();
        let exit = child.wait().await;
        assert_eq!((exit.how.as_str(), exit.orderly), ("exit status: 3", false));
        let child = Child::start(shell("exit 0")).unwrap();
        assert!(child.wait().await.orderly);
        let child = Child::start(shell("exec sleep 600")).unwrap();
        child.signal(Signal::SIGKILL).unwrap();
        let exit = child.wait().await;
        assert_eq!((exit.how.as_str(), exit.orderly), ("signal: 9 (SIGKILL)", false));
        child.signal(Signal::SIGKILL).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_process_of_another_parent_is_waited_for() {
        let output = shell("sleep 600 >/dev/null 2>&1 & echo $!").output().unwrap();
        let pid = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let stranger = Child::of(pid).unwrap();
        stranger.signal(Signal::SIGKILL).unwrap();
        assert!(stranger.wait().await.how.starts_with("in its own time"));
    }
}
