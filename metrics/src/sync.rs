//! The atomics and the clock of this crate: the standard ones, or loom's while a model runs.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Milliseconds since 1970.
#[cfg(not(loom))]
pub(crate) fn unix_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A model must take the same course each time.
#[cfg(loom)]
pub(crate) fn unix_ms() -> u64 {
    1
}
