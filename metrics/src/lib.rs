//! Counters that outlive processes: one memory-mapped region per instance, and what is read
//! from it.
//!
//! The supervisor makes the region ([`Region::open_or_create`]) and hands its descriptor to
//! every worker ([`Region::attach`]). A process claims a [`Lane`], registers its series off the
//! hot path and then counts with one relaxed `fetch_add` ([`Counter`], [`Gauge`],
//! [`Histogram`]). When a process dies the supervisor folds its lane into the base, so a counter
//! never goes backwards and a gauge dies with its process. What a line has learned lives beside
//! the counters ([`Record`]).
//!
//! Why not a registry in each process, as usual: a counter would fall to zero with each upgrade
//! and each crash, two versions serving at once would need two scrapes, and nothing could be
//! read while no worker lives.
//!
//! Invariants:
//! * A lane's cells are written by its owner alone, the base by the supervisor alone.
//! * Nothing waits for another process: no lock in the region has an owner.
//! * No byte of the region can cause a panic or an access outside of it.
//! * A series that finds no room counts in process memory and is itself counted in
//!   `baton_metrics_dropped_series_total`.
//!
//! `unsafe` is confined to `region::mapping`, which turns a mapped file into a slice of atomic
//! words; everything else is ordinary safe code over that slice.

// A model needs the protocols, not the files and texts around them.
#![cfg_attr(loom, allow(dead_code))]

pub mod catalog;
mod cell;
#[cfg(not(loom))]
mod collector;
#[cfg(all(test, not(loom)))]
mod crash_tests;
mod directory;
mod fold;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(not(loom))]
mod import;
mod key;
mod lane;
mod layout;
#[cfg(all(test, loom))]
mod loom_tests;
mod owner;
mod record;
#[cfg(not(loom))]
mod region;
mod shared;
mod snapshot;
mod sync;
mod words;

pub use cell::{Counter, Gauge, Histogram};
#[cfg(not(loom))]
pub use collector::{CONTENT_TYPE, EncodeError, RegionCollector};
pub use lane::Lane;
pub use layout::{LayoutError, MAX_SIZE, MIN_SIZE, RECORD_PAYLOAD_WORDS};
pub use record::Record;
#[cfg(not(loom))]
pub use region::{FILE_NAME, Opened, Reader, Region, RegionError, SetAside};
pub use snapshot::{Busy, Family, Sample, Snapshot, Value};
