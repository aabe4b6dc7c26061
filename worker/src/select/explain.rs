//! Which targets a connection would try now, in which order, and why not the others.
//!
//! Looks only: no cursor moves, no line is admitted, nothing is drawn. Where the order is
//! drawn (`rand`, the two of `latency`, racers of `parallel` at random), it shows the most
//! likely one first.

use baton_config::model::{Forward, Mode, ParallelMode, Strategy};

use super::flights::usable;
use super::forward::pool;
use super::roundrobin::nth;
use super::selector::{Affinity, Selector};
use super::{rank, strategy};
use crate::flow::{Candidates, LineIndex, Moment};
use crate::upstream::{LineSet, Refused};

/// One line, explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explained {
    /// Which.
    pub line: LineIndex,
    /// Whether it may be tried; those that may come first, in the order they would be tried.
    pub usable: bool,
    /// Why, or why not.
    pub reason: Reason,
    /// Mean connect time in nanoseconds; 0 when never sampled.
    pub ewma_nanos: u64,
    /// What the mode or strategy ranks by; lower is better: connections for `leastconn`,
    /// otherwise nanoseconds.
    pub score: u64,
}

/// Why a line stands where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// By configured order, turn, score or strategy.
    Usable,
    /// The winner of the last race.
    CachedWinner,
    /// Every target is marked failed, and this one's mark ends first.
    LastResort,
    /// The breaker is open.
    Open,
    /// The breaker is half open and its probe is under way.
    Probing,
    /// Active probes say so.
    Unhealthy,
    /// Marked failed.
    Marked,
    /// A backup while a primary is left.
    HeldBack,
    /// Content rules send the connection elsewhere.
    NoMatch,
    /// Another label set is preferred.
    OtherSubset,
    /// The same address is listed before.
    Duplicate,
}

impl Reason {
    /// The reason in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::CachedWinner => "cached winner",
            Self::LastResort => "last resort",
            Self::Open => "open",
            Self::Probing => "half-open probe under way",
            Self::Unhealthy => "unhealthy",
            Self::Marked => "marked failed",
            Self::HeldBack => "backup held back",
            Self::NoMatch => "no match",
            Self::OtherSubset => "other subset preferred",
            Self::Duplicate => "duplicate address",
        }
    }
}

impl From<Refused> for Reason {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Open => Self::Open,
            Refused::Probing => Self::Probing,
            Refused::Unhealthy => Self::Unhealthy,
            Refused::Marked => Self::Marked,
        }
    }
}

impl Selector {
    /// Explains every line of the set. `allowed` is what the content allows, `candidates` what
    /// the labels have left of it (empty when there is no route).
    #[must_use]
    pub fn explain(
        &self,
        lines: &LineSet,
        allowed: &Candidates,
        candidates: &Candidates,
        affinity: Affinity,
        now: Moment,
    ) -> Vec<Explained> {
        let order = match &self.mode {
            Mode::Normal | Mode::Regex | Mode::Tls => usable(lines, candidates, now).collect(),
            Mode::Boost(_) => self.race_order(lines, candidates, None, now),
            Mode::RoundRobin => {
                let turn = nth(candidates, self.peek_turn());
                let turn = turn.filter(|&line| lines.line(line).usable(now));
                let others = self.race_order(lines, candidates, turn, now);
                turn.into_iter().chain(others).collect()
            }
            Mode::Forward(spec) => self.selector_order(spec, lines, candidates, affinity, now),
        };
        let cached = match &self.mode {
            Mode::Boost(_) => self.winner.get(lines, now).map(|hit| hit.line),
            Mode::Normal | Mode::Regex | Mode::Tls | Mode::RoundRobin | Mode::Forward(_) => None,
        };
        let explained = |line: LineIndex, usable: bool, reason: Reason| Explained {
            line,
            usable,
            reason,
            ewma_nanos: lines.line(line).ewma_nanos(),
            score: self.score(lines, line, now),
        };
        let first = order.iter().map(|&line| {
            let reason = if lines.line(line).check(now) == Err(Refused::Marked) && order.len() == 1
            {
                Reason::LastResort
            } else if cached == Some(line) {
                Reason::CachedWinner
            } else {
                Reason::Usable
            };
            explained(line, true, reason)
        });
        let rest = lines.indexes().filter(|line| !order.contains(line)).map(|line| {
            let reason = if !allowed.contains(&line) {
                Reason::NoMatch
            } else if !candidates.contains(&line) {
                Reason::OtherSubset
            } else if let Err(refused) = lines.line(line).check(now) {
                refused.into()
            } else if lines.node(line).backup {
                Reason::HeldBack
            } else {
                Reason::Duplicate
            };
            explained(line, false, reason)
        });
        first.chain(rest).collect()
    }

    /// Whether [`Explained::score`] is a number of connections rather than nanoseconds.
    #[must_use]
    pub fn ranks_by_connections(&self) -> bool {
        matches!(&self.mode, Mode::Forward(spec) if spec.selector.strategy == Strategy::LeastConn)
    }

    /// The cached winner, the pair that would race, the others by score.
    fn race_order(
        &self,
        lines: &LineSet,
        candidates: &Candidates,
        without: Option<LineIndex>,
        now: Moment,
    ) -> Candidates {
        let without = without.map(|line| lines.node(line).first());
        let open = || {
            usable(lines, candidates, now).filter(|&line| Some(lines.node(line).first()) != without)
        };
        let mut order = Candidates::new();
        let cached = self.winner.get(lines, now).map(|hit| hit.line);
        order.extend(cached.filter(|&cached| open().any(|line| line == cached)));
        let others = open().filter(|line| !order.contains(line));
        let pair = rank::pair(others, |line| lines.line(line), now);
        order.extend(pair.into_iter().flatten());
        let mut rest: Candidates = open().filter(|line| !order.contains(line)).collect();
        rest.sort_by_key(|&line| rank::score(lines.line(line)));
        order.extend(rest);
        order
    }

    fn selector_order(
        &self,
        spec: &Forward,
        lines: &LineSet,
        candidates: &Candidates,
        affinity: Affinity,
        now: Moment,
    ) -> Candidates {
        let mut pool = pool(lines, candidates, |_| false, spec.selector.on_all_failed, now);
        let turn = self.peek_turn();
        match spec.selector.strategy {
            Strategy::Fifo => {}
            Strategy::Round => pool = strategy::consecutive_from(&pool, pool.len(), turn),
            Strategy::Parallel { max, mode: ParallelMode::Round } if max > 0 => {
                let start = turn.wrapping_mul(u64::from(max));
                pool = strategy::consecutive_from(&pool, pool.len(), start);
            }
            Strategy::Parallel { .. } => {}
            Strategy::Rand => pool.sort_by_key(|&line| std::cmp::Reverse(lines.node(line).weight)),
            Strategy::Hash => pool.sort_by_key(|&line| {
                std::cmp::Reverse(strategy::affinity(lines, line, affinity.0))
            }),
            Strategy::LeastConn | Strategy::Latency => {
                pool.sort_by_key(|&line| self.score(lines, line, now));
            }
        }
        pool
    }

    fn score(&self, lines: &LineSet, line: LineIndex, now: Moment) -> u64 {
        match &self.mode {
            Mode::Forward(spec) => match spec.selector.strategy {
                Strategy::Latency => {
                    u64::try_from(strategy::cost(lines, line, now)).unwrap_or(u64::MAX)
                }
                Strategy::LeastConn => lines.line(line).active().into(),
                Strategy::Round
                | Strategy::Rand
                | Strategy::Fifo
                | Strategy::Hash
                | Strategy::Parallel { .. } => rank::score(lines.line(line)),
            },
            Mode::Normal | Mode::Regex | Mode::Tls | Mode::Boost(_) | Mode::RoundRobin => {
                rank::score(lines.line(line))
            }
        }
    }
}
