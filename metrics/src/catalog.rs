//! Every metric that Baton exports, in one table.
//!
//! A metric exists in the export once a series of it is registered, so a release exports no
//! family whose feature it lacks. `docs/metrics.md` is generated from this table ([`markdown`])
//! and a test keeps it fresh. Names follow Prometheus: base units, `_total` on counters.
//!
//! Label values are text from the configuration or one of the fixed words given here, never
//! anything a client sent: the number of series is bounded by the configuration.

mod document;
mod table;

pub use document::markdown;
use table::TABLE;
pub use table::*;

/// One metric. Two releases share its cells only while name, kind, unit, labels and bounds are
/// the same.
#[derive(Debug)]
pub struct Metric {
    /// Full name.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// What is stored and how processes add up.
    pub kind: Kind,
    /// What one is.
    pub unit: Unit,
    /// In the order of the export.
    pub labels: &'static [Label],
    /// Which part of Baton it belongs to.
    pub stage: Stage,
}

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; outlives processes.
    Counter,
    /// Goes up and down; dies with its process.
    Gauge(Aggregation),
    /// Durations by upper bound, in nanoseconds, rising; outlives processes.
    Histogram(&'static [u64]),
}

/// How the values of several live processes become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aggregation {
    /// Each has its part: connections.
    Sum,
    /// Each knows the whole, the newest process best: a latency.
    Newest,
}

impl Aggregation {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Sum => 1,
            Self::Newest => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Sum, Self::Newest].into_iter().find(|known| known.code() == code)
    }
}

/// What one of a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A count, a flag, a number.
    Number,
    /// Bytes.
    Bytes,
    /// Seconds; kept in nanoseconds. In a gauge of a point in time: since 1970.
    Seconds,
}

impl Unit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Number => 1,
            Self::Bytes => 2,
            Self::Seconds => 3,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Number, Self::Bytes, Self::Seconds].into_iter().find(|known| known.code() == code)
    }
}

/// A label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// What its values are; fixed words are separated by commas.
    pub values: &'static str,
}

/// Which part of Baton a metric belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The processes and their life.
    Process,
    /// A connection from accept to close.
    Connection,
    /// Dialling upstreams.
    Dial,
    /// What is known of lines, and the modes that use it.
    Line,
    /// Moving connections between processes.
    Migration,
}

/// A metric whose handle is a [`Counter`](crate::Counter).
#[derive(Debug)]
pub struct CounterDef(Metric);

/// A metric whose handle is a [`Gauge`](crate::Gauge).
#[derive(Debug)]
pub struct GaugeDef(Metric);

/// A metric whose handle is a [`Histogram`](crate::Histogram).
#[derive(Debug)]
pub struct HistogramDef(Metric, &'static [u64]);

impl CounterDef {
    /// The table's row.
    #[must_use]
    pub fn metric(&self) -> &Metric {
        &self.0
    }
}

impl GaugeDef {
    /// The table's row.
    #[must_use]
    pub fn metric(&self) -> &Metric {
        &self.0
    }
}

impl HistogramDef {
    /// The table's row.
    #[must_use]
    pub fn metric(&self) -> &Metric {
        &self.0
    }

    /// Upper bounds in nanoseconds.
    #[must_use]
    pub fn bounds(&self) -> &'static [u64] {
        self.1
    }
}

/// Every metric, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    TABLE.iter().copied()
}

/// The metric of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    all().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests;
