//! Which two lines race, and which one comes next.
//!
//! The score of a line is its mean connect time, 1 s when it never succeeded, plus 1 s for
//! each failure in a row; the lower wins, ties by configured order. The first pair is chosen
//! so that the unknown becomes known: beside the best known line races the least recently
//! tried unknown one, and when all are known and there are at least three, the one that was
//! left alone longest if that is 30 s or more.

use std::time::Duration;

use super::flights::Flights;
use crate::flow::{LineIndex, Moment};
use crate::upstream::Line;

/// What a line that never succeeded counts as, and what each failure in a row adds.
const SECOND: u64 = 1_000_000_000;
/// A known line left alone this long is explored.
pub(super) const EXPLORE_AFTER: Duration = Duration::from_secs(30);

/// The score of a line in nanoseconds; lower is better.
pub(super) fn score(line: &Line) -> u64 {
    let latency = match line.ewma_nanos() {
        0 => SECOND,
        nanos => nanos,
    };
    latency.saturating_add(SECOND.saturating_mul(u64::from(line.streak())))
}

/// The best line that is untried and usable.
pub(super) fn best(flights: &Flights, now: Moment) -> Option<LineIndex> {
    // `min_by_key` keeps the first of equals, which is the configured order.
    flights.open(now).min_by_key(|&line| score(flights.lines.line(line)))
}

/// The pair to race.
pub(super) fn top_two(flights: &Flights, now: Moment) -> [Option<LineIndex>; 2] {
    pair(flights.open(now), |line| flights.lines.line(line), now)
}

/// The pair to race out of `usable`.
pub(super) fn pair<'a>(
    usable: impl Iterator<Item = LineIndex>,
    line: impl Fn(LineIndex) -> &'a Line,
    now: Moment,
) -> [Option<LineIndex>; 2] {
    // (score or moment, line): the two best known, the two longest untried of all known, the
    // first two unknown in order and the least recently tried unknown.
    let mut best: [Option<(u64, LineIndex)>; 2] = [None; 2];
    let mut idle: [Option<(u64, LineIndex)>; 2] = [None; 2];
    let mut unknown: [Option<LineIndex>; 2] = [None; 2];
    let mut forgotten: Option<(u64, LineIndex)> = None;
    let mut known = 0u32;
    for index in usable {
        let line = line(index);
        let tried = line.last_attempt().0;
        if line.ewma_nanos() == 0 {
            if forgotten.is_none_or(|(at, _)| tried < at) {
                forgotten = Some((tried, index));
            }
            if let Some(free) = unknown.iter_mut().find(|slot| slot.is_none()) {
                *free = Some(index);
            }
        } else {
            known += 1;
            lowest_two(&mut best, (score(line), index));
            lowest_two(&mut idle, (tried, index));
        }
    }
    let Some((_, first)) = best[0] else {
        return unknown;
    };
    if let Some((_, unknown)) = forgotten {
        return [Some(first), Some(unknown)];
    }
    let explored = idle
        .into_iter()
        .flatten()
        .find(|&(_, line)| line != first)
        .filter(|&(tried, _)| known >= 3 && now.since(Moment(tried)) >= EXPLORE_AFTER);
    [Some(first), explored.or(best[1]).map(|(_, line)| line)]
}

/// Keeps the two lowest in order; an equal one stays behind those that came earlier.
fn lowest_two(slots: &mut [Option<(u64, LineIndex)>; 2], new: (u64, LineIndex)) {
    if slots[0].is_none_or(|(value, _)| new.0 < value) {
        slots[1] = slots[0];
        slots[0] = Some(new);
    } else if slots[1].is_none_or(|(value, _)| new.0 < value) {
        slots[1] = Some(new);
    }
}
