//! Narrowing by labels: an index from label values to lines, and its use in a rule.
//!
//! The index is built for the key combinations somebody asks for. Each label value has a
//! bitmap of the lines that carry it; the members of a combination of values are the
//! intersection, and only combinations that occur are kept. So building costs one pass over
//! the labels plus a few machine words a combination, and a look-up costs one hash probe for
//! each key and one for the whole, however many lines there are.

use std::collections::{BTreeMap, HashMap};

use baton_config::model::{Rule, Subset, SubsetFallback};
use smallvec::SmallVec;

use super::NoRoute;
use crate::flow::{Candidates, LineIndex, Moment};
use crate::upstream::LineSet;

/// The labels of one target.
pub type Labels = BTreeMap<String, String>;

/// A set of positions, 64 to a word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Bitmap(Vec<u64>);

impl Bitmap {
    fn new(positions: usize) -> Self {
        Self(vec![0; positions.div_ceil(64)])
    }

    fn insert(&mut self, position: usize) {
        if let Some(word) = self.0.get_mut(position / 64) {
            *word |= 1 << (position % 64);
        }
    }

    fn contains(&self, position: usize) -> bool {
        self.0.get(position / 64).is_some_and(|word| word & (1 << (position % 64)) != 0)
    }

    /// The positions in both; `None` when there is none.
    fn and(&self, other: &Self) -> Option<Self> {
        let both: Vec<u64> = self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect();
        both.iter().any(|&word| word != 0).then_some(Self(both))
    }

    fn positions(&self) -> impl Iterator<Item = LineIndex> {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = usize::try_from(rest.trailing_zeros()).ok().filter(|_| rest != 0)?;
                rest &= rest - 1;
                u16::try_from(index * 64 + bit).ok().map(LineIndex)
            })
        })
    }
}

/// A label value, numbered over all keys.
type ValueId = u32;

/// The values of one key.
#[derive(Debug, Default)]
struct Values {
    ids: HashMap<Box<str>, ValueId>,
    bitmaps: Vec<(ValueId, Bitmap)>,
}

/// From label values to the lines that carry them all.
#[derive(Debug, Default)]
pub struct SubsetIndex {
    keys: HashMap<Box<str>, HashMap<Box<str>, ValueId>>,
    /// By the values in the order of their keys.
    members: HashMap<SmallVec<[ValueId; 4]>, Box<[LineIndex]>>,
}

impl SubsetIndex {
    /// Indexes the lines, whose labels are given in their order, by each of `combinations`
    /// (sets of keys; the order of keys in one does not matter).
    #[must_use]
    pub fn build<'a>(
        labels: impl ExactSizeIterator<Item = &'a Labels> + Clone,
        combinations: &[Vec<&str>],
    ) -> Self {
        let count = labels.len();
        let mut keys: BTreeMap<&str, Values> = BTreeMap::new();
        for &key in combinations.iter().flatten() {
            keys.entry(key).or_default();
        }
        let mut next: ValueId = 0;
        for (&key, values) in &mut keys {
            let mut slots: HashMap<&str, usize> = HashMap::new();
            for (position, labels) in labels.clone().enumerate() {
                let Some(value) = labels.get(key) else { continue };
                let slot = *slots.entry(value).or_insert_with(|| {
                    values.ids.insert(value.as_str().into(), next);
                    values.bitmaps.push((next, Bitmap::new(count)));
                    next += 1;
                    values.bitmaps.len() - 1
                });
                values.bitmaps[slot].1.insert(position);
            }
        }
        let mut members = HashMap::new();
        for combination in combinations {
            let mut combination = combination.clone();
            combination.sort_unstable();
            combination.dedup();
            let columns: Vec<&Values> =
                combination.iter().filter_map(|key| keys.get(key)).collect();
            collect(&columns, &SmallVec::new(), None, &mut members);
        }
        let keys = keys.into_iter().map(|(key, values)| (key.into(), values.ids)).collect();
        Self { keys, members }
    }

    /// The lines that carry all of `wanted`, in configured order; empty when none does, or when
    /// the index was not built for this combination of keys.
    #[must_use]
    pub fn lookup(&self, wanted: &Labels) -> &[LineIndex] {
        let ids: Option<SmallVec<[ValueId; 4]>> = wanted
            .iter()
            .map(|(key, value)| self.keys.get(key.as_str())?.get(value.as_str()).copied())
            .collect();
        ids.and_then(|ids| self.members.get(&ids)).map_or(&[], |members| members)
    }
}

/// Adds every combination of values that occurs, one column of values at a time.
fn collect(
    columns: &[&Values],
    chosen: &SmallVec<[ValueId; 4]>,
    within: Option<&Bitmap>,
    members: &mut HashMap<SmallVec<[ValueId; 4]>, Box<[LineIndex]>>,
) {
    let Some((column, rest)) = columns.split_first() else {
        if let Some(within) = within {
            members.insert(chosen.clone(), within.positions().collect());
        }
        return;
    };
    for (id, bitmap) in &column.bitmaps {
        let mut chosen = chosen.clone();
        chosen.push(*id);
        match within {
            None => collect(rest, &chosen, Some(bitmap), members),
            Some(within) => {
                if let Some(both) = within.and(bitmap) {
                    collect(rest, &chosen, Some(&both), members);
                }
            }
        }
    }
}

/// A rule's `subset`, compiled for one set of lines.
#[derive(Debug)]
pub struct Narrow {
    prefer: Vec<Bitmap>,
    fallback: SubsetFallback,
}

impl Narrow {
    /// Compiles `subset` for `lines` of `rule`.
    #[must_use]
    pub fn new(subset: &Subset, rule: &Rule, lines: &LineSet) -> Self {
        static NONE: Labels = Labels::new();
        let labels = lines.iter().map(|(_, node)| {
            rule.targets.get(usize::from(node.target)).map_or(&NONE, |target| &target.labels)
        });
        let combinations: Vec<Vec<&str>> =
            subset.prefer.iter().map(|set| set.keys().map(String::as_str).collect()).collect();
        let index = SubsetIndex::build(labels, &combinations);
        let prefer = subset
            .prefer
            .iter()
            .map(|set| {
                let mut bitmap = Bitmap::new(lines.len());
                if set.is_empty() {
                    // Asks nothing of a line, so every line is in it.
                    (0..lines.len()).for_each(|position| bitmap.insert(position));
                }
                for line in index.lookup(set) {
                    bitmap.insert(usize::from(line.0));
                }
                bitmap
            })
            .collect();
        Self { prefer, fallback: subset.fallback }
    }

    /// Keeps the candidates of the first preferred set with a usable line. A primary of a
    /// later set goes before the backups of an earlier one: backups wait for all primaries.
    ///
    /// # Errors
    /// When no preferred set has a usable line and the rule wants no other.
    pub(super) fn apply(
        &self,
        candidates: Candidates,
        lines: &LineSet,
        now: Moment,
    ) -> Result<Candidates, NoRoute> {
        for backup in [false, true] {
            for set in &self.prefer {
                let within = |line: &LineIndex| set.contains(usize::from(line.0));
                let serves = |&line: &LineIndex| {
                    let node = lines.node(line);
                    node.backup == backup && node.line.usable(now)
                };
                if candidates.iter().filter(|line| within(line)).any(serves) {
                    return Ok(candidates.into_iter().filter(within).collect());
                }
            }
        }
        match self.fallback {
            SubsetFallback::None => Err(NoRoute::NoSubset),
            SubsetFallback::Any => Ok(candidates),
        }
    }
}

#[cfg(test)]
mod tests;
