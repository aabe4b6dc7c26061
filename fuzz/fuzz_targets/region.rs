//! A metrics region: a whole file, or changes to a good one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_metrics::fuzz::region(bytes));
