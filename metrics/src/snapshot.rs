//! What the region says at one moment: base plus live lanes.
//!
//! Counters and histograms are the base and every lane that is not yet folded; gauges are live
//! lanes only. The commit word is read before and after (see `fold`), so a snapshot never counts
//! a lane twice or not at all because it was folded meanwhile.

mod assemble;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::assemble::assemble;
use crate::catalog::Aggregation;
use crate::directory::{Entry, LANES, ORPHAN, bit};
use crate::fold::Commit;
use crate::key::{self, Entity, FamilyKey};
use crate::layout::head;
use crate::shared::{Holder, Shared};
use crate::sync::{Ordering, fence};

/// Looks at a region in which folds follow each other; each looks at everything.
const LOOKS: usize = if cfg!(loom) { 2 } else { 64 };

/// All families, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Sorted by name; each with at least one sample.
    pub families: Vec<Family>,
    /// Descriptors whose checksum or offsets are wrong: their series are missing.
    pub damaged: usize,
}

/// The samples of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Full name.
    pub name: String,
    /// From this program's catalog; empty when another release wrote the family.
    pub help: &'static str,
    /// Sorted by labels.
    pub samples: Vec<Sample>,
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name and value, in the family's order.
    pub labels: Vec<(String, String)>,
    /// Of the kind that all samples of the family have.
    pub value: Value,
}

/// The value of a series, in the exported unit.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Total over all processes that ever were.
    Counter(u64),
    /// Of live processes.
    Gauge(f64),
    /// Total over all processes that ever were.
    Histogram {
        /// Upper bounds.
        bounds: Vec<f64>,
        /// Values in each bucket alone, one more than there are bounds.
        counts: Vec<u64>,
        /// Sum of all values.
        sum: f64,
    },
}

/// What makes series appear and disappear together: a rule, a target, or a target of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Scope<'a> {
    rule: Option<&'a str>,
    target: Option<&'a str>,
}

/// A decoded descriptor of a series or a record.
pub(crate) struct Item {
    pub(crate) entry: Entry,
    /// `None` for a record.
    pub(crate) family: Option<Arc<FamilyKey>>,
    /// The label values; of a record, rule and target.
    pub(crate) values: Vec<String>,
}

impl Item {
    /// `None` for what belongs to the whole instance.
    pub(crate) fn scope(&self) -> Option<Scope<'_>> {
        let value = |at: Option<usize>| at.and_then(|at| self.values.get(at)).map(String::as_str);
        let (rule, target) = match &self.family {
            Some(family) => {
                let of = |name| value(family.labels.iter().position(|label| label == name));
                (of("rule"), of("target"))
            }
            None => (value(Some(0)), value(Some(1))),
        };
        (rule.is_some() || target.is_some()).then_some(Scope { rule, target })
    }
}

/// A region in which folds followed each other so fast that no whole look was possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the metrics region changed under every one of {LOOKS} looks")]
pub struct Busy;

/// What was exported before: a counter is never exported lower.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// By descriptor: the state word of its owner then, and the cells.
    seen: Vec<(u64, Vec<u64>)>,
}

impl Guard {
    /// Raises each cell to what it was before.
    fn raise(&mut self, entry: &Entry, cells: &mut [u64]) {
        if self.seen.len() <= entry.index {
            self.seen.resize_with(entry.index + 1, Default::default);
        }
        let Some((owner, seen)) = self.seen.get_mut(entry.index) else { return };
        if *owner != entry.state {
            *owner = entry.state;
            seen.clear();
        }
        seen.resize(cells.len(), 0);
        for (cell, seen) in cells.iter_mut().zip(seen) {
            *cell = (*cell).max(*seen);
            *seen = *cell;
        }
    }
}

impl Shared {
    /// Every series and record, decoded.
    pub(crate) fn items(&self) -> Vec<Item> {
        self.decode().0
    }

    /// How many descriptors are damaged.
    pub(crate) fn damaged(&self) -> usize {
        self.decode().1
    }

    /// Every series and record, and how many descriptors are damaged.
    fn decode(&self) -> (Vec<Item>, usize) {
        let mut damaged = 0;
        let mut families: HashMap<usize, Arc<FamilyKey>> = HashMap::new();
        let mut rest = Vec::new();
        for index in 0..self.layout.descriptors.len() {
            match self.entry(index) {
                Ok(entry) if entry.meta.entity == Entity::Family => {
                    match FamilyKey::decode(&entry.key) {
                        Some(family) => drop(families.insert(index, Arc::new(family))),
                        None => damaged += 1,
                    }
                }
                Ok(entry) => rest.push(entry),
                Err(crate::directory::Absent::Unused) => {}
                Err(crate::directory::Absent::Damaged) => damaged += 1,
            }
        }
        let mut items = Vec::with_capacity(rest.len());
        for entry in rest {
            match item(entry, &families) {
                Some(item) => items.push(item),
                None => damaged += 1,
            }
        }
        (items, damaged)
    }

    /// A consistent look at everything. The gauges of lanes that `live` denies are left out.
    pub(crate) fn snapshot(
        &self,
        live: impl Fn(&Holder) -> bool,
        guard: &mut Guard,
    ) -> Result<Snapshot, Busy> {
        let (mut raw, damaged) = self.consistently(|commit, holders| {
            let held: Vec<(usize, bool)> =
                holders.iter().map(|holder| (holder.lane, live(holder))).collect();
            let (items, damaged) = self.decode();
            let raw: Vec<(Item, Vec<u64>)> = self
                .visible(items)
                .into_iter()
                .filter_map(|item| {
                    let cells = self.cells(&item, commit, &held)?;
                    self.unchanged(item.entry.index, item.entry.state).then_some((item, cells))
                })
                .collect();
            (raw, damaged)
        })?;
        for (item, cells) in &mut raw {
            if matches!(item.entry.meta.entity, Entity::Counter | Entity::Histogram) {
                guard.raise(&item.entry, cells);
            }
        }
        let dropped = self.words.load(head::DROPPED, Ordering::Relaxed);
        Ok(Snapshot { families: assemble(raw, dropped), damaged })
    }

    /// Looks until no fold has come between: `look` is given the commit and the lanes that are
    /// not yet in the base it names.
    pub(crate) fn consistently<T>(
        &self,
        mut look: impl FnMut(Commit, &[Holder]) -> T,
    ) -> Result<T, Busy> {
        for _ in 0..LOOKS {
            let commit = self.commit();
            let holders: Vec<Holder> =
                self.held_lanes().filter(|holder| commit.excluded() != Some(holder.lane)).collect();
            let seen = look(commit, &holders);
            fence(Ordering::Acquire);
            if Commit(self.words.load(head::COMMIT, Ordering::Relaxed)) == commit {
                return Ok(seen);
            }
        }
        Err(Busy)
    }

    /// The series to export: not those of rules and targets that no process holds any more.
    /// While no worker lives, all are.
    fn visible(&self, mut items: Vec<Item>) -> Vec<Item> {
        items.retain(|item| item.family.is_some());
        if !self.has_worker() {
            return items;
        }
        let unheld = |item: &Item| item.entry.users & (LANES | ORPHAN) == 0;
        if !items.iter().any(unheld) {
            return items;
        }
        let held: HashSet<Scope<'_>> =
            items.iter().filter(|item| !unheld(item)).filter_map(Item::scope).collect();
        let gone: HashSet<usize> = items
            .iter()
            .filter(|item| unheld(item))
            .filter(|item| item.scope().is_some_and(|scope| !held.contains(&scope)))
            .map(|item| item.entry.index)
            .collect();
        items.retain(|item| !gone.contains(&item.entry.index));
        items
    }

    /// The cells of a series over all processes; `None` for a gauge that no live process has.
    fn cells(&self, item: &Item, commit: Commit, held: &[(usize, bool)]) -> Option<Vec<u64>> {
        let room = item.entry.room;
        let cells = room.first..room.first + room.count;
        match item.entry.meta.entity {
            Entity::Counter | Entity::Histogram => Some(
                cells
                    .map(|cell| {
                        let base = self
                            .base_cell(commit.copy(), cell)
                            .map_or(0, |word| self.words.load(word, Ordering::Relaxed));
                        held.iter().fold(base, |sum, (lane, _)| {
                            sum.wrapping_add(self.lane_value(*lane, cell))
                        })
                    })
                    .collect(),
            ),
            Entity::Gauge => {
                let having = held
                    .iter()
                    .filter(|(lane, live)| *live && item.entry.users & bit(*lane) != 0)
                    .map(|(lane, _)| *lane);
                let aggregation = item.family.as_ref()?.aggregation;
                let value = match aggregation {
                    Aggregation::Sum => having
                        .map(|lane| self.lane_value(lane, room.first))
                        .reduce(u64::wrapping_add),
                    Aggregation::Newest => having
                        .max_by_key(|lane| self.claim_number(*lane))
                        .map(|lane| self.lane_value(lane, room.first)),
                };
                value.map(|value| vec![value])
            }
            Entity::Family | Entity::Record => None,
        }
    }
}

/// Decodes a series or a record; `None` when it contradicts itself or its family.
fn item(entry: Entry, families: &HashMap<usize, Arc<FamilyKey>>) -> Option<Item> {
    if entry.meta.entity == Entity::Record {
        let (rule, target) = key::record_scope(&entry.key)?;
        return Some(Item { entry, family: None, values: vec![rule, target] });
    }
    let family = families.get(&(entry.meta.family as usize))?;
    let values = key::series_values(&entry.key, entry.meta)?;
    if family.entity != entry.meta.entity
        || family.cells() != entry.room.count
        || family.labels.len() != values.len()
    {
        return None;
    }
    Some(Item { family: Some(Arc::clone(family)), entry, values })
}

#[cfg(all(test, not(loom)))]
mod tests;
