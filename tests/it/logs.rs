//! A log that is not read: costs lines, and nothing else.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _, pipe};
use std::net::SocketAddr;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{Instance, Loopback, Scratch, Storm, Upstream, baton};

/// The smallest pipe there is: a few lines fill it.
const PIPE: usize = 4096;

/// An instance that logs everything into such a pipe.
fn setting() -> (Instance, SocketAddr, Upstream, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    let size = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE.try_into().unwrap())).unwrap();
    assert_eq!(usize::try_from(size).unwrap(), PIPE);
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let config = json!({
        "log": { "level": "debug" },
        "rules": [{ "name": "echo", "listen": entry.to_string(), "mode": "normal",
                    "maxConnectionsPerIP": 4096,
                    "targets": [{ "address": upstream.address().to_string() }] }]
    });
    let instance = Instance::launch_logging(Scratch::new(), &config, baton(), writer.into());
    (instance, entry, upstream, reader)
}

/// Everything that must go on: connections, a reload, the replacement of a dead worker, the end.
fn live(mut instance: Instance, entry: SocketAddr) {
    instance.wait_serving();
    let storm = Storm::start(entry, 4);
    storm.wait_served(500);
    instance.expect_ok(&["reload"]);
    storm.wait_served(20);
    let old = instance.serving();
    instance.kill_worker(old);
    instance.wait_replaced(old);
    storm.wait_served(20);
    instance.expect_ok(&["upgrade"]);
    let report = storm.finish();
    assert_eq!((report.refused, report.corrupt), (0, 0), "{report:?}");
    instance.signal(Signal::SIGTERM);
    let status = instance.wait_end();
    assert!(status.success(), "the supervisor ended with {status}");
}

#[test]
fn a_log_reader_that_stops_reading_stops_nothing() {
    let (instance, entry, _upstream, mut reader) = setting();
    live(instance, entry);
    let mut left = Vec::new();
    reader.read_to_end(&mut left).unwrap();
    assert!(left.len() > PIPE / 2, "the pipe was never full: {} bytes", left.len());
}

#[test]
fn a_log_reader_that_is_gone_stops_nothing() {
    let (instance, entry, _upstream, reader) = setting();
    drop(reader);
    live(instance, entry);
}

#[test]
fn a_log_file_that_is_a_fifo_holds_nothing_up() {
    let scratch = Scratch::new();
    let fifo = scratch.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let config = json!({
        "log": { "path": fifo },
        "supervisor": { "watch": "0s" },
        "rules": [{ "name": "echo", "listen": entry.to_string(), "mode": "normal",
                    "targets": [{ "address": upstream.address().to_string() }] }]
    });
    let instance = Instance::launch_in(scratch, &config, baton());
    instance.wait_serving();
    instance.expect_ok(&["upgrade"]);
    instance.expect_ok(&["reload"]);
    // What was written before somebody reads is there for who comes.
    let mut lines = BufReader::new(std::fs::File::open(&fifo).unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("serving")));
    instance.stop();
}
