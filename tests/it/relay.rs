//! Bytes and ends, as both sides see them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Instance, Loopback, Pattern, Upstream, read_pattern, until, write_pattern};

fn start(entry: SocketAddr, upstream: SocketAddr) -> Instance {
    Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "normal",
          "targets": [{ "address": upstream.to_string() }] }]}))
}

/// The two outer ends of one relayed connection, and the gateway between them.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    instance: Instance,
}

fn pair() -> Pair {
    let loopback = Loopback::unique();
    let entry = loopback.next();
    let listener = TcpListener::bind(loopback.next()).unwrap();
    let instance = start(entry, listener.local_addr().unwrap());
    let client = TcpStream::connect(entry).unwrap();
    let (server, _) = listener.accept().unwrap();
    Pair { client, server, instance }
}

fn reset(stream: TcpStream) {
    let socket = socket2::Socket::from(stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

fn settled(instance: Instance) {
    until("the connection is accounted for", || {
        (instance.metric("baton_connections_active") == 0.0).then_some(())
    });
    instance.stop();
}

#[test]
fn a_half_close_passes_on_and_the_reply_still_comes() {
    let Pair { mut client, mut server, instance } = pair();
    let length = 1 << 20;
    let sender = std::thread::spawn(move || {
        write_pattern(Pattern(1), &mut client, length, 7000).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        client
    });
    assert_eq!(read_pattern(Pattern(1), &mut server).unwrap(), length);
    let mut client = sender.join().unwrap();
    write_pattern(Pattern(2), &mut server, 300_000, 4096).unwrap();
    drop(server);
    assert_eq!(read_pattern(Pattern(2), &mut client).unwrap(), 300_000);
    drop(client);
    settled(instance);
}

#[test]
fn the_server_may_close_first_too() {
    let Pair { mut client, mut server, instance } = pair();
    write_pattern(Pattern(3), &mut server, 500_000, 64 * 1024).unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_pattern(Pattern(3), &mut client).unwrap(), 500_000);
    write_pattern(Pattern(4), &mut client, 100_000, 1000).unwrap();
    drop(client);
    assert_eq!(read_pattern(Pattern(4), &mut server).unwrap(), 100_000);
    drop(server);
    settled(instance);
}

#[test]
fn a_reset_arrives_as_a_reset_on_the_other_side() {
    for client_resets in [true, false] {
        let Pair { mut client, mut server, instance } = pair();
        client.write_all(b"hello").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        let (resetting, mut waiting) =
            if client_resets { (client, server) } else { (server, client) };
        reset(resetting);
        let error = waiting.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "client resets: {client_resets}");
        drop(waiting);
        settled(instance);
    }
}

#[test]
fn bytes_before_a_reset_come_before_the_error() {
    let Pair { client, mut server, instance } = pair();
    let mut sender = client;
    write_pattern(Pattern(5), &mut sender, 48 * 1024, 4096).unwrap();
    until("the relay has passed the bytes on", || {
        (instance.metric("baton_relay_bytes_total") >= 48.0 * 1024.0).then_some(())
    });
    reset(sender);
    let mut received = vec![0; 48 * 1024];
    server.read_exact(&mut received).unwrap();
    assert_eq!(Pattern(5).mismatch(0, &received), None);
    let error = server.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop(server);
    settled(instance);
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    let loopback = Loopback::unique();
    let upstream = Upstream::named(loopback.next(), "SSH-2.0-banner\r\n");
    let entry = loopback.next();
    let instance = start(entry, upstream.address());
    let mut client = TcpStream::connect(entry).unwrap();
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    assert_eq!(said, "SSH-2.0-banner\r\n");
    instance.stop();
}

#[test]
fn a_client_that_nobody_can_serve_is_reset() {
    let loopback = Loopback::unique();
    let entry = loopback.next();
    let instance = start(entry, loopback.next());
    let mut client = TcpStream::connect(entry).unwrap();
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(instance.metric("baton_dial_failures_total") >= 1.0);
    instance.stop();
}

#[test]
fn bytes_are_counted_while_they_flow() {
    let Pair { mut client, mut server, instance } = pair();
    client.write_all(&[7; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    until("the bytes are counted with the connection still open", || {
        (instance.metric("baton_relay_bytes_total") >= 1000.0).then_some(())
    });
    drop((client, server));
    settled(instance);
}

#[test]
fn a_slow_reader_holds_the_sender_back_and_loses_nothing() {
    let Pair { client, mut server, instance } = pair();
    let length: u64 = 64 << 20;
    let (held_back, is_held_back) = mpsc::channel();
    let sender = std::thread::spawn(move || {
        let mut client = client;
        client.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut frame = vec![0; 64 * 1024];
        let mut position = 0;
        while position < length {
            let size = usize::try_from(length - position).unwrap().min(frame.len());
            Pattern(6).fill(position, &mut frame[..size]);
            match client.write(&frame[..size]) {
                Ok(size) => position += size as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    held_back.send(position).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    let taken = is_held_back.recv().unwrap();
    assert!(taken < length, "the gateway keeps no stream in its memory");
    assert_eq!(read_pattern(Pattern(6), &mut server).unwrap(), length);
    sender.join().unwrap();
    drop(server);
    settled(instance);
}

#[test]
fn an_idle_timeout_ends_only_what_is_silent_both_ways() {
    let loopback = Loopback::unique();
    let entry = loopback.next();
    let listener = TcpListener::bind(loopback.next()).unwrap();
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "normal", "idleTimeout": "8s",
          "targets": [{ "address": listener.local_addr().unwrap().to_string() }] }]}));
    // Far more than the pauses of the busy one, even on a machine that is busy itself.
    let mut busy = TcpStream::connect(entry).unwrap();
    let (mut busy_server, _) = listener.accept().unwrap();
    let mut silent = TcpStream::connect(entry).unwrap();
    let (_silent_server, _) = listener.accept().unwrap();

    let silent_ends = std::thread::spawn(move || silent.read(&mut [0; 1]).is_err());
    while !silent_ends.is_finished() {
        // One way only: that is enough to stay.
        busy_server.write_all(b"x").unwrap();
        busy.read_exact(&mut [0; 1]).unwrap();
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert!(silent_ends.join().unwrap(), "reset, because nobody closed it");
    busy_server.write_all(b"x").unwrap();
    busy.read_exact(&mut [0; 1]).unwrap();
    drop((busy, busy_server));
    instance.stop();
}

/// Whether the kernel has a keep-alive timer for a socket whose peer is `remote`: the column `tr`
/// of proc_net_tcp(5) is 2.
fn has_keepalive_timer(remote: SocketAddr) -> bool {
    let SocketAddr::V4(remote) = remote else { panic!("{remote}") };
    let ip = u32::from_ne_bytes(remote.ip().octets());
    let remote = format!("{ip:08X}:{:04X}", remote.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|columns| {
        columns.get(2) == Some(&remote.as_str())
            && columns.get(5).is_some_and(|timer| timer.starts_with("02:"))
    })
}

#[test]
fn a_peer_of_a_lasting_connection_that_vanishes_would_be_noticed_on_both_sides() {
    let Pair { client, server, instance } = pair();
    for peer in [&client, &server] {
        let peer = peer.local_addr().unwrap();
        until("a keep-alive timer", || has_keepalive_timer(peer).then_some(()));
    }
    drop((client, server));
    settled(instance);
}
