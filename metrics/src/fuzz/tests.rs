#![allow(clippy::unwrap_used)]
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

/// Changes that concentrate on the parts that lead somewhere: small values, offsets, anything.
fn change() -> impl Strategy<Value = Vec<u8>> {
    let words = u16::try_from(MIN_SIZE / 8).unwrap();
    let value = prop_oneof![
        any::<u64>(),
        0u64..1024,
        any::<u32>().prop_map(|low| u64::from(low) | 1 << 32),
        Just(u64::MAX),
        (0u32..64).prop_map(|bit| 1 << bit),
    ];
    (prop_oneof![0..words, 0u16..48, 48..words / 4], value)
        .prop_map(|(index, value)| [&index.to_le_bytes()[..], &value.to_le_bytes()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_region_with_words_overwritten_is_refused_or_used_without_harm(
        flags in prop_oneof![Just(0), Just(REPAIR_HEADER), Just(REPAIR_DESCRIPTORS),
            Just(REPAIR_HEADER | REPAIR_DESCRIPTORS)],
        changes in prop::collection::vec(change(), 1..40),
    ) {
        region(&[&[flags][..], &changes.concat()].concat());
    }

    #[test]
    fn a_region_with_bytes_flipped_is_refused_or_used_without_harm(
        flips in prop::collection::vec((0..usize::try_from(MIN_SIZE).unwrap(), 1u8..), 1..30),
    ) {
        let mut file = sample();
        for (at, flip) in flips {
            file[at] ^= flip;
        }
        region(&[&[WHOLE_FILE][..], &file].concat());
    }

    #[test]
    fn any_file_is_refused_or_used_without_harm(
        start in prop::collection::vec(any::<u8>(), 0..400),
        pages in 0usize..20,
    ) {
        let mut file = start;
        file.resize(pages * 4096, 0);
        region(&[&[WHOLE_FILE][..], &file].concat());
    }
}

#[test]
fn every_single_byte_of_the_header_counts() {
    let good = sample();
    assert!(Region::attach(memory_file(&good).unwrap()).is_ok());
    // The checked part, its checksum and the ready mark.
    for at in 0..248 {
        for flip in [1, 0x80, 0xFF] {
            let mut file = good.clone();
            file[at] ^= flip;
            assert!(Region::attach(memory_file(&file).unwrap()).is_err(), "byte {at}");
        }
    }
}

#[test]
fn a_file_that_is_shorter_or_longer_than_its_header_says_is_refused() {
    let good = sample();
    for length in [0, 8, 4096, good.len() - 4096, good.len() - 1, good.len() + 4096] {
        let mut file = good.clone();
        file.resize(length, 0);
        assert!(Region::attach(memory_file(&file).unwrap()).is_err(), "{length} bytes");
    }
}

#[test]
fn a_damaged_descriptor_is_left_out_and_reported() {
    let shared = Shared { words: heap(&sample()), layout: Layout::plan(MIN_SIZE).unwrap() };
    let before = shared.snapshot(|_| true, &mut Default::default()).unwrap();
    let first = shared.layout.descriptors.at(1).unwrap();
    shared.words.fetch_add(first + crate::layout::desc::CREATED, 1);
    let after = shared.snapshot(|_| true, &mut Default::default()).unwrap();
    assert_eq!((before.damaged, after.damaged), (0, 1));
    assert_eq!(before.families.len(), after.families.len() + 1);
}

#[test]
fn the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/region");
    let seeds: Vec<_> = fs::read_dir(corpus).unwrap().flatten().collect();
    assert!(seeds.len() >= 8);
    for seed in seeds {
        region(&fs::read(seed.path()).unwrap());
    }
}
