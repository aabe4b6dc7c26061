//! Handles of registered series. Cheap to clone and to send; counting is one relaxed
//! `fetch_add` on a cell that only this process writes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lane::Series;
use crate::sync::Ordering;

/// A number that only grows (and wraps at 2⁶⁴).
#[derive(Clone)]
pub struct Counter(Arc<Series>);

impl Counter {
    pub(crate) fn new(series: Arc<Series>) -> Self {
        Self(series)
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        if let Some(cell) = self.0.cell(0) {
            cell.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// What this process has counted, without what earlier ones have.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.cell(0).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }
}

/// A number that goes up and down; it dies with its process.
#[derive(Clone)]
pub struct Gauge(Arc<Series>);

impl Gauge {
    pub(crate) fn new(series: Arc<Series>) -> Self {
        Self(series)
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes one away.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Adds `count`, which may be negative.
    #[inline]
    pub fn add(&self, count: i64) {
        if let Some(cell) = self.0.cell(0) {
            cell.fetch_add(count.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, value: i64) {
        if let Some(cell) = self.0.cell(0) {
            cell.store(value.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Replaces the value of a gauge whose unit is seconds (a point in time is the time since
    /// 1970). Kept to the nanosecond, up to 292 years.
    pub fn set_duration(&self, value: Duration) {
        self.set(i64::try_from(value.as_nanos()).unwrap_or(i64::MAX));
    }

    /// This process's value; nanoseconds when the unit is seconds.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.cell(0).map_or(0, |cell| cell.load(Ordering::Relaxed).cast_signed())
    }
}

/// How often a duration fell into each bucket, and the sum of all.
#[derive(Clone)]
pub struct Histogram {
    series: Arc<Series>,
    bounds: &'static [u64],
}

impl Histogram {
    pub(crate) fn new(series: Arc<Series>, bounds: &'static [u64]) -> Self {
        Self { series, bounds }
    }

    /// Counts one `value`. The sum is kept in nanoseconds (584 years) and wraps.
    #[inline]
    pub fn observe(&self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        let bucket = self.bounds.partition_point(|bound| *bound < nanos);
        if let Some(cell) = self.series.cell(bucket) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(sum) = self.series.cell(self.bounds.len() + 1) {
            sum.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// How many values this process has counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        (0..=self.bounds.len())
            .filter_map(|bucket| self.series.cell(bucket))
            .fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.get()).finish()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Histogram").field(&self.count()).finish()
    }
}
