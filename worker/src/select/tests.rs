//! Every machine under virtual time: fixed scenarios by requirement, and thousands of random
//! schedules with the invariants as properties.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking, and their numbers are small"
)]

mod balance;
mod boost;
mod explain;
mod forward;
mod hedge;
mod rank;
mod roundrobin;
mod schedules;
mod sim;
mod walk;
