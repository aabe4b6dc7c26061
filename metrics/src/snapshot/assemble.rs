//! From cells to families: units, names, and what to do when two releases disagree.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Family, Item, Sample, Value};
use crate::catalog::{self, Unit};
use crate::key::{Entity, FamilyKey};

/// A series and its cells.
type Raw = (Item, Vec<u64>);

/// Families of the same name and type become one; when releases disagree about a name's type, the
/// newest series decides. Of two series with the same labels the one of the newer family stays,
/// and two descriptors of one series are added up.
pub(super) fn assemble(raw: Vec<Raw>, dropped: u64) -> Vec<Family> {
    let mut series: Vec<(Arc<FamilyKey>, Raw)> = raw
        .into_iter()
        .filter_map(|(item, cells)| Some((Arc::clone(item.family.as_ref()?), (item, cells))))
        .collect();
    series.sort_by(|(a_family, (a, _)), (b_family, (b, _))| {
        by_family(a_family, b_family).then_with(|| a.values.cmp(&b.values))
    });
    let mut families: Vec<Family> = Vec::new();
    for of_name in series.chunk_by_mut(|(a, _), (b, _)| a.name == b.name) {
        let newest = of_name.iter().max_by_key(|(_, (item, _))| item.entry.created);
        let Some((family, _)) = newest else { continue };
        let (entity, name) = (family.entity, family.name.clone());
        let mut samples: Vec<Sample> = Vec::with_capacity(of_name.len());
        let same_labels = |a: &(Arc<FamilyKey>, Raw), b: &(Arc<FamilyKey>, Raw)| {
            a.1.0.values == b.1.0.values && a.0.labels == b.0.labels
        };
        for of_labels in of_name.chunk_by_mut(same_labels) {
            samples.extend(merge(of_labels, entity));
        }
        let help = catalog::find(&name).map_or("", |metric| metric.help);
        families.push(Family { name, help, samples });
    }
    add_dropped(&mut families, dropped);
    families
}

/// By name, then by label names. Most comparisons are within one family.
fn by_family(a: &Arc<FamilyKey>, b: &Arc<FamilyKey>) -> Ordering {
    if Arc::ptr_eq(a, b) {
        return Ordering::Equal;
    }
    a.name.cmp(&b.name).then_with(|| a.labels.cmp(&b.labels))
}

/// One sample from all series of one name and the same labels, if any has the name's type.
fn merge(same: &mut [(Arc<FamilyKey>, Raw)], entity: Entity) -> Option<Sample> {
    let of_type = same.iter().filter(|(family, _)| family.entity == entity);
    let newest = of_type.max_by_key(|(_, (item, _))| item.entry.created)?;
    let (family, index) = (Arc::clone(&newest.0), newest.1.0.entry.meta.family);
    let mut total = vec![0u64; family.cells()];
    let mut values = Vec::new();
    for (_, (item, cells)) in same.iter_mut().filter(|(_, (i, _))| i.entry.meta.family == index) {
        for (total, cell) in total.iter_mut().zip(cells) {
            *total = total.wrapping_add(*cell);
        }
        values = std::mem::take(&mut item.values);
    }
    let labels = family.labels.iter().cloned().zip(values).collect();
    Some(Sample { labels, value: value(&family, &total) })
}

/// The count of series without room is no series itself, so that it always has room.
fn add_dropped(families: &mut Vec<Family>, dropped: u64) {
    let metric = catalog::DROPPED_SERIES.metric();
    let sample = Sample { labels: Vec::new(), value: Value::Counter(dropped) };
    let family = Family { name: metric.name.to_owned(), help: metric.help, samples: vec![sample] };
    match families.binary_search_by(|known| known.name.as_str().cmp(metric.name)) {
        Ok(at) => {
            if let Some(known) = families.get_mut(at) {
                *known = family;
            }
        }
        Err(at) => families.insert(at, family),
    }
}

fn value(family: &FamilyKey, cells: &[u64]) -> Value {
    match family.entity {
        Entity::Gauge => Value::Gauge(exported_signed(family.unit, cells.first().copied())),
        Entity::Histogram => {
            let (counts, sum) = cells.split_at_checked(family.bounds.len() + 1).unwrap_or_default();
            Value::Histogram {
                bounds: family.bounds.iter().map(|bound| exported(family.unit, *bound)).collect(),
                counts: counts.to_vec(),
                sum: exported(family.unit, sum.first().copied().unwrap_or(0)),
            }
        }
        Entity::Counter | Entity::Family | Entity::Record => {
            Value::Counter(cells.first().copied().unwrap_or(0))
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows nothing but doubles")]
fn exported(unit: Unit, stored: u64) -> f64 {
    match unit {
        Unit::Number | Unit::Bytes => stored as f64,
        Unit::Seconds => stored as f64 / 1e9,
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows nothing but doubles")]
fn exported_signed(unit: Unit, stored: Option<u64>) -> f64 {
    let stored = stored.unwrap_or(0).cast_signed();
    match unit {
        Unit::Number | Unit::Bytes => stored as f64,
        Unit::Seconds => stored as f64 / 1e9,
    }
}
