//! How long the code that every connection or message runs through takes:
//! `cargo bench -p baton-worker --bench hot_paths [FILTER]`.
//!
//! Goals: a decision among 16 targets at most 2 µs; the subset index of 8000 targets with 4 labels of 3
//! values and all 15 combinations of keys built in at most 5.5 ms; a look-up in the longest
//! address list at most 100 ns. What must not grow unnoticed is counted by `instructions`.

#![allow(clippy::panic, reason = "a benchmark that cannot be set up has nothing to say")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use baton_worker::route::subset::SubsetIndex;
use criterion::Criterion;

mod paths;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut all = paths::all();
    for count in [2, 128] {
        all.extend(paths::decision::paths(count));
        all.extend(paths::content::paths(count));
    }
    for mut path in all {
        criterion.bench_function(&path.name, |bencher| bencher.iter(|| (path.run)()));
    }
    subset(&mut criterion);
    criterion.final_summary();
}

fn subset(criterion: &mut Criterion) {
    const KEYS: [&str; 4] = ["zone", "tier", "version", "weight-class"];
    let mut rng = fastrand::Rng::with_seed(2);
    let labels: Vec<BTreeMap<String, String>> = (0..8000)
        .map(|_| {
            KEYS.iter()
                .map(|&key| (key.to_owned(), ["one", "two", "three"][rng.usize(0..3)].to_owned()))
                .collect()
        })
        .collect();
    let combinations: Vec<Vec<&str>> = (1u8..16)
        .map(|bits| (0..4).filter(|bit| bits & (1 << bit) != 0).map(|bit| KEYS[bit]).collect())
        .collect();
    let build = || SubsetIndex::build(labels.iter(), &combinations);
    criterion.bench_function("subset index: built of 8000", |bencher| bencher.iter(build));
    let index = build();
    let mut wanted = labels.iter().cycle();
    criterion.bench_function("subset index: asked", |bencher| {
        bencher.iter(|| {
            if let Some(wanted) = wanted.next() {
                black_box(index.lookup(black_box(wanted)));
            }
        });
    });
}
