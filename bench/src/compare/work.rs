//! The works: what is asked of a target, and which figures come out.

use serde::Serialize;

use crate::statistics::Better;

/// One kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// 8 connections, upstream to client.
    BulkDown,
    /// 8 connections, client to upstream.
    BulkUp,
    /// 8 connections, both directions at once.
    BulkBoth,
    /// One connection, upstream to client.
    BulkOne,
    /// 64 connections, writes of 4 KiB and 1 MiB in turn.
    BulkMix,
    /// New connections, one 64 byte request each.
    Churn,
    /// New connections at 2000 a second: the cost of waking, not of saturation.
    ChurnPaced,
    /// 32 connections, 64 byte messages.
    PingSmall,
    /// 32 connections, 4 KiB messages.
    PingLarge,
    /// Connections that do nothing.
    Idle,
    /// A larger crowd of them.
    IdleMany,
    /// 100 connections with 64 byte messages.
    Busy,
    /// The same beside the larger idle crowd.
    BusyBesideIdle,
    /// Answers after the client's FIN.
    HalfClose,
    /// Streams and new connections across an upgrade or a reload.
    Upgrade,
}

/// One figure of a work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) better: Better,
    pub(crate) decimals: usize,
}

const fn metric(key: &'static str, label: &'static str, better: Better, decimals: usize) -> Metric {
    Metric { key, label, better, decimals }
}

const CORRUPT: Metric = metric("corrupt", "corrupt", Better::Neither, 0);
const ERRORS: Metric = metric("errors", "errors", Better::Neither, 0);

const BULK: &[Metric] = &[
    metric("gib_per_s", "GiB/s", Better::Higher, 2),
    metric("cpu_s_per_gib", "CPU-s/GiB", Better::Lower, 3),
    metric("ends_cpu_s_per_gib", "ends CPU-s/GiB", Better::Neither, 2),
    CORRUPT,
    ERRORS,
];
const RATE: &[Metric] = &[
    metric("per_s", "per s", Better::Higher, 0),
    metric("cpu_s_per_10k", "CPU-s/10k", Better::Lower, 3),
    metric("p50_us", "p50 µs", Better::Neither, 0),
    metric("p99_us", "p99 µs", Better::Lower, 0),
    ERRORS,
];
const IDLE: &[Metric] = &[
    metric("alive", "alive", Better::Neither, 0),
    metric("kib_per_conn", "KiB/conn", Better::Lower, 2),
    metric("fds_per_conn", "FDs/conn", Better::Lower, 2),
    metric("idle_cpu_s", "CPU-s idle", Better::Neither, 2),
    metric("kib_left", "KiB left", Better::Neither, 0),
    metric("fds_left", "FDs left", Better::Neither, 0),
    metric("base_mib", "base MiB", Better::Neither, 1),
];
const HALF_CLOSE: &[Metric] = &[
    metric("done", "whole", Better::Neither, 0),
    metric("cut", "cut", Better::Neither, 0),
    ERRORS,
];
const UPGRADE: &[Metric] = &[
    metric("cut", "streams cut", Better::Neither, 0),
    metric("refused", "refused", Better::Neither, 0),
    metric("reset", "reset", Better::Neither, 0),
    CORRUPT,
    metric("stall_ms", "longest stall ms", Better::Lower, 1),
    metric("p99_us", "new conn p99 µs", Better::Lower, 0),
    metric("trigger_s", "took s", Better::Neither, 2),
    metric("processes", "processes late", Better::Neither, 0),
    metric("mib", "MiB late", Better::Neither, 1),
];

impl Work {
    /// Its figures, in the order of their columns.
    pub(crate) fn metrics(self) -> &'static [Metric] {
        match self {
            Self::BulkDown | Self::BulkUp | Self::BulkBoth | Self::BulkOne | Self::BulkMix => BULK,
            Self::Churn
            | Self::ChurnPaced
            | Self::PingSmall
            | Self::PingLarge
            | Self::Busy
            | Self::BusyBesideIdle => RATE,
            Self::Idle | Self::IdleMany => IDLE,
            Self::HalfClose => HALF_CLOSE,
            Self::Upgrade => UPGRADE,
        }
    }

    /// Whether one round says it all: counts and sizes, no timings.
    pub(crate) fn once(self) -> bool {
        match self {
            Self::Idle | Self::IdleMany | Self::HalfClose | Self::Upgrade => true,
            Self::BulkDown
            | Self::BulkUp
            | Self::BulkBoth
            | Self::BulkOne
            | Self::BulkMix
            | Self::Churn
            | Self::ChurnPaced
            | Self::PingSmall
            | Self::PingLarge
            | Self::Busy
            | Self::BusyBesideIdle => false,
        }
    }

    /// What it is, for a heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::BulkDown => "Bulk down, 8 connections",
            Self::BulkUp => "Bulk up, 8 connections",
            Self::BulkBoth => "Bulk both ways, 8 connections",
            Self::BulkOne => "Bulk down, 1 connection",
            Self::BulkMix => "Bulk down, 64 connections, 4 KiB and 1 MiB writes",
            Self::Churn => "Churn: connect, one request, close",
            Self::ChurnPaced => "Churn at 2000 a second",
            Self::PingSmall => "Ping-pong, 64 B, 32 connections",
            Self::PingLarge => "Ping-pong, 4 KiB, 32 connections",
            Self::Idle => "Idle connections",
            Self::IdleMany => "Idle connections, the larger crowd",
            Self::Busy => "Ping-pong, 64 B, 100 connections",
            Self::BusyBesideIdle => "Ping-pong, 64 B, 100 connections beside the larger idle crowd",
            Self::HalfClose => "Half-close: 1 MiB answered after the client's FIN",
            Self::Upgrade => "Upgrade or reload under load",
        }
    }
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = clap::ValueEnum::to_possible_value(self);
        f.pad(value.as_ref().map_or("", |v| v.get_name()))
    }
}
