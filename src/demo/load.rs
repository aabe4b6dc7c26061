//! The load: live connections whose streams are checked byte by byte, and a connect storm.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};

use super::ledger::{Ledger, count, longest};
use super::pattern::Pattern;

const FRAME: usize = 1024;
/// Between two frames of a stream: 200 streams make ten thousand frames a second.
const PAUSE: Duration = Duration::from_millis(20);

/// All tasks of the load.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Rc<Cell<bool>>,
    streams: Vec<JoinHandle<()>>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Opens the streams, waits until each has had a frame back, and starts the storm.
    pub(crate) async fn start(
        entry: SocketAddr,
        streams: usize,
        callers: usize,
        ledger: Rc<Ledger>,
    ) -> anyhow::Result<Self> {
        let stop = Rc::new(Cell::new(false));
        let load = Self {
            stop: Rc::clone(&stop),
            streams: open(entry, streams, &ledger, &stop).await,
            callers: (0..callers)
                .map(|_| spawn_local(storm(entry, Rc::clone(&ledger), Rc::clone(&stop))))
                .collect(),
        };
        anyhow::ensure!(ledger.broken.get() == 0, "streams broke before anything was done");
        Ok(load)
    }

    /// Ends the load: streams by a half-close whose echo is awaited.
    pub(crate) async fn finish(self) {
        self.stop.set(true);
        for task in self.streams.into_iter().chain(self.callers) {
            // A task that panicked has already failed the demo through its own message.
            let _ended = task.await;
        }
    }
}

async fn open(
    entry: SocketAddr,
    streams: usize,
    ledger: &Rc<Ledger>,
    stop: &Rc<Cell<bool>>,
) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::with_capacity(streams);
    let mut started = Vec::with_capacity(streams);
    for seed in (0xBA70_0000..).take(streams) {
        let (ledger, stop) = (Rc::clone(ledger), Rc::clone(stop));
        let first = Rc::new(Notify::new());
        started.push(Rc::clone(&first));
        tasks.push(spawn_local(async move {
            if stream(entry, Pattern(seed), &ledger, &stop, &first).await.is_err() {
                count(&ledger.broken);
            }
            first.notify_one();
        }));
    }
    for first in started {
        first.notified().await;
    }
    tasks
}

async fn stream(
    entry: SocketAddr,
    pattern: Pattern,
    ledger: &Ledger,
    stop: &Cell<bool>,
    first: &Notify,
) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(entry).await?;
    let mut frame = vec![0; FRAME];
    let mut position = 0;
    while !stop.get() {
        pattern.fill(position, &mut frame);
        let sent = Instant::now();
        socket.write_all(&frame).await?;
        socket.read_exact(&mut frame).await?;
        longest(&ledger.longest_stall, sent.elapsed());
        if pattern.mismatch(position, &frame).is_some() {
            count(&ledger.corrupted);
        }
        position += u64::try_from(FRAME).unwrap_or(0);
        count(&ledger.frames);
        first.notify_one();
        tokio::time::sleep(PAUSE).await;
    }
    socket.shutdown().await?;
    match socket.read(&mut frame).await? {
        0 => Ok(()),
        _ => {
            count(&ledger.corrupted);
            Ok(())
        }
    }
}

async fn storm(entry: SocketAddr, ledger: Rc<Ledger>, stop: Rc<Cell<bool>>) {
    let mut number: u64 = 0;
    while !stop.get() {
        number += 1;
        let start = Instant::now();
        match call(entry, number).await {
            Ok(true) => count(&ledger.served),
            Ok(false) => count(&ledger.corrupted),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => count(&ledger.refused),
            Err(_) => count(&ledger.reset),
        }
        longest(&ledger.longest_connect, start.elapsed());
    }
}

async fn call(entry: SocketAddr, number: u64) -> std::io::Result<bool> {
    let mut socket = TcpStream::connect(entry).await?;
    socket.write_all(&number.to_le_bytes()).await?;
    let mut answer = [0; 8];
    socket.read_exact(&mut answer).await?;
    Ok(answer == number.to_le_bytes())
}
