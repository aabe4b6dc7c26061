//! The relay between real sockets on loopback; peers are blocking threads.
#![allow(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm)]

mod bed;
mod crowd;
mod ends;
mod notes;
mod oracle;
mod orders;
mod streams;
