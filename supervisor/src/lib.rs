//! The long-lived process: owns the listeners, starts and replaces workers.

mod action;
mod backoff;
mod child;
pub mod control;
mod event;
mod listeners;
mod orphans;
pub mod privilege;
pub mod program;
pub mod runtime_dir;
mod state;
mod systemd;
