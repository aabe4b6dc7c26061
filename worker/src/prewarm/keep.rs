//! The task that keeps one pool filled, on the main thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_metrics::{Counter, Gauge, Lane, catalog};
use smallvec::SmallVec;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::KEEP;
use super::pool::Pool;
use super::refill::Refill;
use crate::dial::{self, Bulkhead, Connected, DialError, Permit};
use crate::flow::Moment;
use crate::net;
use crate::upstream::Line;

/// How often a pool is looked through when nobody takes from it. Also the longest that an open
/// breaker goes unnoticed, a fifth of the shortest time that one stays open.
const LOOK: Duration = Duration::from_secs(1);

/// A pool and all that filling it needs.
pub(crate) struct Source {
    /// The pool.
    pub(crate) pool: Arc<Pool>,
    /// The lines that take from it: they learn from its dials, and an excluded one empties it.
    pub(crate) lines: Vec<Arc<Line>>,
    /// What to dial.
    pub(crate) addresses: Box<dyn Fn() -> SmallVec<[SocketAddr; 1]>>,
    /// Where dials take their places.
    pub(crate) bulkhead: Arc<Bulkhead>,
    /// How long a dial may take.
    pub(crate) timeout: Duration,
}

/// What is counted of a pool.
struct Series {
    desired: Gauge,
    idle: Gauge,
    warming: Gauge,
    failures: Counter,
}

impl Series {
    fn new(lane: &Lane, address: &str) -> Self {
        let labels = [("target", address)];
        Self {
            desired: lane.gauge(&catalog::PREWARM_DESIRED, &labels),
            idle: lane.gauge(&catalog::PREWARM_IDLE, &labels),
            warming: lane.gauge(&catalog::PREWARM_WARMING, &labels),
            failures: lane.counter(&catalog::PREWARM_FAILURES, &labels),
        }
    }

    fn show(&self, desired: usize, idle: usize, warming: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.desired.set(number(desired));
        self.idle.set(number(idle));
        self.warming.set(number(warming));
    }
}

/// Empties a pool when its task ends.
struct Emptied(Arc<Pool>);

impl Drop for Emptied {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Keeps the pool of `address` filled until dropped. Within a local runtime.
pub(crate) async fn keep_warm(source: Source, address: String, lane: Lane) {
    let series = Series::new(&lane, &address);
    let _emptied = Emptied(Arc::clone(&source.pool));
    let mut refill = Refill::default();
    let mut dials = JoinSet::new();
    let mut look = net::now();
    loop {
        let now = net::now();
        if source.lines.iter().any(|line| line.is_suspect(now)) {
            dials = JoinSet::new();
            refill.reset();
            source.pool.clear();
            series.show(0, 0, 0);
        } else {
            if now >= look {
                source.pool.sweep(now);
                look = now.after(LOOK);
            }
            begin(&source, &mut refill, &mut dials, now);
            series.show(KEEP, source.pool.idle(), refill.warming());
        }
        let rest = match refill.rest(now) {
            Duration::ZERO => LOOK,
            rest => rest.min(LOOK),
        };
        tokio::select! {
            () = source.pool.taken() => {}
            Some(ended) = dials.join_next() => {
                let now = net::now();
                match ended {
                    Ok(Ok(connected)) => {
                        refill.made();
                        arrived(&source, connected, now);
                    }
                    Ok(Err(error)) => {
                        refill.failed(now);
                        series.failures.inc();
                        tracing::debug!(targetAddr = address, %error, "prewarm dial failed");
                    }
                    Err(error) => {
                        refill.failed(now);
                        tracing::error!(targetAddr = address, %error, "prewarm dial");
                    }
                }
            }
            () = tokio::time::sleep(rest) => {}
        }
    }
}

/// Begins what is wanted and there is room for.
fn begin(
    source: &Source,
    refill: &mut Refill,
    dials: &mut JoinSet<Result<Connected, DialError>>,
    now: Moment,
) {
    for _ in 0..refill.wants(source.pool.idle(), now) {
        let addresses = (source.addresses)();
        let permit = source.bulkhead.try_background().filter(|_| !addresses.is_empty());
        let Some(permit) = permit else { return refill.put_off(now) };
        refill.begun();
        dials.spawn_local(connect(addresses, source.timeout, permit));
    }
}

async fn connect(
    addresses: SmallVec<[SocketAddr; 1]>,
    timeout: Duration,
    permit: Permit,
) -> Result<Connected, DialError> {
    let connected = dial::connect(&addresses, Instant::now() + timeout).await;
    drop(permit);
    connected
}

/// A refill is a true measurement of the connect time for every line of the address.
fn arrived(source: &Source, connected: Connected, now: Moment) {
    for line in &source.lines {
        line.sampled(connected.took, now);
    }
    source.pool.put(connected.socket.into_fd(), now);
}
