//! What is written is what is read, and nothing that is read can do harm.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use super::layout::{HEADER_SIZE, RECORD_SIZE};
use super::*;

fn identity(seed: u8) -> Identity {
    let seed64 = u64::from(seed);
    Identity {
        client: Endpoint { number: 100 + i32::from(seed), cookie: 7_000 + seed64 },
        upstream: Endpoint { number: 500 + i32::from(seed), cookie: 9_000 + seed64 },
        rule: RuleKey::of("127.0.0.1:80"),
        target: TargetKey::of("10.0.0.1:8080"),
        target_index: 127,
        generation: 3 + seed64,
        opened_at: 123_456_789,
        peer: format!("192.0.2.{seed}:40000").parse().unwrap(),
        idle: Some(Duration::from_millis(300_000)),
        adoptions: 1,
        adopted_at: 55,
    }
}

fn idle_track() -> Track {
    Track { busy: Busy::No, splices: false, eof_seen: false, fin_sent: false, pipe: None, total: 0 }
}

fn table(lanes: usize, each: u32) -> (Table, Vec<Rc<Lane>>) {
    let (table, lanes) = Table::create(lanes, each).unwrap();
    (table, lanes.into_iter().map(Rc::new).collect())
}

fn copy(table: &Table) -> OwnedFd {
    table.as_fd().try_clone_to_owned().unwrap()
}

fn entries(table: &Table) -> Vec<Entry> {
    Remains::open(copy(table)).unwrap().entries().unwrap()
}

#[test]
fn a_new_table_has_no_records_and_takes_no_memory() {
    let (table, _lanes) = table(4, MAX_RECORDS / 4);
    assert_eq!(entries(&table), []);
    let blocks = File::from(copy(&table)).metadata().unwrap().blocks();
    assert!(blocks * 512 <= 4096, "{blocks} blocks for the header");
}

#[test]
fn every_value_reads_back() {
    let (table, lanes) = table(2, 10);
    let mut six = identity(9);
    six.peer = "[2001:db8::9]:65535".parse().unwrap();
    six.idle = None;
    let first = lanes[0].open(&identity(1), State::Open).unwrap();
    let second = lanes[1].open(&six, State::Offered).unwrap();
    first.busy(Way::ToClient, Busy::Memory);
    first.busy(Way::ToUpstream, Busy::Kernel);
    first.pipe(Way::ToClient, Some(PipeNumbers { read: 0, write: 31 }));
    first.splices(Way::ToClient, true);
    first.eof_seen(Way::ToUpstream);
    first.fin_sent(Way::ToUpstream);
    first.total(Way::ToUpstream, u64::MAX);
    let found = entries(&table);
    assert_eq!(found[0].slot, first.index());
    assert_eq!(found[1].slot, second.index());
    let expected = Record {
        state: State::Open,
        identity: identity(1),
        to_upstream: Track {
            busy: Busy::Kernel,
            eof_seen: true,
            fin_sent: true,
            total: u64::MAX,
            ..idle_track()
        },
        to_client: Track {
            busy: Busy::Memory,
            splices: true,
            pipe: Some(PipeNumbers { read: 0, write: 31 }),
            ..idle_track()
        },
        attempts: 0,
        attempted_at_ms: 0,
    };
    assert_eq!(found[0].found, Ok(expected));
    let other = found[1].found.unwrap();
    assert_eq!((other.state, other.identity), (State::Offered, six));
    for state in [State::Finishing, State::Doomed, State::Offered, State::Leaving, State::Open] {
        first.set_state(state);
        assert_eq!(entries(&table)[0].found.unwrap().state, state);
    }
}

#[test]
fn a_freed_record_is_used_again_and_starts_clean() {
    let (table, lanes) = table(1, 2);
    let first = lanes[0].open(&identity(1), State::Open).unwrap();
    let index = first.index();
    first.busy(Way::ToClient, Busy::Memory);
    first.eof_seen(Way::ToClient);
    first.pipe(Way::ToUpstream, Some(PipeNumbers { read: 3, write: 4 }));
    drop(first);
    assert_eq!((entries(&table).len(), lanes[0].in_use()), (0, 0));
    let again = lanes[0].open(&identity(2), State::Open).unwrap();
    assert_eq!(again.index(), index);
    let record = entries(&table)[0].found.unwrap();
    assert_eq!((record.to_upstream, record.to_client), (idle_track(), idle_track()));
}

#[test]
fn a_full_range_takes_no_more_and_leaves_the_neighbours_alone() {
    let (table, lanes) = table(2, 3);
    let slots: Vec<_> =
        std::iter::from_fn(|| lanes[0].open(&identity(1), State::Open)).take(10).collect();
    assert_eq!(slots.len(), 3);
    let neighbour = lanes[1].open(&identity(2), State::Open).unwrap();
    assert_eq!(neighbour.index(), 3);
    assert_eq!(entries(&table).len(), 4);
}

#[test]
fn records_far_apart_are_found() {
    let (table, lanes) = table(3, 100_000);
    let _slots: Vec<_> =
        lanes.iter().map(|lane| lane.open(&identity(1), State::Open).unwrap()).collect();
    let found: Vec<_> = entries(&table).iter().map(|entry| entry.slot).collect();
    assert_eq!(found, [0, 100_000, 200_000]);
}

#[test]
fn threads_write_their_own_records_at_once() {
    let (table, lanes) = Table::create(4, 200).unwrap();
    std::thread::scope(|scope| {
        for (seed, lane) in (0u8..).zip(lanes) {
            scope.spawn(move || {
                let lane = Rc::new(lane);
                let mut kept = Vec::new();
                for round in 0..2000u64 {
                    let slot = lane.open(&identity(seed), State::Open).unwrap();
                    slot.total(Way::ToClient, round);
                    if round % 20 == 0 {
                        kept.push(slot);
                    }
                }
                // Leaves its records in use, like a thread that is killed.
                let _in_use = std::mem::ManuallyDrop::new(kept);
            });
        }
    });
    let found = entries(&table);
    assert_eq!(found.len(), 400);
    for entry in found {
        let seed = u8::try_from(entry.slot / 200).unwrap();
        assert_eq!(entry.found.unwrap().identity, identity(seed));
    }
}

#[test]
fn a_table_of_the_largest_size_and_none_beyond() {
    assert!(Table::create(1, MAX_RECORDS).is_ok());
    assert!(Table::create(2, MAX_RECORDS).is_err());
    assert!(Table::create(0, 10).is_err());
    assert!(Table::create(1, 0).is_err());
}

#[test]
fn attempts_are_counted_and_a_release_frees() {
    let (table, lanes) = table(1, 5);
    let _slots: Vec<_> =
        (0..3).map(|seed| lanes[0].open(&identity(seed), State::Open).unwrap()).collect();
    let remains = Remains::open(copy(&table)).unwrap();
    remains.note_attempt(1, 2, 123_456).unwrap();
    remains.release(0).unwrap();
    let found = remains.entries().unwrap();
    assert_eq!(found.iter().map(|entry| entry.slot).collect::<Vec<_>>(), [1, 2]);
    let record = found[0].found.unwrap();
    assert_eq!((record.attempts, record.attempted_at_ms), (2, 123_456));
    assert!(matches!(remains.release(5), Err(TableError::Unknown)));
}

#[test]
fn neither_side_can_change_the_files_size() {
    let (table, _lanes) = table(1, 5);
    let file = File::from(copy(&table));
    assert!(file.set_len(0).is_err());
    assert!(file.set_len(1 << 20).is_err());
}

#[test]
fn what_is_no_sealed_table_is_refused() {
    let plain = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    assert!(matches!(Remains::open(plain), Err(TableError::Unsealed)));
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert!(Remains::open(pipe.into()).is_err());
    let body = crate::memfd::seal(&[0; 8192]).unwrap();
    assert!(matches!(Remains::open(body), Err(TableError::Unknown)));
}

#[test]
fn a_record_counts_only_where_it_was_written() {
    let (table, lanes) = table(1, 5);
    let _slot = lanes[0].open(&identity(1), State::Open).unwrap();
    let file = File::from(copy(&table));
    let mut bytes = [0; RECORD_SIZE];
    file.read_exact_at(&mut bytes, HEADER_SIZE as u64).unwrap();
    file.write_all_at(&bytes, (HEADER_SIZE + RECORD_SIZE) as u64).unwrap();
    let found = entries(&table);
    assert!(found[0].found.is_ok());
    assert_eq!(found[1].found, Err(Damage::Checksum));
}

#[test]
fn a_record_of_a_newer_release_may_be_longer() {
    let header = layout::Header { record_size: 256, records: 7, uuid: 1 << 64 | 2 };
    assert_eq!(layout::Header::decode(&header.encode()), Some(header));
    for size in [0, 64, 128, 200, 8192] {
        let odd = layout::Header { record_size: size, ..header };
        assert_eq!(layout::Header::decode(&odd.encode()), None, "{size}");
    }
}

/// Where a random change hits: anywhere in the header's words or in the first records.
fn change() -> impl Strategy<Value = (usize, u8)> {
    let header = 0..64usize;
    let records = HEADER_SIZE..HEADER_SIZE + 6 * RECORD_SIZE;
    (prop_oneof![1 => header, 9 => records], any::<u8>())
}

proptest! {
    #[test]
    fn random_damage_gives_damage_or_a_record_within_its_bounds(
        changes in prop::collection::vec(change(), 1..40)
    ) {
        let (table, lanes) = table(1, 6);
        let _slots: Vec<_> =
            (0..5).map(|seed| lanes[0].open(&identity(seed), State::Open).unwrap()).collect();
        let file = File::from(copy(&table));
        for (place, byte) in &changes {
            file.write_all_at(&[*byte], *place as u64).unwrap();
        }
        if let Ok(remains) = Remains::open(copy(&table)) {
            for entry in remains.entries().unwrap() {
                prop_assert!(entry.slot < 6);
                if let Ok(record) = entry.found {
                    // The checksum covers all of it.
                    prop_assert_eq!(record.identity, identity(u8::try_from(entry.slot).unwrap()));
                    for way in Way::BOTH {
                        if let Some(pipe) = record.track(way).pipe {
                            prop_assert!(pipe.read >= 0 && pipe.write >= 0);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_identity_of_any_words_with_a_right_checksum_is_checked_too(
        words in prop::array::uniform13(any::<u64>()), family in 0u8..8
    ) {
        let mut words = words;
        words[9] = words[9] & 0xff_ffff_ffff | u64::from(family) << 40;
        let header = layout::Header { record_size: RECORD_SIZE, records: 1, uuid: 5 };
        let mut record = [0; layout::RECORD_WORDS];
        record[layout::HEAD] = record::head(2, Some(State::Open));
        record[layout::IDENTITY].copy_from_slice(&words);
        record[layout::CHECKSUM] = layout::checksum(&words, header.seed(0));
        if let Ok(Some(record)) = Record::decode(&record, &header, 0) {
            prop_assert!(record.identity.client.number >= 0);
            prop_assert_ne!(record.identity.client.number, record.identity.upstream.number);
        }
    }
}
