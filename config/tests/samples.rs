//! Every sample of the repository is accepted, and means what it is there to show.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

fn samples() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_sample_loads() {
    let files = samples();
    assert!(files.len() >= 2);
    for file in files {
        if let Err(error) = baton_config::load(&file) {
            panic!("{error}");
        }
    }
}
