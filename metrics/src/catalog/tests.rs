#![allow(clippy::unwrap_used)]
use std::collections::HashSet;

use super::*;

#[test]
fn names_are_unique_and_follow_the_conventions() {
    let mut seen = HashSet::new();
    for metric in all() {
        assert!(seen.insert(metric.name), "{} twice", metric.name);
        assert!(metric.name.starts_with("baton_"), "{}", metric.name);
        let counter = matches!(metric.kind, Kind::Counter);
        assert_eq!(metric.name.ends_with("_total"), counter, "{}", metric.name);
        let seconds = metric.name.ends_with("_seconds");
        assert_eq!(metric.unit == Unit::Seconds, seconds, "{}", metric.name);
        assert!(metric.help.ends_with('.') && !metric.help.contains('\n'), "{}", metric.name);
    }
}

#[test]
fn bucket_bounds_rise_and_a_histogram_fits_into_one_block() {
    for metric in all() {
        if let Kind::Histogram(bounds) = metric.kind {
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{}", metric.name);
            assert!(bounds.len() + 2 <= 128, "{}", metric.name);
        }
    }
}

/// `BATON_BLESS=1 cargo test -p baton-metrics` writes the page anew.
#[test]
fn the_reference_page_is_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    if std::env::var_os("BATON_BLESS").is_some() {
        std::fs::write(path, markdown()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap();
    assert!(
        page == markdown(),
        "docs/metrics.md is stale: run `BATON_BLESS=1 cargo test -p baton-metrics` and commit it"
    );
}
