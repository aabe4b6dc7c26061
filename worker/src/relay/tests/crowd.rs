//! Many connections on one thread, sharing its buffer and its pipes, ending in every way; and
//! the same thread without descriptors to spare.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::sync::mpsc;

use super::bed::*;
use crate::flow::Moment;
use crate::net::testing::{PATIENCE, accepted_pair};
use crate::relay::{Control, CutReason, End, Ending, Outcome, Relay, RelayContext, Side};

const CROWD: usize = 16;

enum Message {
    Serve(usize, OwnedFd, OwnedFd),
    /// Cuts it, and says so: what its peers do then comes too late to count.
    Cut(usize, std::sync::mpsc::Sender<()>),
}

/// Serves until the channel closes and every connection has ended.
fn serve(mut inbox: mpsc::UnboundedReceiver<Message>) -> (HashMap<usize, Outcome>, (usize, usize)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    let context = Rc::new(RelayContext::new());
    let outcomes = Rc::new(RefCell::new(HashMap::new()));
    runtime.block_on(async {
        let mut tasks = Vec::new();
        let mut controls = HashMap::new();
        while let Some(message) = inbox.recv().await {
            match message {
                Message::Serve(number, near, far) => {
                    let control = Rc::new(Control::new(Moment(1)));
                    controls.insert(number, Rc::clone(&control));
                    let (context, outcomes) = (Rc::clone(&context), Rc::clone(&outcomes));
                    tasks.push(tokio::task::spawn_local(async move {
                        let (near, far) = (near.into(), far.into());
                        let relay = Relay::new(near, far, Vec::new(), context, control, ());
                        if let End::Closed(outcome) = relay.unwrap().await {
                            outcomes.borrow_mut().insert(number, outcome);
                        }
                    }));
                }
                Message::Cut(number, done) => {
                    controls[&number].cut(CutReason::Stopping);
                    done.send(()).unwrap();
                }
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let outcomes = outcomes.take();
    (outcomes, context.pipes_open())
}

/// How a connection is to end, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Clean,
    ClientAborts,
    UpstreamAborts,
    Cut,
}

fn fate(number: usize) -> Fate {
    [Fate::Clean, Fate::ClientAborts, Fate::UpstreamAborts, Fate::Cut][number % 4]
}

/// Reads a stream that may break; what arrives must be its beginning. `true` at an orderly end.
fn read_beginning(mut from: &TcpStream, seed: u64) -> (u64, bool) {
    let mut buffer = vec![0; 64 << 10];
    let mut position = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return (position, true),
            Ok(count) => {
                for &byte in &buffer[..count] {
                    assert_eq!(byte, pattern(seed, position), "wrong byte at {position}");
                    position += 1;
                }
            }
            Err(error) => {
                let kind = error.kind();
                assert!(kind == ErrorKind::ConnectionReset || kind == ErrorKind::BrokenPipe);
                return (position, false);
            }
        }
    }
}

/// Sends `total` bytes in random chunks, or as many as the connection bears.
fn send_some(mut to: &TcpStream, seed: u64, total: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let bytes = pattern_bytes(seed, 0..total);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let chunk = random.usize(1..=200_000).min(rest.len());
        if to.write_all(&rest[..chunk]).is_err() {
            return;
        }
        rest = &rest[chunk..];
    }
}

#[test]
fn every_stream_of_a_crowd_is_exact_or_ends_in_a_reset() {
    let (messages, inbox) = mpsc::unbounded_channel();
    let relays = std::thread::spawn(move || serve(inbox));
    std::thread::scope(|scope| {
        for number in 0..CROWD {
            let (client, near) = accepted_pair();
            let (upstream, far) = accepted_pair();
            for peer in [&client, &upstream] {
                peer.set_read_timeout(Some(PATIENCE)).unwrap();
                peer.set_write_timeout(Some(PATIENCE)).unwrap();
            }
            assert!(messages.send(Message::Serve(number, near, far)).is_ok());
            let messages = messages.clone();
            scope.spawn(move || one(number, client, upstream, &messages));
        }
        drop(messages);
    });
    let (outcomes, (lent, _)) = relays.join().unwrap();
    assert_eq!(lent, 0, "every pipe came back");
    for number in 0..CROWD {
        let ending = &outcomes[&number].ending;
        let fits = match (fate(number), ending) {
            (Fate::Clean, Ending::Clean) => true,
            (Fate::ClientAborts, Ending::Failed(failure)) => failure.side == Side::Client,
            (Fate::UpstreamAborts, Ending::Failed(failure)) => failure.side == Side::Upstream,
            (Fate::Cut, Ending::Cut(_)) => true,
            _ => false,
        };
        assert!(fits, "{:?} ended as {ending:?}", fate(number));
    }
}

fn one(
    number: usize,
    client: TcpStream,
    upstream: TcpStream,
    messages: &mpsc::UnboundedSender<Message>,
) {
    let fate = fate(number);
    let (up, down) = (number as u64 * 2, number as u64 * 2 + 1);
    let total = (2 << 20) + number as u64;
    match fate {
        Fate::Clean => std::thread::scope(|scope| {
            let (client, upstream) = (&client, &upstream);
            for (from, seed) in [(client, up), (upstream, down)] {
                scope.spawn(move || {
                    send_some(from, seed, total);
                    finish(from);
                });
            }
            scope.spawn(move || assert_eq!(read_beginning(upstream, up), (total, true)));
            assert_eq!(read_beginning(client, down), (total, true));
        }),
        Fate::ClientAborts | Fate::UpstreamAborts => {
            let (leaver, stayer, seed) = match fate {
                Fate::ClientAborts => (client, upstream, up),
                _ => (upstream, client, down),
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (_, orderly) = read_beginning(&stayer, seed);
                    assert!(!orderly, "a reset was passed on as an end");
                });
                // Not everything may have left this peer's queue, so a part may be lost.
                send_some(&leaver, seed, total);
                abort(leaver);
            });
        }
        Fate::Cut => std::thread::scope(|scope| {
            let (client, upstream) = (&client, &upstream);
            for (from, seed) in [(client, up), (upstream, down)] {
                scope.spawn(move || send_some(from, seed, 8 << 20));
            }
            // Both directions are in full flow; then nobody reads any more until the cut.
            read_pattern(upstream, up, 0..1 << 18);
            read_pattern(client, down, 0..1 << 18);
            let (done, is_cut) = std::sync::mpsc::channel();
            assert!(messages.send(Message::Cut(number, done)).is_ok());
            is_cut.recv().unwrap();
        }),
    }
}

/// Set in the child that runs the test below with few descriptors.
const CHILD: &str = "BATON_TEST_FEW_DESCRIPTORS";

#[test]
fn without_a_descriptor_for_a_pipe_bulk_is_copied() {
    use nix::sys::resource::{Resource, setrlimit};
    if std::env::var_os(CHILD).is_none() {
        // The limit is the process's, so it gets one of its own.
        let name = "relay::tests::crowd::without_a_descriptor_for_a_pipe_bulk_is_copied";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    // The first runtime of a process opens tokio's signal pipe, which stays.
    drop(tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap());
    let before = count();
    let (client, upstream, relay) = connection();
    write_pattern(&client, 1, 0..10, || 10);
    read_pattern(&upstream, 1, 0..10);
    // The lowest free number is beyond the limit from here on.
    setrlimit(Resource::RLIMIT_NOFILE, 3, 4096).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| write_pattern(&client, 1, 10..8 << 20, || 1 << 20));
        read_pattern(&upstream, 1, 10..8 << 20);
    });
    finish(&client);
    read_end(&upstream);
    finish(&upstream);
    read_end(&client);
    let report = relay.end();
    setrlimit(Resource::RLIMIT_NOFILE, 1024, 4096).unwrap();
    assert_eq!(report.pipes, (0, 0), "there was none to be had");
    assert_eq!(report.tallied.0, 8 << 20);
    drop((client, upstream));
    assert_eq!(count(), before, "no descriptor is left behind");
}
