//! What must hold for any bytes: shared by the fuzz target, by the property test and by the test
//! that replays the corpus with the stable compiler. Not part of the crate's interface.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::layout::{Identity, Layout, MIN_SIZE};
use crate::owner::{Owner, Role};
use crate::shared::Shared;
use crate::words::Words;
use crate::{Lane, RECORD_PAYLOAD_WORDS, Region, catalog};

/// In the first byte: the rest is a whole file. Otherwise the rest changes a good region.
pub const WHOLE_FILE: u8 = 1;
/// In the first byte: repair the header's checksum after the changes.
pub const REPAIR_HEADER: u8 = 2;
/// In the first byte: repair the descriptors' checksums after the changes.
pub const REPAIR_DESCRIPTORS: u8 = 4;

/// A word's index (two bytes, little endian) and its new value (eight).
const CHANGE: usize = 10;

/// Bytes are refused, or serve as a region: whatever they say, nothing panics, nothing is read
/// or written outside and everything comes to an end.
pub fn region(input: &[u8]) {
    let Some((flags, rest)) = input.split_first() else { return };
    if flags & WHOLE_FILE != 0 {
        exercise(rest);
    } else {
        exercise(&changed(*flags, rest));
    }
}

/// The good region with the changes that `changes` lists.
fn changed(flags: u8, changes: &[u8]) -> Vec<u8> {
    let words = heap(&SAMPLE);
    let all = words.all();
    for change in changes.chunks_exact(CHANGE) {
        if let Some((index, value)) = change.split_first_chunk::<2>()
            && let Ok(value) = value.try_into()
        {
            let index = usize::from(u16::from_le_bytes(*index)) % all.len();
            words.store(index, u64::from_le_bytes(value), crate::sync::Ordering::Relaxed);
        }
    }
    if flags & REPAIR_HEADER != 0 {
        Layout::repair(&words);
    }
    if flags & REPAIR_DESCRIPTORS != 0
        && let Ok(layout) = Layout::plan(MIN_SIZE)
    {
        let shared = Shared { words, layout };
        (0..layout.descriptors.len()).for_each(|index| shared.repair(index));
        return bytes(&shared.words);
    }
    bytes(&words)
}

/// Does everything with a region that a supervisor and a worker do.
fn exercise(file: &[u8]) {
    let Some(fd) = memory_file(file) else { return };
    let Ok(region) = Region::attach(fd) else { return };
    check_text(&region);
    let lane = region.claim_lane(std::process::id());
    let held = use_lane(&lane);
    check_text(&region);
    drop(held);
    region.fold_all_dead();
    region.sweep();
    check_text(&region);
}

fn check_text(region: &Region) {
    if let Ok(text) = region.encode_text() {
        assert!(
            text.lines().all(|line| line.starts_with("# ")
                || line.starts_with(char::is_alphabetic)
                || line.starts_with('_')),
            "{text}"
        );
    }
}

/// Counts in series of every kind and gives back what holds them.
fn use_lane(lane: &Lane) -> impl Sized + use<> {
    let line = [("rule", "web"), ("target", "10.0.0.1:80")];
    let attempts = lane.counter(&catalog::DIAL_ATTEMPTS, &line);
    attempts.inc();
    let failures = lane.counter(&catalog::DIAL_FAILURES, &[("rule", "new"), ("target", "b")]);
    failures.inc();
    let open = lane.gauge(&catalog::ROUTE_CIRCUIT_OPEN, &line);
    open.set(1);
    let latency = lane.histogram(&catalog::DIAL_LATENCY_SECONDS, &line);
    latency.observe(Duration::from_millis(3));
    let record = lane.record(1, "web", "10.0.0.1:80");
    let before = record.load();
    record.store(&before.unwrap_or([1; RECORD_PAYLOAD_WORDS]));
    (attempts, failures, open, latency, record)
}

/// A good region: a lane that is dead and one that was folded, series of every kind, a record.
static SAMPLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let words = Words::heap(usize::try_from(MIN_SIZE / 8).unwrap_or(0));
    let Ok(layout) = Layout::plan(MIN_SIZE) else { return Vec::new() };
    let identity = Identity { uuid: [1, 2], boot: [3, 4], created_unix_ms: 5 };
    layout.write(&words, &identity);
    let shared = Arc::new(Shared { words, layout });
    // Held until the bytes are taken, as by a process that was killed.
    let mut held = Vec::new();
    for start in [1, 2] {
        // Above the largest process number: always dead.
        let owner = Owner::new(0xFF_FFFF, Role::Worker, start);
        held.push(use_lane(&Lane::claim(Arc::clone(&shared), owner)));
        if start == 1 {
            shared.fold(0);
        }
    }
    bytes(&shared.words)
});

/// The good region's bytes, to seed a corpus or to cut up.
#[must_use]
pub fn sample() -> Vec<u8> {
    SAMPLE.clone()
}

fn heap(bytes: &[u8]) -> Words {
    let words = Words::heap(bytes.len() / 8);
    for (word, chunk) in words.all().iter().zip(bytes.chunks_exact(8)) {
        let value = chunk.try_into().map_or(0, u64::from_le_bytes);
        word.store(value, crate::sync::Ordering::Relaxed);
    }
    words
}

fn bytes(words: &Words) -> Vec<u8> {
    words
        .all()
        .iter()
        .flat_map(|word| word.load(crate::sync::Ordering::Relaxed).to_le_bytes())
        .collect()
}

fn memory_file(bytes: &[u8]) -> Option<OwnedFd> {
    let fd = memfd_create("baton-fuzz", MFdFlags::MFD_CLOEXEC).ok()?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).ok()?;
    Some(file.into())
}

#[cfg(test)]
mod tests;
