//! A stream that may begin with a PROXY header.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_worker::classify::fuzz::header(bytes));
