//! Load with an oracle: a storm of short connections, and long streams that are compared byte by
//! byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::pattern::Pattern;
use super::wait::{PATIENCE, until};

/// What became of a storm's connections.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct StormReport {
    /// Connected, sent, got the same back.
    pub(crate) served: u64,
    /// Not let in.
    pub(crate) refused: u64,
    /// Ended before the answer.
    pub(crate) reset: u64,
    /// Answered with something else.
    pub(crate) corrupt: u64,
    /// Longest time from connect to answer.
    pub(crate) longest: Duration,
}

/// Short connections through an echo server, one after another on each of several threads.
#[derive(Debug)]
pub(crate) struct Storm {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    threads: Vec<JoinHandle<StormReport>>,
}

impl Storm {
    pub(crate) fn start(entry: SocketAddr, threads: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let served = Arc::new(AtomicU64::new(0));
        let threads = (0..threads)
            .map(|_| {
                let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
                std::thread::spawn(move || storm(entry, &stop, &served))
            })
            .collect();
        let storm = Self { stop, served, threads };
        storm.wait_served(1);
        storm
    }

    /// Waits until that many more connections were served.
    pub(crate) fn wait_served(&self, more: u64) {
        let start = self.served.load(Ordering::SeqCst);
        until("the storm is served", || {
            (self.served.load(Ordering::SeqCst) >= start + more).then_some(())
        });
    }

    /// Ends the storm.
    pub(crate) fn finish(self) -> StormReport {
        self.stop.store(true, Ordering::SeqCst);
        let mut total = StormReport::default();
        for thread in self.threads {
            let part = thread.join().unwrap();
            total.served += part.served;
            total.refused += part.refused;
            total.reset += part.reset;
            total.corrupt += part.corrupt;
            total.longest = total.longest.max(part.longest);
        }
        total
    }
}

fn storm(entry: SocketAddr, stop: &AtomicBool, served: &AtomicU64) -> StormReport {
    let mut report = StormReport::default();
    let mut number: u64 = 0;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        let start = Instant::now();
        match exchange(entry, number) {
            Ok(true) => {
                report.served += 1;
                served.fetch_add(1, Ordering::SeqCst);
            }
            Ok(false) => report.corrupt += 1,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => report.refused += 1,
            Err(_) => report.reset += 1,
        }
        report.longest = report.longest.max(start.elapsed());
    }
    report
}

fn exchange(entry: SocketAddr, number: u64) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&entry, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&number.to_le_bytes())?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    Ok(answer == number.to_le_bytes())
}

/// Long connections through an echo server; each sends and checks frames until told to end.
#[derive(Debug)]
pub(crate) struct Streams {
    stop: Arc<AtomicBool>,
    frames: Arc<AtomicU64>,
    /// Streams that have had a frame back.
    begun: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<u64, String>>>,
}

impl Streams {
    const FRAME: usize = 4 * 1024;

    /// Opens `count` streams and waits until each has had a frame back.
    pub(crate) fn open(entry: SocketAddr, count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (frames, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let threads = (0..count)
            .map(|number| {
                let (stop, frames, begun) =
                    (Arc::clone(&stop), Arc::clone(&frames), Arc::clone(&begun));
                let pattern = Pattern(0xBA70_0000 + number as u64);
                std::thread::spawn(move || stream(entry, pattern, &stop, &frames, &begun))
            })
            .collect();
        let streams = Self { stop, frames, begun, threads };
        until("every stream moves", || {
            let broken = streams.threads.iter().any(JoinHandle::is_finished);
            (broken || streams.begun.load(Ordering::SeqCst) == count as u64).then_some(())
        });
        streams
    }

    /// Waits until that many more frames have come back.
    pub(crate) fn wait_frames(&self, more: u64) {
        let start = self.frames.load(Ordering::SeqCst);
        until("the streams move", || {
            let broken = self.threads.iter().all(JoinHandle::is_finished);
            (broken || self.frames.load(Ordering::SeqCst) >= start + more).then_some(())
        });
    }

    /// Ends every stream with a half-close and returns how each fared: bytes that came back, or
    /// what went wrong.
    pub(crate) fn finish(self) -> Vec<Result<u64, String>> {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

fn stream(
    entry: SocketAddr,
    pattern: Pattern,
    stop: &AtomicBool,
    frames: &AtomicU64,
    begun: &AtomicU64,
) -> Result<u64, String> {
    let name = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let mut socket = TcpStream::connect_timeout(&entry, PATIENCE).map_err(name("connect"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(name("timeout"))?;
    let mut frame = vec![0; Streams::FRAME];
    let mut position = 0;
    while !stop.load(Ordering::SeqCst) {
        pattern.fill(position, &mut frame);
        socket.write_all(&frame).map_err(name("write"))?;
        socket.read_exact(&mut frame).map_err(name("read"))?;
        if let Some(at) = pattern.mismatch(position, &frame) {
            return Err(format!("wrong byte at {at}"));
        }
        if position == 0 {
            begun.fetch_add(1, Ordering::SeqCst);
        }
        position += frame.len() as u64;
        frames.fetch_add(1, Ordering::SeqCst);
    }
    socket.shutdown(Shutdown::Write).map_err(name("half-close"))?;
    match socket.read(&mut frame).map_err(name("read the end"))? {
        0 => Ok(position),
        extra => Err(format!("{extra} bytes too many")),
    }
}
