//! One session with frames, seen from the client, and the sending of frames for both ends.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::WriteHalf;

use super::{GRACE, connect, micros};
use crate::pattern::{PERIOD, Pattern};
use crate::report::{Failure, Phase};
use crate::wire::{self, Checker, Hello, Kind, Progress, Summary};

/// Slices of the largest frame: its header and the pattern, one period a slice.
const SLICES: usize = 2 + (wire::MAX_FRAME as usize).div_ceil(PERIOD);

/// Sends one frame with as few writes as the socket takes it in.
pub(crate) async fn send_frame(
    to: &mut WriteHalf<'_>,
    pattern: Pattern,
    position: u64,
    len: u32,
) -> io::Result<()> {
    let head = wire::header(Kind::Data, len);
    let mut slices = [IoSlice::new(&[]); SLICES];
    slices[0] = IoSlice::new(&head);
    let (mut used, mut left, mut at) = (1, len as usize, position);
    while left > 0 {
        let piece = pattern.window(at, left);
        slices[used] = IoSlice::new(piece);
        used += 1;
        at += piece.len() as u64;
        left -= piece.len();
    }
    let mut rest = &mut slices[..used];
    while !rest.is_empty() {
        let written = to.write_vectored(rest).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

/// The longest silence between two arrivals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gaps {
    last: Instant,
    longest_us: u64,
}

impl Gaps {
    pub(crate) fn new() -> Self {
        Self { last: Instant::now(), longest_us: 0 }
    }

    pub(crate) fn arrived(&mut self) {
        let now = Instant::now();
        self.longest_us = self.longest_us.max(micros(now - self.last));
        self.last = now;
    }

    pub(crate) fn longest_us(self) -> u64 {
        self.longest_us
    }
}

/// What became of a session.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) connected: bool,
    /// Bytes that the upstream has verified.
    pub(crate) up: u64,
    /// Bytes verified here.
    pub(crate) down: u64,
    pub(crate) corrupt: u64,
    /// The longest silence in either direction; only of sessions with a pace.
    pub(crate) gap_us: u64,
    /// With the time since `started`.
    pub(crate) failure: Option<(Failure, Duration)>,
}

/// Runs one session until `end`, and then as long as its last bytes take.
pub(crate) async fn run(
    target: SocketAddr,
    hello: Hello,
    started: Instant,
    end: Instant,
    buffer: usize,
) -> Outcome {
    let mut outcome = Outcome::default();
    let talk = converse(target, hello, end, buffer, &mut outcome);
    let failure = match tokio::time::timeout_at((end + GRACE).into(), talk).await {
        Ok(result) => result.err(),
        Err(_) => Some(Failure::new(Phase::Receive, "timeout")),
    };
    outcome.failure = failure.map(|f| (f, started.elapsed()));
    outcome
}

async fn converse(
    target: SocketAddr,
    hello: Hello,
    end: Instant,
    buffer: usize,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let mut socket = connect(target).await?;
    outcome.connected = true;
    socket.set_nodelay(true).map_err(|e| Failure::of(Phase::Connect, &e))?;
    let (mut from, mut to) = socket.split();

    let sending = async {
        let sent = send(&mut to, hello, end).await;
        sent.map_err(|e| Failure::of(Phase::Send, &e))
    };
    let mut checker = Checker::new(hello.down_pattern());
    let mut gaps = Gaps::new();
    let paced = hello.interval_us > 0;
    let receiving = async {
        let mut buffer = vec![0; buffer];
        loop {
            let n = from.read(&mut buffer).await.map_err(|e| Failure::of(Phase::Receive, &e))?;
            if n == 0 {
                return Err(Failure::new(Phase::Receive, "end of stream"));
            }
            if paced {
                gaps.arrived();
            }
            match checker.feed(&buffer[..n]) {
                Progress::Open => {}
                Progress::Ended(summary) => return Ok(summary),
                Progress::Finished | Progress::Lost => {
                    return Err(Failure::new(Phase::Receive, "corrupt"));
                }
            }
        }
    };
    let result = tokio::try_join!(sending, receiving);
    outcome.down = checker.received();
    outcome.corrupt = checker.corrupt();
    outcome.gap_us = if paced { gaps.longest_us() } else { 0 };
    let (sent, summary): (u64, Summary) = result?;
    outcome.up = summary.received;
    outcome.corrupt += summary.corrupt;
    outcome.gap_us = outcome.gap_us.max(summary.gap_us);
    if (summary.received, summary.sent) != (sent, checker.received()) {
        outcome.corrupt += 1; // bytes went missing, or came from nowhere, without a trace
    }
    Ok(())
}

/// Sends the client's direction until `end`; returns payload bytes.
async fn send(to: &mut WriteHalf<'_>, hello: Hello, end: Instant) -> io::Result<u64> {
    to.write_all(&hello.encode()).await?;
    let mut position = 0;
    if hello.direction.up() {
        let step = Duration::from_micros(hello.interval_us.into());
        let mut next = Instant::now();
        for len in hello.writes.into_iter().cycle() {
            if next.max(Instant::now()) >= end {
                break;
            }
            send_frame(to, hello.up_pattern(), position, len).await?;
            position += u64::from(len);
            if !step.is_zero() {
                next = (next + step).max(Instant::now());
                tokio::time::sleep_until(next.into()).await;
            }
        }
    } else {
        tokio::time::sleep_until(end.into()).await;
    }
    to.write_all(&wire::header(Kind::Fin, 0)).await?;
    Ok(position)
}
