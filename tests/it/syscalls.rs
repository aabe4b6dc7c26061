//! What serving costs in system calls: the same on every machine, and what the time of a connection
//! is made of. A call that is added shows here and nowhere else.
//!
//! Counted by strace on a worker with one thread; a machine without strace, or one that lets
//! nobody trace, says that these are skipped. Some calls depend on who is faster: a first read that
//! finds nothing, a connect that is not over when it is asked, an accept that finds the queue
//! empty. Those may be more, by less than one a connection; all others are exact but for the few
//! that a worker makes without being asked.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::harness::{Echo, Instance, Loopback, missing, until};

/// strace, attached to every thread of a worker.
struct Trace {
    strace: Child,
    worker: u32,
    /// Descriptors of the worker before anything happened.
    before: usize,
    scratch: std::path::PathBuf,
}

impl Trace {
    /// `None`, with the reason on the terminal, when tracing is not possible here.
    fn begin(test: &str, instance: &Instance) -> Option<Self> {
        if missing(test, &["strace"]) {
            return None;
        }
        let worker = instance.serving();
        let before = descriptors(worker);
        let scratch = instance.scratch().path().to_owned();
        let said = scratch.join("strace.said");
        let mut strace = Command::new("strace")
            .args(["-f", "-e", "signal=none", "-e", "trace=network,desc", "-o"])
            .arg(scratch.join("strace.calls"))
            .args(["-p", &worker.to_string()])
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let attached = until("strace is attached", || {
            // In this order: what it said before it ended is not missed.
            let ended = strace.try_wait().unwrap().is_some();
            let text = std::fs::read_to_string(&said).unwrap();
            if text.contains(" attached") { Some(true) } else { ended.then_some(false) }
        });
        if !attached {
            let said = std::fs::read_to_string(&said).unwrap();
            eprintln!("SKIPPED {test}: nobody may be traced here: {}", said.trim());
            return None;
        }
        Some(Self { strace, worker, before, scratch })
    }

    /// How often each call was made, until every connection of the trace's time is closed.
    fn end(mut self) -> Calls {
        until("everything is closed", || (descriptors(self.worker) <= self.before).then_some(()));
        kill(Pid::from_raw(self.strace.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        self.strace.wait().unwrap();
        let calls = std::fs::read_to_string(self.scratch.join("strace.calls")).unwrap();
        let mut counts = BTreeMap::new();
        // `PID name(…`; a call that another thread interrupts goes on in a line `PID <... name`.
        for line in calls.lines() {
            let call = line.split_whitespace().nth(1).and_then(|rest| rest.split_once('('));
            if let Some((name, _)) = call {
                *counts.entry(name.to_owned()).or_insert(0) += 1;
            }
        }
        Calls(counts)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // A test that failed; a strace that has ended needs nothing.
        let _ended = self.strace.kill();
        let _reaped = self.strace.wait();
    }
}

fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

#[derive(Debug)]
struct Calls(BTreeMap<String, u64>);

impl Calls {
    fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Exactly so many, but for what a worker does by itself, and up to `more`.
    fn expect(&self, name: &str, count: u64, more: u64) {
        let made = self.of(name);
        let most = count + more + count / 20;
        assert!((count..=most).contains(&made), "{name}: {made}, not {count} to {most}: {self:?}");
    }
}

#[test]
fn a_connection_with_one_request_makes_no_call_it_does_not_need() {
    const CONNECTIONS: u64 = 200;
    let echo = Echo::start(json!({ "workerThreads": 1 }));
    let test = "a_connection_with_one_request_makes_no_call_it_does_not_need";
    let Some(trace) = Trace::begin(test, &echo.instance) else { return };
    let begun = Instant::now();
    for _ in 0..CONNECTIONS {
        let mut client = TcpStream::connect(echo.entry).unwrap();
        client.write_all(&[7; 64]).unwrap();
        client.read_exact(&mut [0; 64]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        // The end comes when the worker has closed.
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    let calls = trace.end();
    println!("{CONNECTIONS} connections: {calls:?}");
    calls.expect("socket", CONNECTIONS, 0);
    calls.expect("epoll_ctl", 4 * CONNECTIONS, 0);
    calls.expect("sendto", 2 * CONNECTIONS, 0);
    calls.expect("shutdown", CONNECTIONS, 0);
    calls.expect("close", 2 * CONNECTIONS, 0);
    // The kernel's names for both sockets, by which a successor knows them.
    calls.expect("getsockopt", 2 * CONNECTIONS, 0);
    // Three more for a connection that a sweep finds, twice a second: this one, or the last one
    // while it is being closed.
    let sweeps = u64::try_from(begun.elapsed().as_millis() / 500).unwrap() + 1;
    calls.expect("setsockopt", CONNECTIONS, 2 * 3 * sweeps);
    calls.expect("connect", 2 * CONNECTIONS, CONNECTIONS);
    calls.expect("accept4", CONNECTIONS, 2 * CONNECTIONS);
    calls.expect("recvfrom", 4 * CONNECTIONS, CONNECTIONS);
    // Without `fcntl`: the standard library asks before each close whether the descriptor is open,
    // in a build with debug assertions.
    for never in ["getpeername", "getsockname", "ioctl", "pipe2", "splice"] {
        calls.expect(never, 0, CONNECTIONS / 20);
    }
    echo.instance.stop();
}

#[test]
fn a_message_is_one_read_and_one_write() {
    const TRIPS: u64 = 1000;
    let echo = Echo::start(json!({ "workerThreads": 1 }));
    let mut client = TcpStream::connect(echo.entry).unwrap();
    let mut trip = || {
        client.write_all(&[7; 64]).unwrap();
        client.read_exact(&mut [0; 64]).unwrap();
    };
    trip();
    let test = "a_message_is_one_read_and_one_write";
    let Some(trace) = Trace::begin(test, &echo.instance) else { return };
    (0..TRIPS).for_each(|_| trip());
    let calls = trace.end();
    println!("{TRIPS} round trips: {calls:?}");
    calls.expect("recvfrom", 2 * TRIPS, 0);
    calls.expect("sendto", 2 * TRIPS, 0);
    drop(client);
    echo.instance.stop();
}

#[test]
fn a_stream_in_bulk_passes_through_pipes_in_large_pieces() {
    const MIB: u64 = 64;
    let loopback = Loopback::unique();
    let entry = loopback.next();
    let listener = TcpListener::bind(loopback.next()).unwrap();
    let instance = Instance::start(&json!({
        "supervisor": { "workerThreads": 1 },
        "rules": [{ "name": "r", "listen": entry.to_string(), "mode": "normal",
                    "targets": [{ "address": listener.local_addr().unwrap().to_string() }] }]}));
    let mut client = TcpStream::connect(entry).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let test = "a_stream_in_bulk_passes_through_pipes_in_large_pieces";
    let Some(trace) = Trace::begin(test, &instance) else { return };
    let sender = std::thread::spawn(move || {
        let piece = vec![7; 1 << 20];
        (0..MIB).for_each(|_| client.write_all(&piece).unwrap());
        client
    });
    let mut piece = vec![0; 1 << 20];
    let mut received = 0;
    while received < MIB << 20 {
        match server.read(&mut piece) {
            Ok(count) => received += count as u64,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
        }
    }
    drop((sender.join().unwrap(), server));
    let calls = trace.end();
    println!("{MIB} MiB: {calls:?}");
    // In and out once a MiB, in a pipe that holds one; up to three in all have been seen on a machine
    // thirty times overloaded, where each finds less. Copying would take 32 of the others each way.
    calls.expect("splice", 0, 8 * MIB);
    let copied = calls.of("recvfrom") + calls.of("sendto");
    assert!(copied <= MIB, "a stream in bulk is copied: {calls:?}");
    instance.stop();
}
