//! A stream that may begin with a ClientHello.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_worker::classify::fuzz::client_hello(bytes));
