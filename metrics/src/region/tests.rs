#![allow(clippy::unwrap_used)]
use std::os::unix::fs::PermissionsExt as _;

use super::file::TEMPORARY_NAME;
use super::*;
use crate::catalog;
use crate::layout::MIN_SIZE;
use crate::snapshot::Value;

const PID: u32 = u32::MAX >> 8; // above the kernel's limit: never a process

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn lane(region: &Region, pid: u32) -> Lane {
    let owner = Owner::new(pid, Role::Worker, 1);
    Lane::claim(Arc::clone(&region.inner.shared), owner)
}

fn dead_lane(region: &Region) -> Lane {
    lane(region, PID)
}

fn counter(region: &Region, name: &str) -> Option<u64> {
    let snapshot = region.snapshot().unwrap();
    let family = snapshot.families.iter().find(|family| family.name == name)?;
    let total = family.samples.iter().map(|sample| match sample.value {
        Value::Counter(total) => total,
        Value::Gauge(_) | Value::Histogram { .. } => 0,
    });
    Some(total.sum())
}

const ACCEPTED: &str = "baton_connections_accepted_total";
const LABELS: &[(&str, &str)] = &[("rule", "web"), ("mode", "boost")];

#[test]
fn the_file_is_private_complete_and_of_the_size_asked_for() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let metadata = fs::metadata(dir.path().join(FILE_NAME)).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), MIN_SIZE);
    assert_eq!(region.size(), MIN_SIZE);
    assert!(!dir.path().join(TEMPORARY_NAME).exists());
}

#[test]
fn a_worker_counts_through_the_descriptor_and_everyone_sees_it() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let worker = Region::attach(region.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let lane = worker.claim_lane(std::process::id());
    let accepted = lane.counter(&catalog::CONNECTIONS_ACCEPTED, LABELS);
    let again = lane.counter(&catalog::CONNECTIONS_ACCEPTED, &[LABELS[1], LABELS[0]]);
    accepted.inc();
    again.add(2);
    assert_eq!(accepted.get(), 3);
    let latency = lane
        .histogram(&catalog::DIAL_LATENCY_SECONDS, &[("rule", "web"), ("target", "10.0.0.1:80")]);
    latency.observe(std::time::Duration::from_millis(3));
    latency.observe(std::time::Duration::from_secs(60));
    lane.gauge(&catalog::CONNECTIONS_ACTIVE, LABELS).set(-1);
    let active = lane.gauge(&catalog::CONNECTIONS_ACTIVE, LABELS);
    active.set(4);
    active.dec();

    let text = region.encode_text().unwrap();
    insta::assert_snapshot!(text);
    assert_eq!(text, Reader::open(dir.path()).unwrap().encode_text().unwrap());
}

#[test]
fn counts_of_a_dead_process_stay_and_its_gauges_go() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let dead = dead_lane(&region);
    dead.counter(&catalog::CONNECTIONS_ACCEPTED, LABELS).add(5);
    let active = dead.gauge(&catalog::CONNECTIONS_ACTIVE, LABELS);
    active.set(2);
    let live = region.claim_lane(std::process::id());
    let accepted = live.counter(&catalog::CONNECTIONS_ACCEPTED, LABELS);
    accepted.add(7);
    let text = region.encode_text().unwrap();
    assert!(text.contains("baton_connections_active{rule=\"web\",mode=\"boost\"} 2\n"), "{text}");
    assert_eq!(counter(&region, ACCEPTED), Some(12));

    assert_eq!(region.fold_dead(PID), 1);
    assert_eq!(region.fold_dead(std::process::id()), 0, "a live process is left alone");
    assert_eq!(counter(&region, ACCEPTED), Some(12));
    assert!(!region.encode_text().unwrap().contains("baton_connections_active"));
    accepted.inc();
    assert_eq!(counter(&region, ACCEPTED), Some(13));
}

#[test]
fn a_region_of_this_boot_is_kept_and_its_dead_are_folded() {
    let dir = dir();
    let first = Region::open_or_create(dir.path(), MIN_SIZE).unwrap();
    assert!(!first.kept && first.set_aside.is_none());
    dead_lane(&first.region).counter(&catalog::CONNECTIONS_ACCEPTED, LABELS).add(5);
    let id = first.region.id();
    drop(first);
    let second = Region::open_or_create(dir.path(), MIN_SIZE).unwrap();
    assert!(second.kept && second.set_aside.is_none());
    assert_eq!(second.region.id(), id);
    assert_eq!(second.region.inner.shared.held_lanes().count(), 0);
    assert_eq!(counter(&second.region, ACCEPTED), Some(5));
}

#[test]
fn another_size_takes_counters_and_learned_state_along() {
    let dir = dir();
    let first = Region::create(dir.path(), MIN_SIZE).unwrap();
    let before = dead_lane(&first);
    before.counter(&catalog::CONNECTIONS_ACCEPTED, LABELS).add(5);
    before
        .histogram(&catalog::RELAY_DURATION, &[("rule", "web")])
        .observe(std::time::Duration::from_secs(2));
    before.record(1, "web", "a").store(&[6; crate::RECORD_PAYLOAD_WORDS]);
    drop(before);
    first.fold_all_dead();
    let text = first.encode_text().unwrap();
    let larger = Region::open_or_create(dir.path(), 4 * MIN_SIZE).unwrap();
    assert!(larger.kept);
    assert_eq!(larger.region.size(), 4 * MIN_SIZE);
    assert_eq!(larger.region.encode_text().unwrap(), text);
    let lane = larger.region.claim_lane(std::process::id());
    assert_eq!(lane.record(1, "web", "a").load(), Some([6; crate::RECORD_PAYLOAD_WORDS]));
    lane.counter(&catalog::CONNECTIONS_ACCEPTED, LABELS).inc();
    assert_eq!(counter(&larger.region, ACCEPTED), Some(6));
    // Somebody counts here: the size stays.
    let again = Region::open_or_create(dir.path(), MIN_SIZE).unwrap();
    assert_eq!(again.region.size(), 4 * MIN_SIZE);
}

#[test]
fn the_number_of_another_namespace_says_nothing_about_its_process() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    drop(dead_lane(&region));
    let shared = &region.inner.shared;
    let entry = shared.layout.lanes.at(0).unwrap();
    shared.words.store(entry + crate::layout::LANE_NAMESPACE, 1, crate::sync::Ordering::Relaxed);
    assert_eq!(region.fold_dead(PID), 0);
    assert_eq!(region.fold_all_dead(), 0);
    // Whoever holds the directory's lock knows that its instance is gone.
    let opened = Region::open_or_create(dir.path(), MIN_SIZE).unwrap();
    assert_eq!(opened.region.inner.shared.held_lanes().count(), 0);
}

#[test]
fn an_unusable_file_is_set_aside_with_the_reason() {
    type Spoil = fn(&Path);
    let cases: [(Spoil, &str); 4] = [
        (|path| fs::write(path, b"hello").unwrap(), "a region of 5 bytes"),
        (|path| fs::write(path, vec![0; 65536]).unwrap(), "wrong magic number"),
        (
            |path| {
                let mut bytes = fs::read(path).unwrap();
                bytes[40] ^= 1;
                fs::write(path, bytes).unwrap();
            },
            "wrong checksum",
        ),
        (
            |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            },
            "Is a directory",
        ),
    ];
    for (spoil, reason) in cases {
        let dir = dir();
        Region::create(dir.path(), MIN_SIZE).unwrap();
        spoil(&dir.path().join(FILE_NAME));
        let opened = Region::open_or_create(dir.path(), MIN_SIZE).unwrap();
        let aside = opened.set_aside.unwrap();
        assert!(!opened.kept);
        assert!(aside.reason.to_string().contains(reason), "{}", aside.reason);
        assert!(aside.path.exists());
        assert!(Region::open_or_create(dir.path(), MIN_SIZE).unwrap().kept);
    }
}

#[test]
fn a_region_of_an_earlier_boot_is_set_aside() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let shared = &region.inner.shared;
    let identity = Identity { boot: [1, 2], ..region.inner.identity };
    shared.layout.write(&shared.words, &identity);
    let opened = Region::open_or_create(dir.path(), MIN_SIZE).unwrap();
    assert!(matches!(opened.set_aside.unwrap().reason, RegionError::Boot));
}

#[test]
fn sizes_outside_the_limits_are_refused() {
    let dir = dir();
    for size in [0, 4096, MIN_SIZE + 1, crate::layout::MAX_SIZE + 4096] {
        assert!(Region::create(dir.path(), size).is_err(), "{size}");
    }
}

#[test]
fn what_finds_no_room_counts_locally_and_is_itself_counted() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let lane = region.claim_lane(std::process::id());
    let counters: Vec<_> = (0..300)
        .map(|i| {
            let rule = format!("rule-{i}");
            let counter = lane.counter(
                &catalog::CONNECTIONS_ACCEPTED,
                &[("rule", rule.as_str()), ("mode", "normal")],
            );
            counter.inc();
            counter
        })
        .collect();
    assert!(counters.iter().all(|counter| counter.get() == 1));
    let exported = counter(&region, ACCEPTED).unwrap();
    let dropped = counter(&region, "baton_metrics_dropped_series_total").unwrap();
    assert_eq!(exported, 255, "256 descriptors, one of them the family's");
    assert_eq!(exported + dropped, 300);
}

#[test]
fn a_lane_too_many_is_detached_and_still_counts() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let lanes: Vec<_> = (0..crate::layout::MAX_LANES).map(|i| lane(&region, i + 1)).collect();
    assert!(lanes.iter().all(|lane| !lane.is_detached()));
    let extra = region.claim_lane(std::process::id());
    assert!(extra.is_detached());
    let tasks = extra.gauge(&catalog::TASKS, &[]);
    tasks.inc();
    assert_eq!(tasks.get(), 1);
    assert_eq!(counter(&region, "baton_metrics_dropped_series_total"), Some(1));
}

#[test]
fn the_threads_of_a_process_add_up_and_share_what_has_no_parts() {
    let dir = dir();
    let region = Region::create(dir.path(), 4 * MIN_SIZE).unwrap();
    let shards = region.claim_lane(std::process::id()).shards(20);
    assert_eq!(shards.len(), 20);
    assert_eq!(region.inner.shared.held_lanes().count(), 8, "the rest share");
    for (i, shard) in shards.iter().enumerate() {
        shard.counter(&catalog::CONNECTIONS_ACCEPTED, LABELS).inc();
        // Begun on one thread, ended on the next.
        shard.gauge(&catalog::CONNECTIONS_ACTIVE, LABELS).inc();
        shard.gauge(&catalog::ROUTING_GENERATION, &[]).set(i64::try_from(i).unwrap());
    }
    let generation = shards[3].gauge(&catalog::ROUTING_GENERATION, &[]);
    generation.set(5);
    let active: Vec<_> =
        shards.iter().map(|shard| shard.gauge(&catalog::CONNECTIONS_ACTIVE, LABELS)).collect();
    active[0].add(30);
    active[1].add(-10);
    let text = region.encode_text().unwrap();
    assert!(text.contains("baton_connections_accepted_total{rule=\"web\",mode=\"boost\"} 20\n"));
    assert!(text.contains("baton_connections_active{rule=\"web\",mode=\"boost\"} 20\n"), "{text}");
    assert!(text.contains("baton_routing_generation 5\n"));
    shards[0].record(1, "web", "a").store(&[3; crate::RECORD_PAYLOAD_WORDS]);
    assert_eq!(shards[7].record(1, "web", "a").load(), Some([3; crate::RECORD_PAYLOAD_WORDS]));
}

#[test]
fn threads_leave_half_of_the_room_to_the_next_process() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let shards = region.claim_lane(std::process::id()).shards(8);
    let labels: Vec<String> = (0..200).map(|i| format!("rule-{i}")).collect();
    let mut held = Vec::new();
    for shard in &shards {
        for rule in &labels {
            let labels = [("rule", rule.as_str()), ("mode", "normal")];
            let counter = shard.counter(&catalog::CONNECTIONS_ACCEPTED, &labels);
            counter.inc();
            held.push(counter);
        }
    }
    assert_eq!(counter(&region, ACCEPTED), Some(1600));
    let next = region.claim_lane(std::process::id());
    for rule in &labels {
        let labels = [("rule", rule.as_str()), ("mode", "normal")];
        next.counter(&catalog::CONNECTIONS_ACCEPTED, &labels).inc();
    }
    assert_eq!(counter(&region, ACCEPTED), Some(1800));
    assert_eq!(counter(&region, "baton_metrics_dropped_series_total"), Some(0));
}

#[test]
fn a_supervisor_that_replaced_itself_goes_on_in_its_lane() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let pid = std::process::id();
    region.claim_supervisor_lane(pid).counter(&catalog::WORKER_RESTARTS, &[]).inc();
    let after = region.claim_supervisor_lane(pid).counter(&catalog::WORKER_RESTARTS, &[]);
    after.inc();
    assert_eq!(after.get(), 2);
    assert_eq!(region.inner.shared.held_lanes().count(), 1);
}

#[test]
fn the_series_of_a_rule_go_when_its_last_holder_lets_go() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let lane = region.claim_lane(std::process::id());
    let kept = lane.counter(&catalog::CONNECTIONS_ACCEPTED, LABELS);
    // Registered late and dropped at once: goes only with its rule.
    lane.counter(
        &catalog::CONNECTIONS_REJECTED,
        &[("rule", "web"), ("mode", "boost"), ("reason", "access_policy")],
    )
    .inc();
    let old = [("rule", "old"), ("mode", "normal")];
    let gone = lane.counter(&catalog::CONNECTIONS_ACCEPTED, &old);
    gone.add(3);
    kept.inc();
    assert!(region.encode_text().unwrap().contains("old"));
    drop(gone);
    let text = region.encode_text().unwrap();
    assert!(!text.contains("old") && text.contains("access_policy"), "{text}");
    // The rule comes back before anyone has swept: it counts on.
    drop(lane.counter(&catalog::CONNECTIONS_ACCEPTED, &old));
    assert_eq!(region.sweep(), 1);
    let again = lane.counter(&catalog::CONNECTIONS_ACCEPTED, &old);
    again.inc();
    assert_eq!(counter(&region, ACCEPTED), Some(2));
}

#[test]
fn a_crash_hides_nothing_until_a_sweep_finds_the_rule_gone() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let retiring = region.claim_lane(std::process::id());
    let _held = retiring.counter(&catalog::CONNECTIONS_ACCEPTED, LABELS);
    let crashed = dead_lane(&region);
    let rule = [("rule", "api"), ("mode", "normal")];
    crashed.counter(&catalog::CONNECTIONS_ACCEPTED, &rule).add(9);
    let _at_death = crashed.counter(&catalog::CONNECTIONS_ACCEPTED, &rule);
    region.fold_all_dead();
    assert!(region.encode_text().unwrap().contains("api"));
    let replacement = region.claim_lane(std::process::id());
    let held = replacement.counter(&catalog::CONNECTIONS_ACCEPTED, &rule);
    assert_eq!(region.sweep(), 0);
    assert_eq!(counter(&region, ACCEPTED), Some(9));
    drop(held);
    assert_eq!(region.sweep(), 1);
    assert_eq!(counter(&region, ACCEPTED), Some(0));
}

#[test]
fn rules_that_come_and_go_do_not_fill_the_region() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let lane = region.claim_lane(std::process::id());
    for round in 0..200 {
        let held: Vec<_> = (0..40)
            .map(|i| {
                let target = format!("10.{round}.0.{i}:8080");
                let labels = [("rule", "web"), ("target", target.as_str())];
                let attempts = lane.counter(&catalog::DIAL_ATTEMPTS, &labels);
                attempts.inc();
                (attempts, lane.gauge(&catalog::ROUTE_CIRCUIT_OPEN, &labels))
            })
            .collect();
        assert_eq!(counter(&region, "baton_dial_attempts_total"), Some(40), "round {round}");
        drop(held);
        assert_eq!(region.sweep(), 80, "round {round}");
    }
    assert_eq!(counter(&region, "baton_metrics_dropped_series_total"), Some(0));
}

#[test]
fn what_a_line_has_learned_outlives_its_process() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let crashed = dead_lane(&region);
    let record = crashed.record(1, "web", "10.0.0.1:80");
    assert_eq!(record.load(), None);
    let learned = std::array::from_fn(|i| i as u64 * 3 + 1);
    record.store(&[7; crate::RECORD_PAYLOAD_WORDS]);
    record.store(&learned);
    drop(record);
    region.fold_all_dead();
    let next = region.claim_lane(std::process::id());
    assert_eq!(next.record(1, "web", "10.0.0.1:80").load(), Some(learned));
    assert_eq!(next.record(2, "web", "10.0.0.1:80").load(), None, "another meaning");
    assert_eq!(next.record(1, "web", "10.0.0.2:80").load(), None, "another line");
}

#[test]
fn a_writer_that_died_in_the_middle_does_not_stop_the_next() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let lane = region.claim_lane(std::process::id());
    let record = lane.record(1, "web", "a");
    record.store(&[1; crate::RECORD_PAYLOAD_WORDS]);
    let shared = &region.inner.shared;
    let first = shared.layout.records.at(0).unwrap();
    shared.words.fetch_add(first, 1);
    assert_eq!(record.load(), None);
    record.store(&[2; crate::RECORD_PAYLOAD_WORDS]);
    assert_eq!(record.load(), Some([2; crate::RECORD_PAYLOAD_WORDS]));
}

#[test]
fn a_newest_gauge_is_that_of_the_youngest_process() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    let old = region.claim_lane(std::process::id()).gauge(&catalog::ROUTING_GENERATION, &[]);
    let new = region.claim_lane(std::process::id()).gauge(&catalog::ROUTING_GENERATION, &[]);
    old.set(9);
    new.set(4);
    assert!(region.encode_text().unwrap().contains("baton_routing_generation 4\n"));
    drop(new);
    assert!(region.encode_text().unwrap().contains("baton_routing_generation 9\n"));
}

#[test]
fn the_collector_serves_the_region_in_a_registry() {
    let dir = dir();
    let region = Region::create(dir.path(), MIN_SIZE).unwrap();
    region.claim_lane(std::process::id()).counter(&catalog::WORKER_RESTARTS, &[]).inc();
    let registry = prometheus::Registry::new();
    let collector = crate::RegionCollector::new(region).unwrap();
    registry.register(Box::new(collector)).unwrap();
    let families = registry.gather();
    assert!(families.iter().any(|family| family.name() == "baton_worker_restarts_total"));
}
