//! What counting, attaching and scraping cost: `cargo bench -p baton-metrics`.
//!
//! Processor time of the thread, so that a busy machine does not count, and the best of several
//! rounds, because noise only ever adds. The figures to reach: an increment 5 ns, attach and validate 10 000 series 5 ms, scrape them 20 ms.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::os::fd::AsFd as _;
use std::time::Duration;

use baton_metrics::{Counter, Gauge, Histogram, Lane, RECORD_PAYLOAD_WORDS, Region, catalog};
use nix::time::{ClockId, clock_gettime};

const SIZE: u64 = 4 * 1024 * 1024;
const ROUNDS: usize = 15;
const TIMES: u32 = 2_000_000;

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn best(mut work: impl FnMut()) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let start = now();
            work();
            now() - start
        })
        .min()
        .unwrap()
}

fn report(what: &str, took: Duration) {
    println!("{what:<58} {took:>12.2?}");
}

fn each(what: &str, mut work: impl FnMut()) {
    let took = best(|| (0..TIMES).for_each(|_| work()));
    println!("{what:<58} {:>9.2} ns", took.as_secs_f64() * 1e9 / f64::from(TIMES));
}

/// The series of `lines` lines in rules of 128 targets, as a worker registers them.
fn register(lane: &Lane, lines: usize) -> (Vec<Counter>, Vec<Gauge>, Vec<Histogram>) {
    let (mut counters, mut gauges, mut histograms) = (Vec::new(), Vec::new(), Vec::new());
    for line in 0..lines {
        let rule = format!("rule-{}", line / 128);
        let target = format!("10.0.{}.{}:8443", line / 256, line % 256);
        let labels = [("rule", rule.as_str()), ("target", target.as_str())];
        for metric in [
            &catalog::DIAL_ATTEMPTS,
            &catalog::DIAL_SUCCESS,
            &catalog::DIAL_FAILURES,
            &catalog::DIAL_CANCELED,
        ] {
            let counter = lane.counter(metric, &labels);
            counter.add(1_234_567);
            counters.push(counter);
        }
        for metric in [
            &catalog::ROUTE_LATENCY_EWMA,
            &catalog::ROUTE_OBSERVED,
            &catalog::ROUTE_CIRCUIT_OPEN,
            &catalog::ROUTE_CONSECUTIVE_FAILURES,
            &catalog::ACTIVE_HEALTH_UNHEALTHY,
        ] {
            gauges.push(lane.gauge(metric, &labels));
        }
        histograms.push(lane.histogram(&catalog::DIAL_LATENCY_SECONDS, &labels));
    }
    (counters, gauges, histograms)
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let region = Region::create(dir.path(), SIZE).unwrap();
    let lane = region.claim_lane(std::process::id());
    let labels = [("rule", "web"), ("mode", "normal")];
    let counter = lane.counter(&catalog::CONNECTIONS_ACCEPTED, &labels);
    each("increment, uncontended", || counter.inc());
    let shards = lane.shards(2);
    let other = shards[1].counter(&catalog::CONNECTIONS_ACCEPTED, &labels);
    for (what, theirs) in [("one lane", counter.clone()), ("a lane each", other)] {
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    (0..1000).for_each(|_| theirs.inc());
                }
            });
            each(&format!("increment, another thread at it, {what}"), || counter.inc());
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
    let histogram = lane.histogram(&catalog::RELAY_DURATION, &[("rule", "web")]);
    let mut nanos = 1;
    each("observe in a histogram", || {
        nanos = nanos * 7 % 100_000_000_007;
        histogram.observe(Duration::from_nanos(nanos));
    });
    let record = lane.record(1, "web", "10.0.0.1:80");
    each("store a record", || record.store(black_box(&[7; RECORD_PAYLOAD_WORDS])));
    each("load a record", || {
        black_box(record.load());
    });

    let start = now();
    let held = register(&lane, 1000);
    report("register 10 000 series (1 000 lines)", now() - start);
    report("register them again (idempotent)", best(|| drop(register(&lane, 1000))));
    let attach = || {
        let region = Region::attach(region.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(black_box(region.damaged()), 0);
    };
    report("attach and validate 10 000 series", best(attach));
    report("snapshot of 10 000 series", best(|| drop(black_box(region.snapshot().unwrap()))));
    let text = region.encode_text().unwrap();
    println!("the text has {} lines, {} bytes", text.lines().count(), text.len());
    report("scrape of 10 000 series", best(|| drop(black_box(region.encode_text().unwrap()))));
    report("sweep that finds nothing", best(|| assert_eq!(region.sweep(), 0)));

    // How many processes of this size fit into the default region.
    let mut more = Vec::new();
    loop {
        let lane = region.claim_lane(std::process::id());
        let held = register(&lane, 1000);
        if region.encode_text().unwrap().contains("dropped_series_total 0\n") {
            more.push((lane, held));
        } else {
            break;
        }
    }
    println!("lanes of 10 000 series that 4 MiB hold: {}", more.len() + 1);
    drop(held);
}
