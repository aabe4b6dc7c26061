//! A client that closes its sending half and still wants the whole answer.
//!
//! Each connection sends its bytes, shuts down, and must get all of them back and then an end
//! of stream. A relay that takes the first FIN for the end of the connection cuts the answer.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{GRACE, Load, connect, on_threads};
use crate::pattern::Pattern;
use crate::report::{Failure, Phase, Report, Tally};

/// Runs the mode with so many bytes a connection.
pub(crate) fn run(load: &Load, bytes: u64) -> io::Result<Report> {
    let started = Instant::now();
    let target = load.target;
    let outcomes = on_threads(load.threads, load.connections, |index| async move {
        let limit = (started + GRACE).into();
        let timeout = Err(Failure::new(Phase::Receive, "timeout"));
        tokio::time::timeout_at(limit, one(target, bytes, index)).await.unwrap_or(timeout)
    })?;
    let mut report = Report {
        mode: "halfclose".to_owned(),
        connections: load.connections as u64,
        seconds: started.elapsed().as_secs_f64(),
        ..Report::default()
    };
    let mut errors = Tally::default();
    for outcome in outcomes {
        match outcome {
            Ok(()) => {
                report.done += 1;
                report.down_bytes += bytes;
            }
            Err(failure) => errors.add(&failure, started.elapsed()),
        }
    }
    report.cut = errors.ending("end of stream");
    report.corrupt = errors.ending("corrupt");
    report.errors = errors;
    Ok(report)
}

async fn one(target: SocketAddr, bytes: u64, index: usize) -> Result<(), Failure> {
    let pattern = Pattern::new(index as u64);
    let mut socket = connect(target).await?;
    let (mut from, mut to) = socket.split();
    let sending = async {
        to.write_all(b"E").await?;
        let mut position = 0;
        while position < bytes {
            let left = usize::try_from(bytes - position).unwrap_or(usize::MAX);
            let piece = pattern.window(position, left);
            to.write_all(piece).await?;
            position += piece.len() as u64;
        }
        to.shutdown().await
    };
    let receiving = async {
        let failed = |e: io::Error| Failure::of(Phase::Receive, &e);
        let mut buffer = vec![0; 64 * 1024];
        let mut first = [0];
        from.read_exact(&mut first).await.map_err(failed)?;
        let mut position = 0;
        loop {
            match from.read(&mut buffer).await.map_err(failed)? {
                0 if position == bytes => return Ok(()),
                0 => return Err(Failure::new(Phase::Receive, "end of stream")),
                n if !pattern.matches(position, &buffer[..n]) => {
                    return Err(Failure::new(Phase::Receive, "corrupt"));
                }
                n => position += n as u64,
            }
        }
    };
    let sending = async { sending.await.map_err(|e| Failure::of(Phase::Send, &e)) };
    tokio::try_join!(sending, receiving).map(|_| ())
}
