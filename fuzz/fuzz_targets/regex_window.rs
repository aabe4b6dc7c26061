//! First bytes against a set of patterns.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_worker::classify::fuzz::regex_window(bytes));
