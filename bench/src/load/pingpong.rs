//! Round trips: small messages to and fro on connections that stay.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::churn::{Seen, summarize};
use super::{GRACE, Load, connect, micros, on_threads, request};
use crate::histogram::Histogram;
use crate::report::{Failure, Phase, Report, Tally};

/// Runs the mode with messages of `size` bytes (at least 5).
pub(crate) fn run(load: &Load, size: u32) -> io::Result<Report> {
    let started = Instant::now();
    let (target, end) = (load.target, started + load.duration);
    let seen = on_threads(load.threads, load.connections, |index| {
        player(target, size, index, started, end)
    })?;
    Ok(summarize("pingpong", load.connections, seen, started))
}

async fn player(
    target: SocketAddr,
    size: u32,
    index: usize,
    started: Instant,
    end: Instant,
) -> Seen {
    let mut seen = Seen { histogram: Histogram::new(), errors: Tally::default() };
    let ping = request(b'E', size as usize, index);
    let mut pong = vec![0; ping.len()];
    let work = async {
        while Instant::now() < end {
            let played = async {
                let mut socket = connect(target).await?;
                socket.set_nodelay(true).map_err(|e| Failure::of(Phase::Connect, &e))?;
                while Instant::now() < end {
                    let began = Instant::now();
                    round_trip(&mut socket, &ping, &mut pong).await?;
                    seen.histogram.add(micros(began.elapsed()));
                }
                Ok::<_, Failure>(())
            };
            if let Err(failure) = played.await {
                seen.errors.add(&failure, started.elapsed());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    if tokio::time::timeout_at((end + GRACE).into(), work).await.is_err() {
        seen.errors.add(&Failure::new(Phase::Receive, "timeout"), started.elapsed());
    }
    seen
}

async fn round_trip(socket: &mut TcpStream, ping: &[u8], pong: &mut [u8]) -> Result<(), Failure> {
    socket.write_all(ping).await.map_err(|e| Failure::of(Phase::Send, &e))?;
    socket.read_exact(pong).await.map_err(|e| Failure::of(Phase::Receive, &e))?;
    if ping == pong { Ok(()) } else { Err(Failure::new(Phase::Receive, "corrupt")) }
}
