//! The long-lived process: owns the listeners, starts and replaces workers.

mod child;
pub mod control;
mod listeners;
mod orphans;
pub mod privilege;
pub mod program;
pub mod runtime_dir;
mod systemd;
