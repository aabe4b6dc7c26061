//! What a successor would find, were the process killed now.

use baton_handoff::table::{Busy, Record, State, Track};

use super::bed::*;
use crate::net::testing::eventually;

fn record(relay: &Running) -> Record {
    relay.records()[0].found.unwrap()
}

fn is_quiet(track: &Track) -> bool {
    track.busy == Busy::No && track.pipe.is_none()
}

#[test]
fn a_quiet_connection_has_nothing_that_a_kill_could_lose() {
    let (client, upstream, relay) = connection();
    write_pattern(&client, 1, 0..500_000, || 5000);
    read_pattern(&upstream, 1, 0..500_000);
    eventually("quiet", || is_quiet(&record(&relay).to_upstream));
    let found = record(&relay);
    assert_eq!((found.state, found.to_upstream.total), (State::Open, 500_000));
    assert!(is_quiet(&found.to_client) && found.to_client.total == 0);
    assert!(!found.to_upstream.eof_seen && !found.to_upstream.fin_sent);

    finish(&client);
    read_end(&upstream);
    eventually("the FIN", || record(&relay).to_upstream.fin_sent);
    let found = record(&relay);
    assert!(found.to_upstream.eof_seen && is_quiet(&found.to_upstream));
    assert!(!found.to_client.eof_seen && !found.to_client.fin_sent);
    finish(&upstream);
    read_end(&client);
    relay.end();
}

#[test]
fn what_a_slow_reader_does_not_take_waits_in_a_pipe_and_not_in_memory() {
    use std::io::{ErrorKind, Write};
    let (client, upstream, relay) = connection();
    client.set_nonblocking(true).unwrap();
    let mut sent = 0;
    // Small writes are copied, so that what is left over has been in memory.
    let mut full = || loop {
        let bytes = pattern_bytes(1, sent..sent + 3000);
        match (&client).write(&bytes) {
            Ok(count) => sent += count as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    };
    eventually("blocked", || {
        full();
        let track = record(&relay).to_upstream;
        track.pipe.is_some() && track.busy == Busy::No
    });
    client.set_nonblocking(false).unwrap();
    finish(&client);
    read_pattern(&upstream, 1, 0..sent);
    read_end(&upstream);
    finish(&upstream);
    read_end(&client);
    assert_eq!(relay.end().tallied, (sent, 0));
}

#[test]
fn a_record_is_free_once_its_connection_has_ended_in_whatever_way() {
    let (client, upstream, relay) = connection();
    finish(&client);
    finish(&upstream);
    read_end(&client);
    read_end(&upstream);
    relay.end();

    let (client, upstream, relay) = connection();
    abort(client);
    read_reset(&upstream);
    relay.end();

    let (client, upstream, relay) = connection();
    relay.order(Order::Move);
    relay.order(Order::Abandon);
    read_reset(&client);
    read_reset(&upstream);
    relay.end();
}
