//! Processes that tests start and kill: this very test program, told to run one ignored test,
//! with a packet socket as standard input.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};
use nix::unistd::Pid;

use super::calls;
use crate::net::testing::eventually;

/// One end of a blocking packet socket that carries lines and descriptors.
#[derive(Debug)]
pub(crate) struct Line(OwnedFd);

impl Line {
    /// The child's end of the line to whoever started it.
    pub(crate) fn to_parent() -> Self {
        Self(io::stdin().as_fd().try_clone_to_owned().unwrap())
    }

    pub(crate) fn say(&self, text: &str, fds: &[BorrowedFd<'_>]) {
        let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[][..] } else { &rights };
        let part = [IoSlice::new(text.as_bytes())];
        sendmsg::<()>(self.0.as_raw_fd(), &part, control, MsgFlags::MSG_NOSIGNAL, None).unwrap();
    }

    /// The next line; `None` when the other side is gone.
    pub(crate) fn hear(&self) -> Option<(String, Vec<OwnedFd>)> {
        let mut text = vec![0; 4096];
        let mut control = nix::cmsg_space!([RawFd; 64]);
        let mut fds = Vec::new();
        let len = {
            let mut parts = [IoSliceMut::new(&mut text)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let got =
                recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut control), flags).ok()?;
            for message in got.cmsgs().unwrap() {
                if let ControlMessageOwned::ScmRights(numbers) = message {
                    fds.extend(numbers.into_iter().map(calls::own));
                }
            }
            got.bytes
        };
        text.truncate(len);
        (len > 0).then(|| (String::from_utf8(text).unwrap(), fds))
    }

    /// Says something and returns the answer.
    pub(crate) fn ask(&self, text: &str) -> String {
        self.say(text, &[]);
        self.hear().unwrap().0
    }
}

/// A child process; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Spawned {
    process: Child,
    pub(crate) line: Line,
}

impl Spawned {
    /// Runs the ignored test `name` in a process of its own.
    pub(crate) fn run(name: &str) -> Self {
        // Keepers of dead children come to this process to be reaped.
        set_child_subreaper(true).unwrap();
        let (near, far) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--test-threads=1", "--nocapture", name])
            .stdin(Stdio::from(far))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, line: Line(near) }
    }

    /// Stops it where it is; returns when each of its threads stands still.
    pub(crate) fn stop(&self) {
        let pid = self.process.id();
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGSTOP).unwrap();
        eventually("every thread is stopped", || {
            let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            tasks.all(|task| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
                stat.is_ok_and(|stat| {
                    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
                })
            })
        });
    }

    /// `kill -9`, and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        // Fails only when it is dead already.
        let _dead = kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGKILL);
        self.process.wait().unwrap();
    }

    /// Waits until it has ended by itself; whether in order.
    pub(crate) fn succeeded(mut self) -> bool {
        self.process.wait().unwrap().success()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.kill();
    }
}
