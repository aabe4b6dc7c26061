//! Processes that count in one region and are killed at random, among them the one that folds:
//! in the end every increment is there once.
//!
//! Each worker keeps a log of its own in a file: one number raised before an increment, another
//! after it. A SIGKILL can hit between the three, so what is known of a killed worker is that it
//! has counted at least *after* and at most *before*, which differ by one at the very most. The
//! total over all workers must lie in that range, exactly.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use baton_metrics::{Reader, Region, Snapshot, Value, catalog};

const ROLE: &str = "BATON_CHAOS_ROLE";
const DIR: &str = "BATON_CHAOS_DIR";
const LOG: &str = "BATON_CHAOS_LOG";
const SLOT: &str = "BATON_CHAOS_SLOT";
const SIZE: u64 = 256 * 1024;
const SLOTS: usize = 4;
/// Deaths of workers; about one in four comes with an upgrade, one in four with a folder's.
const DEATHS: usize = 40;
/// A phase that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Not a test by itself: the other processes of the one below.
#[test]
fn child() {
    match std::env::var(ROLE).as_deref() {
        Ok("worker") => worker(),
        Ok("folder") => folder(),
        Ok(_) | Err(_) => {}
    }
}

/// Counts until it is killed.
fn worker() {
    let fd = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let region = Region::attach(fd).unwrap();
    let log = File::options().write(true).open(std::env::var(LOG).unwrap()).unwrap();
    let slot = std::env::var(SLOT).unwrap();
    let lane = region.claim_lane(std::process::id());
    let labels = [("rule", slot.as_str()), ("mode", "normal")];
    let accepted = lane.counter(&catalog::CONNECTIONS_ACCEPTED, &labels);
    let active = lane.gauge(&catalog::CONNECTIONS_ACTIVE, &labels);
    let duration = lane.histogram(&catalog::RELAY_DURATION, &[("rule", slot.as_str())]);
    for count in 1u64.. {
        log.write_all_at(&count.to_le_bytes(), 0).unwrap();
        accepted.inc();
        active.set(1);
        log.write_all_at(&count.to_le_bytes(), 8).unwrap();
        duration.observe(Duration::from_millis(count % 1000));
    }
}

/// Does what a supervisor does when it starts, over and over, until it is killed.
fn folder() {
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let log = File::options().write(true).open(std::env::var(LOG).unwrap()).unwrap();
    for count in 1u64.. {
        let opened = Region::open_or_create(&dir, SIZE).unwrap();
        assert!(opened.kept);
        log.write_all_at(&count.to_le_bytes(), 8).unwrap();
    }
}

/// A process of ours; killed when dropped, also by a failing test.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(role: &str, slot: usize, number: usize, dir: &Path, region: &Region) -> Self {
        let log = dir.join(format!("log-{role}-{slot}-{number}"));
        fs::write(&log, [0; 16]).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(ROLE, role)
            .env(DIR, dir)
            .env(LOG, &log)
            .env(SLOT, format!("slot-{slot}"))
            .stdin(Stdio::from(region.as_fd().try_clone_to_owned().unwrap()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Increments begun and ended so far.
    fn logged(&self) -> (u64, u64) {
        let bytes = fs::read(&self.log).unwrap();
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        (number(0), number(8))
    }

    /// Waits until it has done `more` than now.
    fn wait_for(&mut self, more: u64) {
        let (from, started) = (self.logged().1, Instant::now());
        while self.logged().1 < from + more {
            assert!(self.child.try_wait().unwrap().is_none(), "{:?} ended by itself", self.log);
            assert!(started.elapsed() < PATIENCE, "{:?} does nothing", self.log);
            std::thread::yield_now();
        }
    }

    /// What it had begun and ended when it died.
    fn kill(&mut self) -> (u64, u64) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.logged()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has been waited for already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn total(snapshot: &Snapshot, name: &str, slot: usize) -> u64 {
    let slot = format!("slot-{slot}");
    let family = snapshot.families.iter().find(|family| family.name == name);
    family.map_or(0, |family| {
        let of_slot = |labels: &[(String, String)]| labels.iter().any(|(_, value)| *value == slot);
        let samples = family.samples.iter().filter(|sample| of_slot(&sample.labels));
        samples
            .map(|sample| match &sample.value {
                Value::Counter(total) => *total,
                Value::Histogram { counts, .. } => counts.iter().sum(),
                Value::Gauge(_) => 0,
            })
            .sum()
    })
}

const ACCEPTED: &str = "baton_connections_accepted_total";
const DURATION: &str = "baton_relay_duration_seconds";

#[test]
fn no_increment_is_lost_or_doubled_whoever_is_killed() {
    // Another choice of victims each time; printed so that a failure can be told apart.
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = seed;
    let mut pick = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };

    let dir = tempfile::tempdir().unwrap();
    let region = Region::create(dir.path(), SIZE).unwrap();
    let mut number = 0;
    let mut start = |role: &str, slot: usize| {
        number += 1;
        Process::start(role, slot, number, dir.path(), &region)
    };
    let mut begun = [0; SLOTS];
    let mut ended = [0; SLOTS];
    let mut seen = [0; SLOTS];
    let mut workers: Vec<Process> = (0..SLOTS).map(|slot| start("worker", slot)).collect();
    let mut folder = start("folder", 0);

    for _ in 0..DEATHS {
        let slot = usize::try_from(pick(SLOTS as u64)).unwrap();
        // Killed while starting, while counting, or after an overlap with its successor.
        let upgrade = pick(4) == 0;
        if pick(3) > 0 {
            workers[slot].wait_for(pick(200));
        }
        let mut successor = upgrade.then(|| start("worker", slot));
        if let Some(successor) = &mut successor {
            successor.wait_for(1);
        }
        let (begun_by, ended_by) = workers[slot].kill();
        assert!(begun_by - ended_by <= 1);
        begun[slot] += begun_by;
        ended[slot] += ended_by;
        workers[slot] = successor.unwrap_or_else(|| start("worker", slot));
        if pick(4) == 0 {
            if pick(2) == 0 {
                folder.wait_for(pick(3));
            }
            folder.kill();
            folder = start("folder", 0);
        }
        // A fresh reader has no memory of what was exported: this is the region itself.
        let snapshot = Reader::open(dir.path()).unwrap().snapshot().unwrap();
        assert_eq!(snapshot.damaged, 0);
        for (slot, seen) in seen.iter_mut().enumerate() {
            let now = total(&snapshot, ACCEPTED, slot);
            assert!(now >= *seen, "slot {slot} went from {seen} to {now}");
            assert!(now >= ended[slot], "slot {slot}: {now} of at least {}", ended[slot]);
            *seen = now;
        }
    }
    folder.kill();
    for (slot, worker) in workers.iter_mut().enumerate() {
        let (begun_by, ended_by) = worker.kill();
        begun[slot] += begun_by;
        ended[slot] += ended_by;
    }

    let before = region.snapshot().unwrap();
    let after = Region::open_or_create(dir.path(), SIZE).unwrap().region.snapshot().unwrap();
    for slot in 0..SLOTS {
        let count = total(&after, ACCEPTED, slot);
        assert_eq!(count, total(&before, ACCEPTED, slot));
        assert!(
            (ended[slot]..=begun[slot]).contains(&count),
            "slot {slot}: {count}, but {}..={} were counted",
            ended[slot],
            begun[slot]
        );
        let observed = total(&after, DURATION, slot);
        assert!(observed <= count && count - observed <= DEATHS as u64 + SLOTS as u64);
    }
    let gauges = after.families.iter().filter(|family| family.name.ends_with("active")).count();
    assert_eq!(gauges, 0, "gauges die with their processes");
}
