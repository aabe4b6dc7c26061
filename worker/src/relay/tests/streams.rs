//! Bytes arrive once, in order, whatever the sizes and the pace.

use super::bed::*;
use crate::relay::{COPY_BUFFER, Ending, Relay};

const MIB: u64 = 1 << 20;

/// Sends `up` and `down` bytes at the same time, each in chunks of a random size below `most`.
fn exchange(up: u64, down: u64, most: usize, seed: u64) -> Report {
    let (client, upstream, relay) = connection();
    std::thread::scope(|scope| {
        let (client, upstream) = (&client, &upstream);
        let sender = |peer, seed, total| {
            move || {
                let mut random = fastrand::Rng::with_seed(seed);
                write_pattern(peer, seed, 0..total, || random.usize(1..=most));
                finish(peer);
            }
        };
        scope.spawn(sender(client, seed, up));
        scope.spawn(sender(upstream, seed + 1, down));
        scope.spawn(move || {
            read_pattern(upstream, seed, 0..up);
            read_end(upstream);
        });
        read_pattern(client, seed + 1, 0..down);
        read_end(client);
    });
    let report = relay.end();
    let outcome = report.outcome.as_ref().unwrap();
    assert!(matches!(outcome.ending, Ending::Clean), "{outcome:?}");
    assert_eq!((outcome.to_upstream, outcome.to_client), (up, down));
    assert_eq!(report.tallied, (up, down));
    assert_eq!(report.pipes.0, 0, "a pipe was not given back");
    report
}

#[test]
fn both_directions_are_exact_under_random_chunks() {
    for seed in 0..8 {
        let most = 1 << (6 + 2 * seed);
        exchange(2 * MIB + seed, MIB - seed, most, seed);
    }
}

#[test]
fn sizes_around_every_border_have_no_short_tail() {
    let buffer = COPY_BUFFER as u64;
    for border in [1, 4096, buffer, 2 * buffer, 4 * buffer, 5 * buffer, MIB, MIB + 4 * buffer] {
        for size in [border - 1, border, border + 1] {
            exchange(size, MIB + 1 - size.min(MIB), usize::MAX, size);
        }
    }
}

#[test]
fn a_preface_comes_first_and_once() {
    let preface = pattern_bytes(7, 0..100_000);
    let (client, upstream, relay) = connection_with(preface, |_| {});
    write_pattern(&client, 7, 100_000..300_000, || 5000);
    finish(&client);
    read_pattern(&upstream, 7, 0..300_000);
    read_end(&upstream);
    finish(&upstream);
    read_end(&client);
    assert_eq!(relay.end().tallied, (300_000, 0));
}

#[test]
fn single_bytes_make_their_round_trips_without_idle_wake_ups() {
    let (client, upstream, relay) = connection();
    for position in 0..1000 {
        write_pattern(&client, 1, position..position + 1, || 1);
        read_pattern(&upstream, 1, position..position + 1);
        write_pattern(&upstream, 2, position..position + 1, || 1);
        read_pattern(&client, 2, position..position + 1);
    }
    assert!(relay.polls() <= 2 * 1000 + 20, "{} polls for 2000 messages", relay.polls());
    finish(&client);
    finish(&upstream);
    assert_eq!(relay.end().pipes, (0, 0), "small messages need no pipe");
}

#[test]
fn a_direction_in_bulk_splices_and_goes_back_to_copying_when_quiet() {
    let (client, upstream, relay) = connection();
    let (mut up, mut down) = (0, 0);
    for _ in 0..5 {
        std::thread::scope(|scope| {
            scope.spawn(|| write_pattern(&client, 1, up..up + 8 * MIB, || 1 << 20));
            read_pattern(&upstream, 1, up..up + 8 * MIB);
        });
        up += 8 * MIB;
        for _ in 0..50 {
            write_pattern(&client, 1, up..up + 100, || 100);
            read_pattern(&upstream, 1, up..up + 100);
            write_pattern(&upstream, 2, down..down + 100, || 100);
            read_pattern(&client, 2, down..down + 100);
            (up, down) = (up + 100, down + 100);
        }
    }
    finish(&client);
    finish(&upstream);
    let report = relay.end();
    assert_eq!(report.pipes, (0, 1), "one pipe was enough, and it was used");
    assert_eq!(report.tallied, (up, down));
}

#[test]
fn without_any_pipe_bulk_is_copied() {
    let (client, upstream, relay) = connection_with(Vec::new(), |context| {
        let mut pipes = context.pipes.borrow_mut();
        while pipes.lent() < 256 {
            pipes.adopt();
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| write_pattern(&client, 1, 0..4 * MIB, || 1 << 20));
        read_pattern(&upstream, 1, 0..4 * MIB);
    });
    finish(&client);
    finish(&upstream);
    let report = relay.end();
    assert_eq!(report.pipes, (256, 0));
    assert_eq!(report.tallied.0, 4 * MIB);
}

#[test]
fn a_reader_that_waits_stops_the_writer_and_then_gets_all() {
    use std::io::{ErrorKind, Write};

    let (client, upstream, relay) = connection();
    let limit = 32 * MIB;
    let bytes = pattern_bytes(3, 0..limit);
    let mut sent = 0;
    client.set_nonblocking(true).unwrap();
    // "Full" is a state that lasts: the relay may need a moment to fill its own queues.
    let mut full = 0;
    while full < 1000 {
        match (&client).write(&bytes[sent..]) {
            Ok(count) => {
                sent += count;
                full = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                full += 1;
                std::thread::yield_now();
            }
        }
        assert!(sent < bytes.len(), "nothing holds the writer back");
    }
    client.set_nonblocking(false).unwrap();
    finish(&client);
    read_pattern(&upstream, 3, 0..sent as u64);
    read_end(&upstream);
    finish(&upstream);
    let report = relay.end();
    assert_eq!(report.tallied, (sent as u64, 0));
}

#[test]
fn urgent_data_stays_in_the_stream_and_stops_nothing() {
    let (client, upstream, relay) = connection();
    // In bulk first, so that a splice meets the mark.
    std::thread::scope(|scope| {
        scope.spawn(|| write_pattern(&client, 5, 0..4 * MIB, || 1 << 20));
        read_pattern(&upstream, 5, 0..4 * MIB);
    });
    let mut position = 4 * MIB;
    for _ in 0..20 {
        write_pattern(&client, 5, position..position + 10, || 10);
        let urgent = [pattern(5, position + 10)];
        socket2::SockRef::from(&client).send_out_of_band(&urgent).unwrap();
        write_pattern(&client, 5, position + 11..position + 100_000, || 1 << 20);
        read_pattern(&upstream, 5, position..position + 100_000);
        position += 100_000;
    }
    finish(&client);
    read_end(&upstream);
    finish(&upstream);
    assert_eq!(relay.end().tallied, (position, 0));
}

#[test]
fn an_idle_connection_is_small() {
    // Two registrations, two directions without buffers, three pointers. The best peer spends
    // 2.4 KiB of process memory on an idle connection; this is our share of it beside tokio's.
    assert!(size_of::<Relay<()>>() <= 240, "{} bytes", size_of::<Relay<()>>());
}
