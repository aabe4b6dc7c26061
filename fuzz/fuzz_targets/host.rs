//! A stream that may name a host, in TLS or in HTTP.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_worker::classify::fuzz::host(bytes));
