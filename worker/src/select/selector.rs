//! What selection remembers about a rule between its connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use baton_config::model::{Mode, Rule};
use xxhash_rust::xxh3::xxh3_64;

use super::boost::Boost;
use super::cache::{RefreshTicket, WinnerCache};
use super::flights::Flights;
use super::forward::Forward;
use super::machine::{Kind, Machine};
use super::refresh::Refresh;
use super::roundrobin::RoundRobin;
use super::walk::Walk;
use crate::flow::{Candidates, Verdict};
use crate::upstream::LineSet;

/// The selection of one rule: its mode, cursors and winner cache. Lives as long as the rule
/// stays unchanged, across routing generations.
#[derive(Debug)]
pub struct Selector {
    pub(super) mode: Mode,
    pub(super) timeout: Duration,
    pub(super) winner: WinnerCache,
    cursor: AtomicU64,
    retry_cursor: AtomicU64,
}

/// What the `hash` strategy keys a connection by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Affinity(pub(super) u64);

impl Affinity {
    /// By the host the client asked for, where that was looked at and found; else by the client.
    #[must_use]
    pub fn of(verdict: &Verdict, client: IpAddr) -> Self {
        match verdict {
            Verdict::Host(host) => Self::host(host),
            Verdict::Unread | Verdict::Patterns(_) | Verdict::Hello(_) | Verdict::Opaque => {
                Self::client(client)
            }
        }
    }

    /// By a host in the form that [`crate::classify::host`] gives it.
    #[must_use]
    pub fn host(host: &str) -> Self {
        Self(xxh3_64(host.as_bytes()))
    }

    /// By the client's address without port, IPv4-mapped folded; equal addresses in whatever
    /// form give equal keys.
    #[must_use]
    pub fn client(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V4(ip) => xxh3_64(&ip.octets()),
            IpAddr::V6(ip) => xxh3_64(&ip.octets()),
        })
    }
}

impl Selector {
    /// The selection of a rule that has served nobody yet.
    #[must_use]
    pub fn for_rule(rule: &Rule) -> Self {
        Self {
            mode: rule.mode.clone(),
            timeout: rule.timeout,
            winner: WinnerCache::default(),
            cursor: AtomicU64::new(0),
            retry_cursor: AtomicU64::new(0),
        }
    }

    /// The machine of one connection over `candidates`, positions in `lines`. Nothing happens
    /// before its `start`.
    #[must_use]
    pub fn begin(
        self: &Arc<Self>,
        lines: &Arc<LineSet>,
        candidates: Candidates,
        affinity: Affinity,
        rng: fastrand::Rng,
    ) -> Machine {
        let flights = Flights::new(Arc::clone(lines), candidates);
        Machine::new(match &self.mode {
            Mode::Normal | Mode::Regex | Mode::Tls => Kind::Walk(Walk::new(flights, self.timeout)),
            Mode::Boost(hedge) => Kind::Boost(Boost::new(Arc::clone(self), flights, *hedge)),
            Mode::RoundRobin => {
                Kind::RoundRobin(RoundRobin::new(Boost::new(Arc::clone(self), flights, None)))
            }
            Mode::Forward(spec) => {
                Kind::Forward(Forward::new(Arc::clone(self), spec, flights, affinity, rng))
            }
        })
    }

    /// The machine of a background race. Its `Use` means that the cache is replaced; the
    /// socket has no client and is closed.
    #[must_use]
    pub fn refresh(ticket: RefreshTicket, lines: &Arc<LineSet>, candidates: Candidates) -> Machine {
        let flights = Flights::new(Arc::clone(lines), candidates);
        Machine::new(Kind::Refresh(Refresh::new(ticket, flights)))
    }

    /// The rule's next turn, counted from 0.
    pub(super) fn turn(&self) -> u64 {
        self.cursor.fetch_add(1, Relaxed)
    }

    /// The next turn among retries.
    pub(super) fn retry_turn(&self) -> u64 {
        self.retry_cursor.fetch_add(1, Relaxed)
    }

    /// The turn the next connection will have.
    pub(super) fn peek_turn(&self) -> u64 {
        self.cursor.load(Relaxed)
    }
}
