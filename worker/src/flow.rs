//! The plain types that pass between the stages of a connection.
//!
//! No stage uses another stage: what one hands to the next is defined here.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smallvec::SmallVec;

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

    /// This moment and `span` earlier; the start of time when that is later.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
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

impl OriginalDst {
    /// Folds an IPv4-mapped IPv6 address to IPv4.
    #[must_use]
    pub fn folded(address: SocketAddr) -> Self {
        Self(ClientAddr::folded(address).0)
    }
}

/// The position of a line among the lines of its rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineIndex(pub u16);

/// The lines a connection may use, in the order they are to be considered; from `route/` to
/// `select/`. On the stack up to 16.
pub type Candidates = SmallVec<[LineIndex; 16]>;

/// What a selection machine wants done, in order. On the stack except for wide races.
pub type Steps = SmallVec<[Step; 4]>;

/// One attempt of one connection, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u8);

/// A set of the targets of one rule, by position; a rule has at most 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TargetSet(u128);

impl TargetSet {
    /// The most targets a rule may have.
    pub const CAPACITY: u16 = 128;

    /// Adds a target; a position of 128 or more is not representable and is left out.
    pub fn insert(&mut self, target: u16) {
        if target < Self::CAPACITY {
            self.0 |= 1 << target;
        }
    }

    /// Whether a target is in the set.
    #[must_use]
    pub fn contains(self, target: u16) -> bool {
        target < Self::CAPACITY && self.0 & (1 << target) != 0
    }

    /// The targets of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The targets that are in both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The targets that are not in `other`.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether no target is in the set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The targets in configured order.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let target = u16::try_from(rest.trailing_zeros()).ok().filter(|_| rest != 0)?;
            rest &= rest - 1;
            Some(target)
        })
    }
}

impl FromIterator<u16> for TargetSet {
    fn from_iter<I: IntoIterator<Item = u16>>(targets: I) -> Self {
        let mut set = Self::default();
        for target in targets {
            set.insert(target);
        }
        set
    }
}

/// What the first bytes of a client said; from `classify/` to `route/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The mode has no rule about content; nothing was read.
    Unread,
    /// `regex`: every target whose pattern matched; empty when classification ended without
    /// a match (time limit, end of stream, 4096 bytes, or nothing can match any more).
    Patterns(TargetSet),
    /// `tls`: what a complete ClientHello asked for.
    Hello(Hello),
    /// `hash` by host: the host the client asked for, lower-cased and without a port.
    Host(Box<str>),
    /// `tls`: no ClientHello, or one that was cut or cannot be parsed. `hash` by host: no host.
    Opaque,
}

/// What routing needs of a ClientHello.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// The server name, lower-cased and without its trailing dot; `None` when there is none
    /// or it is not a DNS name (empty, an address, with a NUL).
    pub server_name: Option<Box<str>>,
    /// The offered protocols in wire form: each one a length byte and that many bytes.
    pub alpn: Box<[u8]>,
}

impl Hello {
    /// The offered protocols in order; ends at the first entry that is empty or cut short.
    pub fn protocols(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.alpn;
        std::iter::from_fn(move || {
            let (&length, tail) = rest.split_first()?;
            let (protocol, tail) = tail.split_at_checked(usize::from(length))?;
            rest = tail;
            (!protocol.is_empty()).then_some(protocol)
        })
    }
}

/// How an attempt takes its place in the dial bulkhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Wait for a free place, at most 250 ms and never beyond the attempt's deadline.
    Wait,
    /// Only when a place is free right now.
    Immediate,
    /// One of the separate background places, only when free right now.
    Background,
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
        /// A prewarmed socket will not do: the dial is a measurement or a probe.
        fresh: bool,
    },
    /// Send `Event::Woke` at this moment; a later `WakeAt` replaces an earlier one.
    WakeAt(Moment),
    /// Stop an attempt; it is neutral for the line. Nothing may be told about it afterwards
    /// (an event that crosses the cancel is ignored).
    Cancel(AttemptId),
    /// This attempt's socket is the connection's upstream; the machine is done. Every other
    /// attempt has been cancelled by an earlier step of the same batch.
    Use(AttemptId),
    /// Nothing is left to try; the machine is done.
    GiveUp(GiveUp),
}

/// A selection machine, as the dialler knows it. Pure: time comes in, steps go out.
pub trait Select {
    /// Begins; called once, before any event. Adds what to do to `steps`.
    fn start(&mut self, now: Moment, steps: &mut Steps);

    /// Takes an event. Adds what to do to `steps`; nothing after the machine is done.
    fn on(&mut self, event: Event, now: Moment, steps: &mut Steps);
}

/// What happened to an attempt; told to a selection machine.
///
/// Of one attempt come, in this order: `Started` unless a prewarmed socket was used, then one
/// of `Connected` and `Failed`; or, instead of all of them, one of `TargetFull` and
/// `ProcessFull`. A deadline that passes while the attempt still waits for quota is one of the
/// latter two, never a failure of the line.
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

/// How the relay of a connection ended, as far as its line is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RelayEnd {
    /// Both directions ended in order; `carried` when at least one byte went through.
    Clean {
        /// Whether any byte went through, in either direction.
        carried: bool,
    },
    /// The upstream broke before it gave a single byte: writing the client's first bytes
    /// failed, or the first read did. Clearly the upstream's fault.
    AtOnce,
    /// Any other error of either side: no fault of the line, but a cached winner is dropped.
    Broken,
    /// The client left or the connection moved to another process: says nothing.
    Neutral,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_protocols_are_read_in_order_and_end_at_a_cut_entry() {
        let hello = Hello { server_name: None, alpn: (*b"\x02h2\x08http/1.1\x09cut").into() };
        let offered: Vec<_> = hello.protocols().collect();
        assert_eq!(offered, [&b"h2"[..], b"http/1.1"]);
    }

    #[test]
    fn a_target_beyond_the_limit_is_in_no_set() {
        let set: TargetSet = [0, 127, 128, 500].into_iter().collect();
        assert!(set.contains(0) && set.contains(127));
        assert!(!set.contains(128) && !set.contains(500) && !set.contains(1));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 127]);
    }
}
