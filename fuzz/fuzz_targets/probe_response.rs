//! The answer of an upstream to an HTTP health check.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_worker::probe::fuzz::response(bytes));
