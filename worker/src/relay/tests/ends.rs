//! Every way a connection can end, and what the other peer sees of it.

use std::io::Write;
use std::net::TcpStream;

use super::bed::*;
use crate::flow::RelayEnd;
use crate::relay::{Ending, Failure, Operation, Side};

const MIB: u64 = 1 << 20;

fn failure(report: &Report) -> &Failure {
    match &report.outcome.as_ref().unwrap().ending {
        Ending::Failed(failure) => failure,
        other => panic!("expected a failure, not {other:?}"),
    }
}

fn verdict(report: &Report) -> RelayEnd {
    report.outcome.as_ref().unwrap().for_line()
}

/// `first` sends everything and its FIN; only then `second` answers.
fn half_close(first: &TcpStream, second: &TcpStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write_pattern(first, 1, 0..MIB, || 100_000);
            finish(first);
        });
        read_pattern(second, 1, 0..MIB);
        read_end(second);
        scope.spawn(|| {
            write_pattern(second, 2, 0..MIB, || 100_000);
            finish(second);
        });
        read_pattern(first, 2, 0..MIB);
        read_end(first);
    });
}

#[test]
fn the_client_may_finish_first_and_still_gets_the_whole_reply() {
    let (client, upstream, relay) = connection();
    half_close(&client, &upstream);
    let report = relay.end();
    assert_eq!(verdict(&report), RelayEnd::Clean { carried: true });
}

#[test]
fn the_upstream_may_finish_first_and_still_gets_the_whole_rest() {
    let (client, upstream, relay) = connection();
    half_close(&upstream, &client);
    assert_eq!(verdict(&relay.end()), RelayEnd::Clean { carried: true });
}

#[test]
fn a_half_closed_connection_costs_nothing_while_the_other_half_is_used() {
    for client_first in [true, false] {
        let (client, upstream, relay) = connection();
        let (done, open) = match client_first {
            true => (&client, &upstream),
            false => (&upstream, &client),
        };
        finish(done);
        read_end(open);
        for position in 0..500 {
            write_pattern(open, 1, position..position + 1, || 1);
            read_pattern(done, 1, position..position + 1);
        }
        assert!(relay.polls() < 500 + 30, "{} polls for 500 messages: it spins", relay.polls());
        finish(open);
        read_end(done);
        assert_eq!(verdict(&relay.end()), RelayEnd::Clean { carried: true });
    }
}

#[test]
fn a_connection_that_ends_without_a_byte_is_clean_and_carried_nothing() {
    let (client, upstream, relay) = connection();
    finish(&client);
    read_end(&upstream);
    finish(&upstream);
    read_end(&client);
    assert_eq!(verdict(&relay.end()), RelayEnd::Clean { carried: false });
}

#[test]
fn a_reset_by_the_client_is_a_reset_for_the_upstream() {
    let (client, upstream, relay) = connection();
    write_pattern(&client, 1, 0..10, || 10);
    read_pattern(&upstream, 1, 0..10);
    abort(client);
    read_reset(&upstream);
    let report = relay.end();
    assert_eq!(
        (failure(&report).side, failure(&report).operation),
        (Side::Client, Operation::Read)
    );
    assert_eq!(verdict(&report), RelayEnd::Broken);
}

#[test]
fn a_reset_by_the_upstream_is_a_reset_for_the_client() {
    let (client, upstream, relay) = connection();
    write_pattern(&client, 1, 0..10, || 10);
    read_pattern(&upstream, 1, 0..10);
    abort(upstream);
    read_reset(&client);
    let report = relay.end();
    assert_eq!(
        (failure(&report).side, failure(&report).operation),
        (Side::Upstream, Operation::Read)
    );
    assert_eq!(verdict(&report), RelayEnd::AtOnce, "it gave no single byte");
}

#[test]
fn bytes_before_a_reset_arrive_before_the_reset_at_a_slow_reader() {
    for size in [48 << 10, 1 << 20, 2 << 20] {
        let (client, upstream, relay) = connection();
        // Nobody reads while the client sends as much as fits and goes.
        let sent = write_what_fits(&client, 1, size);
        assert!(sent > 0);
        abort_when_acknowledged(client);
        for position in 0..100 {
            read_pattern(&upstream, 1, position..position + 1);
            std::thread::yield_now();
        }
        read_pattern(&upstream, 1, 100..sent);
        read_reset(&upstream);
        let report = relay.end();
        assert_eq!(failure(&report).side, Side::Client);
        assert_eq!(report.tallied, (sent, 0));
        assert_eq!(report.pipes.0, 0);
    }
}

#[test]
fn an_early_answer_arrives_although_the_upstream_resets_on_the_rest() {
    let (client, upstream, relay) = connection();
    write_pattern(&client, 1, 0..MIB, || 1 << 20);
    write_pattern(&upstream, 2, 0..1000, || 1000);
    // Closing with unread bytes in the queue is a reset in TCP.
    crate::net::testing::eventually("unread bytes", || {
        crate::net::unread(std::os::fd::AsFd::as_fd(&upstream)).unwrap() > 0
    });
    crate::net::testing::eventually("the answer acknowledged", || {
        crate::net::unsent(std::os::fd::AsFd::as_fd(&upstream)).unwrap() == 0
    });
    drop(upstream);
    read_pattern(&client, 2, 0..1000);
    read_reset(&client);
    assert_eq!(verdict(&relay.end()), RelayEnd::Broken, "it had answered");
}

#[test]
fn a_client_that_finishes_and_then_goes_is_noticed_while_both_are_silent() {
    let (client, upstream, relay) = connection();
    write_pattern(&client, 1, 0..10, || 10);
    finish(&client);
    read_pattern(&upstream, 1, 0..10);
    read_end(&upstream);
    abort(client);
    let report = relay.end();
    assert_eq!(
        (failure(&report).side, failure(&report).operation),
        (Side::Client, Operation::Watch)
    );
    // The upstream has had the orderly end of the stream; its answer goes nowhere.
    let error = loop {
        if let Err(error) = (&upstream).write(b"answer") {
            break error;
        }
    };
    let reset = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
    assert!(reset.contains(&error.kind()), "{error}");
}

#[test]
fn an_upstream_that_finishes_and_then_goes_is_noticed_while_both_are_silent() {
    let (client, upstream, relay) = connection();
    write_pattern(&upstream, 1, 0..10, || 10);
    finish(&upstream);
    read_pattern(&client, 1, 0..10);
    read_end(&client);
    abort(upstream);
    assert_eq!(failure(&relay.end()).side, Side::Upstream);
}

#[test]
fn a_peer_that_closes_while_the_other_streams_ends_the_stream_with_a_reset() {
    let (client, upstream, relay) = connection();
    let streamer = std::thread::spawn(move || {
        let block = vec![7; 64 << 10];
        loop {
            if let Err(error) = (&upstream).write_all(&block) {
                return error;
            }
        }
    });
    read_pattern_of_sevens(&client, MIB);
    drop(client);
    let error = streamer.join().unwrap();
    let reset = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
    assert!(reset.contains(&error.kind()), "{error}");
    let report = relay.end();
    assert_eq!(failure(&report).side, Side::Client);
    assert_eq!(report.pipes.0, 0, "a pipe with bytes in it must be given up");
}

fn read_pattern_of_sevens(from: &TcpStream, count: u64) {
    use std::io::Read;
    let mut taken = from.take(count);
    std::io::copy(&mut taken, &mut std::io::sink()).unwrap();
}

/// Writes up to `size` bytes and gives back how many found room.
fn write_what_fits(mut to: &TcpStream, seed: u64, size: usize) -> u64 {
    let bytes = pattern_bytes(seed, 0..size as u64);
    to.set_nonblocking(true).unwrap();
    let (mut sent, mut refused) = (0, 0);
    while sent < bytes.len() && refused < 1000 {
        match to.write(&bytes[sent..]) {
            Ok(count) => (sent, refused) = (sent + count, 0),
            Err(_) => {
                refused += 1;
                std::thread::yield_now();
            }
        }
    }
    sent as u64
}

/// Resets once everything has left this peer: a reset throws away its own send queue.
fn abort_when_acknowledged(peer: TcpStream) {
    use std::os::fd::AsFd;
    crate::net::testing::eventually("everything acknowledged", || {
        crate::net::unsent(peer.as_fd()).unwrap() == 0
    });
    abort(peer);
}
