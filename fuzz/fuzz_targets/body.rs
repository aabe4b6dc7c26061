//! A body of the type that the first two bytes name.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_handoff::fuzz::body(bytes));
