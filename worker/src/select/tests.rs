//! Every machine under virtual time: fixed scenarios by requirement, and thousands of random
//! schedules with the invariants as properties.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, dead_code)]

mod sim;
mod walk;
