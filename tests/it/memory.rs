//! What a worker gives back.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::harness::{Instance, Loopback, Upstream, until};

/// Anonymous memory of a process in KiB.
fn anonymous(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_worker_gives_memory_back_when_many_connections_are_gone() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let instance = Instance::start(&json!({
        "supervisor": { "workerThreads": 1 },
        "rules": [{ "name": "echo", "listen": entry.to_string(), "mode": "normal",
                    "maxConnectionsPerIP": 4096,
                    "targets": [{ "address": upstream.address().to_string() }] }]
    }));
    let worker = instance.serving();
    let connect = || {
        let mut stream = TcpStream::connect(entry).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    // What the first connection brings is not the connections'.
    drop(connect());
    let before = anonymous(worker);
    let mut streams: Vec<_> = (0..800).map(|_| connect()).collect();
    let peak = anonymous(worker);
    assert!(peak > before + 256, "{before} KiB, then {peak} KiB");
    // One stays, so that the last block of the heap does.
    streams.drain(..799);
    until("memory is given back", || {
        (anonymous(worker) < before + (peak - before) / 2).then_some(())
    });
    drop(streams);
    instance.stop();
}
