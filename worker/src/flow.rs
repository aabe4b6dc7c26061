//! The plain types that pass between the stages of a connection.
//!
//! No stage uses another stage: what one hands to the next is defined here.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A point on the kernel's monotonic clock, in nanoseconds. Comparable between processes of
/// one boot, which is why learned state may hold it. Read once a wake-up, then passed along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// This moment and `span` later, saturating.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The client as policy sees it: from the PROXY header of a trusted hop, else the TCP peer;
/// an IPv4-mapped address is folded to IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub SocketAddr);

impl ClientAddr {
    /// Folds an IPv4-mapped IPv6 address to IPv4.
    #[must_use]
    pub fn folded(address: SocketAddr) -> Self {
        Self(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// The address without port.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.0.ip()
    }
}

/// Where the client wanted to go: the PROXY header's destination, else our own local address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OriginalDst(pub SocketAddr);

/// The position of a line among the lines of its rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineIndex(pub u16);

/// One attempt of one connection, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u8);

/// How an attempt takes its place in the dial bulkhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Wait for a free place, at most 250 ms.
    Wait,
    /// Only when a place is free right now.
    Immediate,
}

/// What the dialler must do next; said by a selection machine in `select/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Start dialling `line`; the attempt fails when `deadline` passes.
    Dial {
        /// The attempt's number, new with each `Dial`.
        attempt: AttemptId,
        /// What to dial.
        line: LineIndex,
        /// When it counts as failed.
        deadline: Moment,
        /// How it takes its quota.
        quota: Quota,
    },
    /// Send `Event::Woke` at this moment unless something happens earlier.
    WakeAt(Moment),
    /// Stop an attempt; it is neutral for the line.
    Cancel(AttemptId),
    /// This attempt's socket is the connection's upstream; the machine is done.
    Use(AttemptId),
    /// Nothing is left to try; the machine is done.
    GiveUp(GiveUp),
}

/// What happened to an attempt; told to a selection machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Quota was taken and the connect began (the hedge clock starts here).
    Started(AttemptId),
    /// Connected and prepared (PROXY header written); `connect` is the TCP connect alone.
    Connected {
        /// Which.
        attempt: AttemptId,
        /// The pure connect time; `None` for a prewarmed socket.
        connect: Option<Duration>,
    },
    /// Definitely failed.
    Failed {
        /// Which.
        attempt: AttemptId,
        /// Whose fault.
        fault: Fault,
    },
    /// No quota: the target's places are all taken, the process still has room.
    TargetFull(AttemptId),
    /// No quota in the whole process.
    ProcessFull(AttemptId),
    /// The moment of the last `WakeAt` has come.
    Woke,
}

/// Why an attempt failed, as far as the line's health is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Refused, unreachable, reset or timed out while connecting; a name that does not resolve.
    Dial,
    /// Connected, then failed while writing what prepares the connection.
    Preparation,
    /// Our own lack (descriptors, ports, memory): says nothing about the line.
    Local,
}

/// Why a connection ends without an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GiveUp {
    /// Every candidate failed.
    AllFailed,
    /// Every candidate is excluded (open, unhealthy, marked) and none may be tried.
    NoneUsable,
    /// The time limit of the rule passed.
    Deadline,
    /// The process has no dial quota left.
    QuotaExhausted,
}
