//! From cells to families: units, names, and what to do when two releases disagree.

use std::collections::{BTreeMap, HashMap};

use super::{Family, Item, Sample, Value};
use crate::catalog::{self, Unit};
use crate::key::{Entity, FamilyKey};

/// Name and labels.
type SeriesName = (String, Vec<(String, String)>);

/// Families of the same name and type become one; of two series with the same labels the one of
/// the newer family stays, and two descriptors of one series are added up.
pub(super) fn assemble(raw: Vec<(Item, Vec<u64>)>, dropped: u64) -> Vec<Family> {
    let mut types: HashMap<String, (Entity, u64)> = HashMap::new();
    let mut series: BTreeMap<SeriesName, (Item, Vec<u64>)> = BTreeMap::new();
    for (item, cells) in raw {
        let Some(family) = &item.family else { continue };
        let known = types.entry(family.name.clone()).or_insert((family.entity, item.entry.created));
        if item.entry.created > known.1 {
            *known = (family.entity, item.entry.created);
        }
        let labels = family.labels.iter().cloned().zip(item.values.iter().cloned()).collect();
        let key = (family.name.clone(), labels);
        match series.get_mut(&key) {
            Some((other, total)) if other.entry.meta.family == item.entry.meta.family => {
                for (total, cell) in total.iter_mut().zip(cells) {
                    *total = total.wrapping_add(cell);
                }
            }
            Some((other, _)) if other.entry.created > item.entry.created => {}
            Some(_) | None => drop(series.insert(key, (item, cells))),
        }
    }
    let mut families: Vec<Family> = Vec::new();
    for ((name, labels), (item, cells)) in series {
        let Some(family) = item.family else { continue };
        if types.get(&name).is_some_and(|(entity, _)| *entity != family.entity) {
            continue;
        }
        let sample = Sample { labels, value: value(&family, &cells) };
        match families.last_mut() {
            Some(last) if last.name == name => last.samples.push(sample),
            Some(_) | None => {
                let help = catalog::find(&name).map_or("", |metric| metric.help);
                families.push(Family { name, help, samples: vec![sample] });
            }
        }
    }
    add_dropped(&mut families, dropped);
    families
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
