//! A configuration file, as supervisor and worker read it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_config::fuzz::file(bytes));
