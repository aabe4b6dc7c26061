//! The long-lived process: owns the listeners, starts and replaces workers.
//!
//! `state` decides, `driver` does, everything else is one edge each: `listeners`, `program` and
//! `child` (processes), `control` (the socket of the command line), `systemd`, `runtime_dir`,
//! `privilege`, `orphans`, `reexec` (the next image of this process), `survivors` (workers of a supervisor that died).

mod action;
mod backoff;
mod budget;
mod child;
pub mod control;
mod driver;
mod event;
mod listeners;
mod options;
mod orphans;
pub mod privilege;
pub mod program;
mod reexec;
pub mod runtime_dir;
mod state;
mod survivors;
mod systemd;
mod underway;

pub use driver::run;
pub use options::{ConfigSource, Options, StartError};
pub use reexec::{
    REHEARSE_ARGUMENT, RESUME_ARGUMENT, Resume, StateError, hold_signals, rehearse, resume,
};
