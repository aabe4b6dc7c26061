//! Dialling on loopback, and the bulkhead's rules.
#![allow(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm)]

mod bulkhead;
mod clients;
mod driving;
mod scene;
