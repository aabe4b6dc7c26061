//! What a connection costs that does nothing.
//!
//! Connections are opened and proven by one echoed byte, then left alone. The caller says how
//! to look at the target's processes. Plain blocking sockets: nothing here is timed.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::Load;
use crate::procfs::Sample;
use crate::report::{Failure, Held, Phase, Report, Tally};

const PATIENCE: Duration = Duration::from_secs(10);
/// How long memory and descriptors may take to settle after opening or closing.
const SETTLE: Duration = Duration::from_secs(3);

/// Open connections that do nothing; dropping it closes them.
#[derive(Debug)]
pub(crate) struct Crowd {
    sockets: Vec<TcpStream>,
    errors: Tally,
}

impl Crowd {
    /// Opens so many connections and proves that each of them reaches the upstream.
    pub(crate) fn open(target: SocketAddr, count: usize, threads: usize) -> Self {
        let threads = threads.clamp(1, count.max(1));
        let started = Instant::now();
        let mut crowd = Self { sockets: Vec::with_capacity(count), errors: Tally::default() };
        thread::scope(|scope| {
            let opening: Vec<_> = (0..threads)
                .map(|thread| {
                    let share = (thread..count).step_by(threads);
                    scope.spawn(move || {
                        let opened = share.map(|_| (open_one(target), started.elapsed()));
                        opened.collect::<Vec<_>>()
                    })
                })
                .collect();
            // A thread that panicked has opened nothing, which the caller sees in the count.
            for (result, at) in opening.into_iter().filter_map(|t| t.join().ok()).flatten() {
                match result {
                    Ok(socket) => crowd.sockets.push(socket),
                    Err(failure) => crowd.errors.add(&failure, at),
                }
            }
        });
        crowd
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Sends a byte through each and counts those that still answer.
    fn alive(&mut self, started: Instant) -> u64 {
        let mut alive = 0;
        for socket in &mut self.sockets {
            match prove(socket) {
                Ok(()) => alive += 1,
                Err(failure) => self.errors.add(&failure, started.elapsed()),
            }
        }
        alive
    }
}

fn open_one(target: SocketAddr) -> Result<TcpStream, Failure> {
    let connect = TcpStream::connect_timeout(&target, PATIENCE);
    let mut socket = connect.map_err(|e| Failure::of(Phase::Connect, &e))?;
    let limits = socket.set_read_timeout(Some(PATIENCE));
    limits.map_err(|e| Failure::of(Phase::Connect, &e))?;
    prove(&mut socket)?;
    Ok(socket)
}

fn prove(socket: &mut TcpStream) -> Result<(), Failure> {
    let mut answer = [0];
    socket.write_all(b"E").map_err(|e| Failure::of(Phase::Send, &e))?;
    socket.read_exact(&mut answer).map_err(|e| Failure::of(Phase::Receive, &e))?;
    if answer == *b"E" { Ok(()) } else { Err(Failure::new(Phase::Receive, "corrupt")) }
}

/// Looks until two looks in a row agree within 1 %, at most [`SETTLE`].
fn settled(look: &dyn Fn() -> Sample, good_enough: impl Fn(&Sample) -> bool) -> Sample {
    let until = Instant::now() + SETTLE;
    let mut last = look();
    loop {
        thread::sleep(Duration::from_millis(250));
        let now = look();
        let same = (now.pss_kib - last.pss_kib).abs() <= last.pss_kib * 0.01;
        if (same && now.fds == last.fds && good_enough(&now)) || Instant::now() > until {
            return now;
        }
        last = now;
    }
}

/// Runs the mode; `look` reads the target's processes.
pub(crate) fn run(load: &Load, look: &dyn Fn() -> Sample) -> io::Result<Report> {
    let started = Instant::now();
    // The first connections touch code and buffers that any number of them shares.
    let warm = Crowd::open(load.target, 64.min(load.connections), load.threads);
    drop(warm);
    let before = settled(look, |_| true);
    let mut crowd = Crowd::open(load.target, load.connections, load.threads);
    let during = settled(look, |_| true);
    let (from, cpu) = (Instant::now(), look().cpu_s);
    thread::sleep(load.duration);
    let (idle_s, idle_cpu_s) = (from.elapsed().as_secs_f64(), look().cpu_s - cpu);
    let opened = crowd.len() as u64;
    let alive = crowd.alive(started);
    let errors = std::mem::take(&mut crowd.errors);
    drop(crowd);
    let after = settled(look, |now| now.fds <= before.fds);
    Ok(Report {
        mode: "idle".to_owned(),
        connections: load.connections as u64,
        seconds: started.elapsed().as_secs_f64(),
        done: alive,
        cut: opened - alive,
        corrupt: errors.ending("corrupt"),
        held: Some(Held { before, during, after, idle_cpu_s, idle_s }),
        errors,
        ..Report::default()
    })
}
