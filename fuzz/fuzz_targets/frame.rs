//! A whole packet: header and inline body.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_handoff::fuzz::packet(bytes));
