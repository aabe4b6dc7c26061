//! The client side of every mode.
//!
//! Connections are dealt to threads in turn and stay there; each thread is one current-thread
//! runtime, so nothing is shared or woken across cores and the generator stays cheaper than
//! what it measures. Time limits are one timer a connection, not one a request: a request that
//! never ends is reported when the run does.

pub(crate) mod bulk;
pub(crate) mod churn;
pub(crate) mod halfclose;
pub(crate) mod idle;
pub(crate) mod pingpong;
pub(crate) mod session;
pub(crate) mod upgrade;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::pattern::Pattern;
use crate::report::{Failure, Phase};

/// How long after its end a run waits for what is still under way.
const GRACE: Duration = Duration::from_secs(10);

/// What every mode is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Where to connect; loopback only.
    pub(crate) target: SocketAddr,
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    pub(crate) duration: Duration,
}

/// Runs `make(0..jobs)` on `threads` threads and returns what came out, in no particular order.
pub(crate) fn on_threads<T, F, R>(threads: usize, jobs: usize, make: F) -> io::Result<Vec<T>>
where
    T: Send + 'static,
    F: Fn(usize) -> R + Sync,
    R: Future<Output = T> + Send + 'static,
{
    let threads = threads.clamp(1, jobs.max(1));
    let make = &make;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                    runtime.block_on(async {
                        let mine = (thread..jobs).step_by(threads);
                        let tasks: Vec<_> = mine.map(|job| tokio::spawn(make(job))).collect();
                        let mut out = Vec::with_capacity(tasks.len());
                        for task in tasks {
                            out.push(task.await.map_err(io::Error::other)?);
                        }
                        Ok::<_, io::Error>(out)
                    })
                })
            })
            .collect();
        let mut all = Vec::with_capacity(jobs);
        for thread in running {
            let done = thread.join().map_err(|_| io::Error::other("a load thread panicked"))?;
            all.extend(done?);
        }
        Ok(all)
    })
}

async fn connect(target: SocketAddr) -> Result<TcpStream, Failure> {
    TcpStream::connect(target).await.map_err(|e| Failure::of(Phase::Connect, &e))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A request of so many bytes (at least 5) that begins as the upstream wants it.
fn request(first: u8, size: usize, salt: usize) -> Vec<u8> {
    let size = size.max(5);
    let pattern = Pattern::new(salt as u64 * 31);
    let mut out = Vec::with_capacity(size);
    while out.len() < size {
        out.extend_from_slice(pattern.window(out.len() as u64, size - out.len()));
    }
    out[0] = first;
    out
}

/// Even spacing of a paced load: `rate` a second over all connections.
#[derive(Debug, Clone, Copy)]
struct Pace {
    step: Duration,
    next: Instant,
}

impl Pace {
    fn new(start: Instant, rate: f64, connections: usize, index: usize) -> Option<Self> {
        let step = Duration::try_from_secs_f64(connections as f64 / rate).ok()?;
        let share = index as f64 / connections.max(1) as f64;
        (!step.is_zero()).then(|| Self { step, next: start + step.mul_f64(share) })
    }

    async fn wait(&mut self) {
        tokio::time::sleep_until(self.next.into()).await;
        // What was missed is not made up for: a stall must not turn into a burst.
        self.next = (self.next + self.step).max(Instant::now());
    }
}

#[cfg(test)]
mod tests;
