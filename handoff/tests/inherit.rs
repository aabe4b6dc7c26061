//! What a fresh process finds in its descriptor table. The ignored tests are the fresh processes:
//! the others start this very program with one of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use baton_handoff::inherit::passed::Passed;
use baton_handoff::inherit::pidfd::Handle;
use baton_handoff::inherit::{InheritError, control_socket, listen_fds};
use baton_handoff::message::{HelloSupervisor, HelloWorker, ToSupervisor, ToWorker, WorkerId};
use baton_handoff::{RecvError, SupervisorEnd, WorkerEnd, pair};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::io::{self, Read as _};
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", test]);
    command
}

fn assert_succeeds(mut command: Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn a_child_talks_through_its_standard_input() {
    let (ours, theirs) = pair().unwrap();
    let mut command = child("worker");
    let mut process = command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn().unwrap();
    // The command still holds the child's end: without this the end would never be seen.
    drop(command);
    let end = SupervisorEnd::new(ours).unwrap();
    let hello = HelloWorker { worker: WorkerId(1), version: "1.2.3".into() };
    let asked = end.send(&ToWorker::Hello(hello), &[]).await.unwrap();
    let answer = end.recv().await.unwrap();
    assert_eq!(answer.transaction, asked);
    let hello = HelloSupervisor { version: "1.2.3".into(), pid: process.id() };
    assert_eq!(answer.message, ToSupervisor::Hello(hello));
    assert!(matches!(end.recv().await, Err(RecvError::Closed)));
    assert!(process.wait().unwrap().success());
}

#[tokio::test]
#[ignore = "child process of another test"]
async fn worker() {
    let socket = control_socket().unwrap();
    assert!(socket.as_raw_fd() > 2);
    assert_eq!(fcntl(&socket, FcntlArg::F_GETFD).unwrap(), FdFlag::FD_CLOEXEC.bits());
    assert_eq!(io::stdin().read(&mut [0]).unwrap(), 0, "standard input is not /dev/null");
    assert!(matches!(control_socket(), Err(InheritError::NotAControlSocket)));

    let end = WorkerEnd::new(socket).unwrap();
    let greeting = end.recv().await.unwrap();
    let ToWorker::Hello(HelloWorker { version, .. }) = greeting.message else {
        panic!("{greeting:?}")
    };
    let hello = HelloSupervisor { version, pid: std::process::id() };
    end.reply(greeting.transaction, &ToSupervisor::Hello(hello)).await.unwrap();
}

#[test]
fn a_worker_started_by_hand_is_told_so() {
    let mut command = child("worker_without_supervisor");
    command.stdin(Stdio::null());
    assert_succeeds(command);
}

#[test]
#[ignore = "child process of another test"]
fn worker_without_supervisor() {
    assert!(matches!(control_socket(), Err(InheritError::NotAControlSocket)));
}

/// Starts `test` the way systemd starts a service with two sockets.
fn activated(test: &str, count: &str, names: &str) -> Command {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new("/bin/sh");
    let script = "exec 3<&0 4<&0 </dev/null; export LISTEN_PID=$$; exec \"$0\" \"$@\"";
    command.args(["-c", script]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", test]).stdin(OwnedFd::from(listener));
    command.env("LISTEN_FDS", count).env("LISTEN_FDNAMES", names);
    command
}

#[test]
fn sockets_of_systemd_are_taken_over_with_their_names() {
    assert_succeeds(activated("service", "2", "web:admin"));
}

#[test]
#[ignore = "child process of another test"]
fn service() {
    let taken = listen_fds().unwrap();
    let names: Vec<_> = taken.iter().map(|socket| socket.name.as_deref()).collect();
    assert_eq!(names, [Some("web"), Some("admin")]);
    for (number, socket) in (3..).zip(taken) {
        assert_eq!(socket.fd.as_raw_fd(), number);
        assert_eq!(fcntl(&socket.fd, FcntlArg::F_GETFD).unwrap(), FdFlag::FD_CLOEXEC.bits());
        TcpListener::from(socket.fd).local_addr().unwrap();
    }
    assert!(matches!(listen_fds(), Err(InheritError::Taken)));
}

#[test]
fn a_promised_socket_that_is_not_there_is_an_error() {
    assert_succeeds(activated("service_with_missing_sockets", "500", ""));
}

#[test]
#[ignore = "child process of another test"]
fn service_with_missing_sockets() {
    assert!(matches!(listen_fds(), Err(InheritError::NotOpen { .. })));
}

#[test]
fn without_activation_there_is_nothing_to_take() {
    assert!(listen_fds().unwrap().is_empty());
}

#[test]
fn the_next_image_takes_what_was_left_open_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new("/bin/sh");
    let script = "exec 7<&0 </dev/null; exec \"$0\" \"$@\"";
    command.args(["-c", script]).arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--ignored", "next_image"])
        .stdin(Stdio::from(OwnedFd::from(listener)));
    assert_succeeds(command);
}

#[test]
#[ignore = "child process of another test"]
fn next_image() {
    let mut passed = Passed::begin().unwrap();
    assert!(matches!(Passed::begin(), Err(InheritError::Taken)));
    let copy = passed.copy(7).unwrap();
    assert_eq!(fcntl(&copy, FcntlArg::F_GETFD).unwrap(), FdFlag::FD_CLOEXEC.bits());
    assert!(matches!(passed.copy(7), Err(InheritError::Taken)));
    assert!(matches!(passed.copy(1), Err(InheritError::Taken)));
    assert!(matches!(passed.copy(900), Err(InheritError::NotOpen { number: 900 })));
    let open = || std::fs::read_link("/proc/self/fd/7").is_ok();
    assert!(open(), "the way back stays open");
    passed.settle();
    assert!(!open());
    TcpListener::from(copy).local_addr().unwrap();
}

#[tokio::test]
async fn a_process_is_waited_for_and_signalled_by_its_handle() {
    let mut child = Command::new("/bin/sleep").arg("600").spawn().unwrap();
    let handle = Handle::open(child.id()).unwrap();
    handle.signal(nix::libc::SIGKILL).unwrap();
    handle.ended().await.unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(nix::libc::SIGKILL));
    let late = handle.signal(nix::libc::SIGKILL).unwrap_err();
    assert_eq!(late.raw_os_error(), Some(nix::libc::ESRCH));
    handle.ended().await.unwrap();
    assert!(Handle::open(u32::MAX).is_err());
}
