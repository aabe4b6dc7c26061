//! Replays the fuzz targets' corpus with the stable compiler.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};

/// Feeds every file of a target's corpus to `check`, which panics if it does not hold.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let held = std::panic::catch_unwind(|| check(&bytes));
        assert!(held.is_ok(), "{}", file.display());
    }
}

#[test]
fn every_packet_of_the_corpus_is_refused_or_unambiguous() {
    replay("frame", baton_handoff::fuzz::packet);
}

#[test]
fn every_body_of_the_corpus_is_refused_or_survives_the_way() {
    replay("body", baton_handoff::fuzz::body);
}
