//! Reaping processes that are not ours: the supervisor inherits the children of its children. A
//! worker's keeper outlives the worker; who else is left is inherited only as PID 1 of a container.

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

/// Inherits from here on. The images after this one do so too.
pub(crate) fn take_in() {
    if let Err(error) = set_child_subreaper(true) {
        // They are init's then, which reaps as well.
        tracing::warn!(%error, "children of children are left to init");
    }
}

/// Reaps every ended child that `is_ours` denies; our own are left to those who wait for them.
///
/// Looks without reaping first. One of our own at the head of the line hides those behind it
/// until it is reaped, so this is called again with each SIGCHLD.
pub(crate) fn reap(is_ours: impl Fn(Pid) -> bool) {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        let pid = match waitid(Id::All, look) {
            Ok(status) => match ended(status) {
                Some(pid) if !is_ours(pid) => pid,
                Some(_) | None => return,
            },
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        if let Err(error) = waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            tracing::debug!(%pid, %error, "reap");
            return;
        }
    }
}

fn ended(status: WaitStatus) -> Option<Pid> {
    match status {
        WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => Some(pid),
        WaitStatus::Stopped(..)
        | WaitStatus::PtraceEvent(..)
        | WaitStatus::PtraceSyscall(..)
        | WaitStatus::Continued(..)
        | WaitStatus::StillAlive => None,
    }
}
