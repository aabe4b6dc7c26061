//! Putting a connection together again from its record and its descriptors.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use baton_handoff::table::{Record, Track};

use super::judge::{Loss, SideFacts, judge};
use crate::net::{self, Pipe, TcpState};
use crate::relay::{Flow, Frozen, HeldPipe};

/// What of a connection has arrived.
#[derive(Debug)]
pub struct Parts {
    /// The client's socket.
    pub client: OwnedFd,
    /// The upstream's socket.
    pub upstream: OwnedFd,
    /// The pipe of the direction to the upstream, if the record names one.
    pub up: Option<Pipe>,
    /// The pipe of the direction to the client, if the record names one.
    pub down: Option<Pipe>,
    /// Bytes that were in memory, behind those in the pipes; none after a crash.
    pub inline: [Vec<u8>; 2],
}

/// The connection as if it had been frozen here. Touches nothing: the parts may still be
/// somebody else's.
///
/// # Errors
/// Why it cannot go on; the copies that came are closed.
pub fn rebuild(record: &Record, parts: Parts) -> Result<Frozen, Loss> {
    let facts = (facts(&parts.client), facts(&parts.upstream));
    let (Ok(client), Ok(upstream)) = facts else { return Err(Loss::Gone) };
    judge(record, &client, &upstream)?;
    let Parts {
        client: client_fd,
        upstream: upstream_fd,
        up,
        down,
        inline: [up_bytes, down_bytes],
    } = parts;
    let up = flow(&record.to_upstream, up, up_bytes, &upstream);
    let down = flow(&record.to_client, down, down_bytes, &client);
    match (up, down) {
        (Ok(to_upstream), Ok(to_client)) => {
            Ok(Frozen { client: client_fd, upstream: upstream_fd, to_upstream, to_client })
        }
        (Err(_), _) | (_, Err(_)) => Err(Loss::Contradiction),
    }
}

fn flow(track: &Track, pipe: Option<Pipe>, bytes: Vec<u8>, sink: &SideFacts) -> io::Result<Flow> {
    let pipe = match (track.pipe, pipe) {
        (Some(_), Some(pipe)) => {
            // The kernel knows how much is in it; an empty one is closed.
            let held = net::unread(pipe.read_end())?;
            (held > 0).then_some(HeldPipe { pipe, held })
        }
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let fin_sent = track.fin_sent
        || track.eof_seen
            && match sink.state {
                TcpState::FinSent | TcpState::Closing => true,
                TcpState::Closed => !sink.error_pending,
                TcpState::Established
                | TcpState::CloseWait
                | TcpState::Connecting
                | TcpState::Listening
                | TcpState::Unknown(_) => false,
            };
    let flow = Flow::resumed(pipe, bytes, track.eof_seen, fin_sent, track.total);
    Ok(flow.splicing(track.splices))
}

fn facts(socket: &OwnedFd) -> io::Result<SideFacts> {
    let socket = socket.as_fd();
    Ok(SideFacts {
        cookie: net::cookie(socket)?,
        // In this order: a break between the two shows as an open socket with an error, which
        // goes on and meets it.
        state: net::tcp_state(socket)?,
        error_pending: net::has_error(socket)?,
    })
}
