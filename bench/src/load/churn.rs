//! Connections a second: connect, one request, its answer, and the upstream's close.
//!
//! The upstream closes first, so that TIME_WAIT stays with it: with the other order the
//! 28 000 local ports of one client address cap every target alike, and what is measured is
//! the kernel's search for a free port.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{GRACE, Load, Pace, connect, micros, on_threads, request};
use crate::histogram::Histogram;
use crate::report::{Failure, Phase, Report, Tally};

/// What is special about this mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Churn {
    /// Bytes of request and answer, at least 5.
    pub(crate) size: u32,
    /// New connections a second in all; 0 is as many as go.
    pub(crate) rate: f64,
}

/// What one connection slot has seen.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) histogram: Histogram,
    pub(super) errors: Tally,
}

/// Runs the mode.
pub(crate) fn run(load: &Load, churn: Churn) -> io::Result<Report> {
    let started = Instant::now();
    let (target, slots, end) = (load.target, load.connections, started + load.duration);
    let seen = on_threads(load.threads, slots, |index| {
        let pace = Pace::new(started, churn.rate, slots, index);
        slot(target, churn.size, index, pace, started, end)
    })?;
    Ok(summarize("churn", slots, seen, started))
}

/// Adds slots up.
pub(super) fn summarize(mode: &str, slots: usize, seen: Vec<Seen>, started: Instant) -> Report {
    let took = started.elapsed();
    let (mut histogram, mut errors) = (Histogram::new(), Tally::default());
    for one in seen {
        histogram.merge(&one.histogram);
        errors.merge(one.errors);
    }
    Report::of_requests(mode, slots as u64, took, &histogram, errors)
}

/// One connection after the other until `end`.
pub(super) async fn slot(
    target: SocketAddr,
    size: u32,
    index: usize,
    mut pace: Option<Pace>,
    started: Instant,
    end: Instant,
) -> Seen {
    let mut seen = Seen { histogram: Histogram::new(), errors: Tally::default() };
    let mut request = request(b'C', size as usize, index);
    let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
    request[1..5].copy_from_slice(&length.to_le_bytes());
    let mut answer = vec![0; request.len()];
    let work = async {
        while Instant::now() < end {
            if let Some(pace) = &mut pace {
                pace.wait().await;
            }
            let began = Instant::now();
            match once(target, &request, &mut answer).await {
                Ok(()) => seen.histogram.add(micros(began.elapsed())),
                Err(failure) => {
                    seen.errors.add(&failure, started.elapsed());
                    // A target that refuses at once must not be hammered.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    };
    if tokio::time::timeout_at((end + GRACE).into(), work).await.is_err() {
        seen.errors.add(&Failure::new(Phase::Receive, "timeout"), started.elapsed());
    }
    seen
}

async fn once(target: SocketAddr, request: &[u8], answer: &mut [u8]) -> Result<(), Failure> {
    let mut socket = connect(target).await?;
    socket.write_all(request).await.map_err(|e| Failure::of(Phase::Send, &e))?;
    socket.read_exact(answer).await.map_err(|e| Failure::of(Phase::Receive, &e))?;
    if answer != request {
        return Err(Failure::new(Phase::Receive, "corrupt"));
    }
    let more = socket.read(&mut [0]).await.map_err(|e| Failure::of(Phase::Close, &e))?;
    if more > 0 {
        return Err(Failure::new(Phase::Close, "corrupt"));
    }
    Ok(())
}
