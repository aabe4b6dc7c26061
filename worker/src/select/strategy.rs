//! The strategies of a selector: one line, or several, out of a pool.
//!
//! A pool is what eligibility, failure marks and backups have left; it is never empty here.
//! Each strategy is a pure function of the pool, the lines and what is drawn or counted.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::roundrobin::nth;
use crate::flow::{Candidates, LineIndex, Moment};
use crate::upstream::LineSet;
use crate::upstream::load::PENALTY;

/// Random by weight.
pub(super) fn rand(
    pool: &[LineIndex],
    lines: &LineSet,
    rng: &mut fastrand::Rng,
) -> Option<LineIndex> {
    let weight = |&line: &LineIndex| u64::from(lines.node(line).weight.max(1));
    let total: u64 = pool.iter().map(weight).sum();
    if total == 0 {
        return None;
    }
    let mut ticket = rng.u64(0..total);
    pool.iter()
        .find(|line| {
            let weight = weight(line);
            let hit = ticket < weight;
            ticket = ticket.saturating_sub(weight);
            hit
        })
        .copied()
}

/// How much a node wants a key: rendezvous hashing gives the key to the node that wants it
/// most, so a node that goes away moves only its own keys.
pub(super) fn affinity(lines: &LineSet, line: LineIndex, key: u64) -> u64 {
    xxh3_64_with_seed(&lines.node(line).hash().to_le_bytes(), key)
}

/// The line a key belongs to.
pub(super) fn hash(pool: &[LineIndex], lines: &LineSet, key: u64) -> Option<LineIndex> {
    pool.iter().copied().max_by_key(|&line| affinity(lines, line, key))
}

/// The line with the least active connections; one of the equals at random.
pub(super) fn least_conn(
    pool: &[LineIndex],
    lines: &LineSet,
    rng: &mut fastrand::Rng,
) -> Option<LineIndex> {
    let mut best: Option<(u32, LineIndex)> = None;
    let mut equals = 0u32;
    for &line in pool {
        let active = lines.line(line).active();
        match best {
            Some((least, _)) if active > least => {}
            Some((least, _)) if active == least => {
                equals += 1;
                if rng.u32(0..equals) == 0 {
                    best = Some((active, line));
                }
            }
            _ => {
                best = Some((active, line));
                equals = 1;
            }
        }
    }
    best.map(|(_, line)| line)
}

/// What `latency` compares: the line's load times its active connections plus one. A line
/// nobody has measured costs nothing while it is idle, so that it gets measured, and a second
/// otherwise, so that one connection does the measuring and not all of them.
pub(super) fn cost(lines: &LineSet, line: LineIndex, now: Moment) -> u128 {
    let line = lines.line(line);
    let active = u128::from(line.active());
    match line.load_nanos(now) {
        Some(load) => u128::from(load) * (active + 1),
        None if active == 0 => 0,
        None => PENALTY.as_nanos() * (active + 1),
    }
}

/// The cheaper of two distinct lines drawn at random.
pub(super) fn latency(
    pool: &[LineIndex],
    lines: &LineSet,
    rng: &mut fastrand::Rng,
    now: Moment,
) -> Option<LineIndex> {
    if pool.len() < 2 {
        return pool.first().copied();
    }
    let one = rng.usize(0..pool.len());
    let other = (one + rng.usize(1..pool.len())) % pool.len();
    let (one, other) = (pool[one], pool[other]);
    Some(if cost(lines, other, now) < cost(lines, one, now) { other } else { one })
}

/// `count` consecutive lines; the start moves on by `count` each turn.
pub(super) fn consecutive(pool: &[LineIndex], count: usize, turn: u64) -> Candidates {
    let width = u64::try_from(count).unwrap_or(u64::MAX);
    consecutive_from(pool, count, turn.wrapping_mul(width))
}

/// `count` consecutive lines from a start, which wraps like they do.
pub(super) fn consecutive_from(pool: &[LineIndex], count: usize, start: u64) -> Candidates {
    (0u64..)
        .take(count.min(pool.len()))
        .filter_map(|step| nth(pool, start.wrapping_add(step)))
        .collect()
}

/// `count` distinct lines drawn uniformly.
pub(super) fn drawn(pool: &[LineIndex], count: usize, rng: &mut fastrand::Rng) -> Candidates {
    let mut pool = Candidates::from_slice(pool);
    let count = count.min(pool.len());
    for slot in 0..count {
        let other = rng.usize(slot..pool.len());
        pool.swap(slot, other);
    }
    pool.truncate(count);
    pool
}
