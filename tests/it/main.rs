//! The real binary, driven from outside: one test target, a module a subject.
//!
//! Every test has a scratch directory, loopback addresses and a mark of its own, so all run in
//! parallel; it waits for what it can observe and never for a time; and it fails when it leaves a
//! process behind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and says on the terminal why it is skipped"
)]

mod harness;

mod admin;
mod admission;
mod boost;
mod capacity;
mod cli;
mod clients;
mod conformance;
mod container;
mod control;
mod crash;
mod databases;
mod dependencies;
mod explain;
mod forward;
mod health;
mod logs;
mod memory;
mod migrate;
mod names;
mod orphan;
mod prewarm;
mod privilege;
mod proxy;
mod recovery;
mod reexec;
mod refresh;
mod regex;
mod relay;
mod reload;
mod selectors;
mod stop;
mod syscalls;
mod systemd;
mod tls;
mod torture;
mod upgrade;
mod websocket;
