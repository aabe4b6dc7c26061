//! Real workers, killed; their keepers asked.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use baton_handoff::keeper::{KeeperClient, KeeperError};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::Keeper;
use super::testing::{Line, Spawned};
use crate::net::testing::PATIENCE;

/// A worker with a keeper and nothing else; obeys its line.
#[test]
#[ignore = "child process of other tests"]
fn worker() {
    let (mut keeper, far) = Keeper::start().unwrap();
    let mut kept = Vec::new();
    let line = Line::to_parent();
    line.say(&keeper.pid().to_string(), &[far.as_fd()]);
    drop(far);
    let mut streams: Vec<TcpStream> = Vec::new();
    while let Some((order, _)) = line.hear() {
        let (verb, argument) = order.split_once(' ').unwrap_or((&order, ""));
        match verb {
            "connect" => {
                let address = argument.to_owned();
                let opened = std::thread::spawn(move || TcpStream::connect(address).unwrap());
                let stream = opened.join().unwrap();
                line.say(&stream.as_raw_fd().to_string(), &[]);
                streams.push(stream);
            }
            "close" => {
                streams.clear();
                line.say("closed", &[]);
            }
            "another" => {
                let (keeper, far) = Keeper::start().unwrap();
                line.say(&keeper.pid().to_string(), &[]);
                kept.push(far);
            }
            "renew" => {
                let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
                let before = open();
                let (fresh, far) = Keeper::start().unwrap();
                std::mem::replace(&mut keeper, fresh).dismiss().unwrap();
                line.say(&keeper.pid().to_string(), &[far.as_fd()]);
                drop(far);
                assert_eq!(open(), before);
            }
            "dismiss" => {
                assert!(keeper.is_intact());
                keeper.dismiss().unwrap();
                return;
            }
            other => panic!("{other}"),
        }
    }
}

struct Bench {
    worker: Spawned,
    keeper: Pid,
    socket: OwnedFd,
    listener: TcpListener,
}

impl Bench {
    fn new() -> Self {
        let worker = Spawned::run("keeper::tests::worker");
        let (pid, mut fds) = worker.line.hear().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let keeper = Pid::from_raw(pid.parse().unwrap());
        Self { worker, keeper, socket: fds.remove(0), listener }
    }

    /// Has the worker connect; the descriptor's number there, and the other side.
    fn connect(&self) -> (i32, TcpStream) {
        let address = self.listener.local_addr().unwrap();
        let number = self.worker.line.ask(&format!("connect {address}"));
        (number.parse().unwrap(), self.listener.accept().unwrap().0)
    }

    fn client(&self) -> KeeperClient {
        KeeperClient::new(self.socket.try_clone().unwrap()).unwrap()
    }
}

/// Waits until a process that came to us is dead.
fn reap(pid: Pid) -> WaitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            // Not ours before its parent is dead.
            Ok(WaitStatus::StillAlive) | Err(nix::errno::Errno::ECHILD) => {
                assert!(Instant::now() < end, "the keeper does not end");
                std::thread::yield_now();
            }
            status => return status.unwrap(),
        }
    }
}

fn kind_of_read(mut stream: &TcpStream) -> Result<usize, ErrorKind> {
    stream.read(&mut [0; 8]).map_err(|error| error.kind())
}

fn has_data(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let nothing = stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    !nothing
}

#[tokio::test]
async fn connections_opened_later_and_elsewhere_outlive_a_kill() {
    let mut bench = Bench::new();
    let (first, mut near) = bench.connect();
    let (second, other) = bench.connect();
    let mut client = bench.client();
    assert!(matches!(client.list().await, Err(KeeperError::WorkerAlive)));
    assert!(matches!(client.fetch(&[first]).await, Err(KeeperError::WorkerAlive)));
    assert!(matches!(client.reset(&[first]).await, Err(KeeperError::WorkerAlive)));

    bench.worker.kill();
    let held = client.list().await.unwrap();
    assert_eq!(held.iter().map(|held| held.number).collect::<Vec<_>>(), [first, second]);
    assert!(!has_data(&near) && !has_data(&other), "a peer has noticed");

    // Numbers that are not open are left out; so is the keeper's own.
    let mut got = client.fetch(&[-1, 1 << 20, second, first]).await.unwrap();
    assert_eq!(got.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [second, first]);
    let (_, fd) = got.remove(1);
    assert_eq!(crate::net::cookie(fd.as_fd()).unwrap(), held[0].cookie);
    let mut adopted = TcpStream::from(fd);
    adopted.write_all(b"on").unwrap();
    near.read_exact(&mut [0; 2]).unwrap();

    assert_eq!(client.reset(&[second, 0, 77_777]).await.unwrap(), 1);
    assert_eq!(kind_of_read(&other), Err(ErrorKind::ConnectionReset), "a copy is no obstacle");
    client.exit().await.unwrap();
    assert_eq!(reap(bench.keeper), WaitStatus::Exited(bench.keeper, 0));
    drop(adopted);
    assert_eq!(kind_of_read(&near), Ok(0), "now the close is a real one");
}

#[tokio::test]
async fn a_keeper_is_small_has_a_name_and_ignores_signals_that_are_not_for_it() {
    let mut bench = Bench::new();
    // An answer proves that it has come so far.
    assert!(matches!(bench.client().list().await, Err(KeeperError::WorkerAlive)));
    let proc =
        |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", bench.keeper)).unwrap();
    assert_eq!(proc("comm"), "baton-keeper\n");
    let rollup = proc("smaps_rollup");
    let dirty = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
    let kib: u64 = dirty.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 1024, "{kib} KiB of its own");
    for signal in
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2]
    {
        kill(bench.keeper, signal).unwrap();
    }
    let (number, _near) = bench.connect();
    bench.worker.kill();
    let held = bench.client().list().await.unwrap();
    assert_eq!(held.iter().map(|held| held.number).collect::<Vec<_>>(), [number]);
    bench.client().exit().await.unwrap();
    reap(bench.keeper);
}

#[tokio::test]
async fn more_connections_than_fit_one_answer_are_all_listed() {
    let mut bench = Bench::new();
    let peers: Vec<_> = (0..1100).map(|_| bench.connect()).collect();
    bench.worker.kill();
    let mut client = bench.client();
    let held = client.list().await.unwrap();
    assert_eq!(held.len(), 1100);
    let numbers: Vec<_> = held.iter().map(|held| held.number).collect();
    assert_eq!(client.fetch(&numbers[..200]).await.unwrap().len(), 200);
    assert_eq!(client.reset(&numbers).await.unwrap(), 1100);
    for (_, peer) in &peers {
        assert_eq!(kind_of_read(peer), Err(ErrorKind::ConnectionReset));
    }
    client.exit().await.unwrap();
    reap(bench.keeper);
}

#[tokio::test]
async fn what_a_dead_asker_left_behind_does_not_confuse_the_next() {
    let mut bench = Bench::new();
    let (number, _near) = bench.connect();
    bench.worker.kill();
    // Asks and does not wait for the answer, as if it died.
    let mut dead = bench.client();
    for _ in 0..3 {
        let asked = tokio::time::timeout(Duration::ZERO, dead.fetch(&[number])).await;
        assert!(asked.is_err() || asked.unwrap().is_ok());
    }
    drop(dead);
    let mut client = bench.client();
    assert_eq!(client.list().await.unwrap().len(), 1);
    assert_eq!(client.fetch(&[number]).await.unwrap().len(), 1);
    client.exit().await.unwrap();
    reap(bench.keeper);
}

#[test]
fn a_close_in_the_worker_is_a_real_close() {
    let bench = Bench::new();
    let (_, near) = bench.connect();
    assert_eq!(bench.worker.line.ask("close"), "closed");
    assert_eq!(kind_of_read(&near), Ok(0));
}

#[test]
fn a_worker_that_ends_in_order_takes_its_keeper_with_it() {
    let bench = Bench::new();
    let (_, near) = bench.connect();
    bench.worker.line.say("dismiss", &[]);
    let Bench { worker, keeper, .. } = bench;
    assert!(worker.succeeded());
    assert_eq!(kind_of_read(&near), Ok(0));
    assert!(kill(keeper, None).is_err(), "it is still there");
}

#[test]
fn with_worker_and_supervisor_gone_every_connection_is_reset() {
    let bench = Bench::new();
    let (_, near) = bench.connect();
    let Bench { mut worker, keeper, socket, .. } = bench;
    drop(socket);
    worker.kill();
    assert_eq!(kind_of_read(&near), Err(ErrorKind::ConnectionReset));
    assert_eq!(reap(keeper), WaitStatus::Exited(keeper, 0));
}

#[test]
fn a_keeper_that_nobody_else_knows_of_ends_with_its_worker() {
    let mut bench = Bench::new();
    let keeper = Pid::from_raw(bench.worker.line.ask("another").parse().unwrap());
    let begun = Instant::now();
    bench.worker.kill();
    reap(keeper);
    assert!(begun.elapsed() < super::PATIENCE, "it waited for whoever might come");
}

#[test]
fn a_keeper_that_is_made_late_takes_the_place_of_the_first() {
    let mut bench = Bench::new();
    let (number, far) = bench.connect();
    bench.worker.line.say("renew", &[]);
    let (pid, mut fds) = bench.worker.line.hear().unwrap();
    bench.keeper = Pid::from_raw(pid.parse().unwrap());
    bench.socket = fds.remove(0);
    bench.worker.kill();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = bench.client();
        let held = client.list().await.unwrap();
        assert!(held.iter().any(|held| held.number == number));
        client.exit().await.unwrap();
    });
    reap(bench.keeper);
    drop(far);
}

#[test]
fn a_supervisor_that_goes_first_changes_nothing_for_a_living_worker() {
    let bench = Bench::new();
    let Bench { mut worker, keeper, socket, listener } = bench;
    drop(socket);
    let number = worker.line.ask(&format!("connect {}", listener.local_addr().unwrap()));
    assert!(number.parse::<i32>().is_ok());
    let near = listener.accept().unwrap().0;
    assert!(!has_data(&near));
    assert!(kill(keeper, None).is_ok());
    worker.kill();
    assert_eq!(kind_of_read(&near), Err(ErrorKind::ConnectionReset));
    reap(keeper);
}

#[test]
fn a_keeper_that_is_killed_leaves_the_worker_as_it_was() {
    let bench = Bench::new();
    kill(bench.keeper, Signal::SIGKILL).unwrap();
    let (_, mut near) = bench.connect();
    near.write_all(b"x").unwrap();
    bench.worker.line.say("dismiss", &[]);
    assert!(bench.worker.succeeded());
}
