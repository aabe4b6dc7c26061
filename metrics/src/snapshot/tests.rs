#![allow(clippy::unwrap_used)]
use super::*;
use crate::catalog::Unit;
use crate::key::Meta;
use crate::layout::Counts;

fn region() -> Shared {
    let counts = Counts { lanes: 2, series: 16, cells: 64, arena: 256, records: 1, block: 32 };
    Shared::in_memory(&counts, 2048)
}

fn family(entity: Entity, labels: &[&str], bounds: &[u64]) -> FamilyKey {
    FamilyKey {
        name: "baton_thing".to_owned(),
        entity,
        aggregation: Aggregation::Sum,
        unit: Unit::Number,
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        bounds: bounds.to_vec(),
    }
}

/// Registers a series as a release with this family would, with `total` in the base.
fn add(shared: &Shared, family: &FamilyKey, values: &[&str], total: u64, created: u64) -> usize {
    let meta = Meta { entity: Entity::Family, family: 0 };
    let index = shared.register(0, meta, &family.encode(), 0, &mut 0).unwrap().descriptor;
    let meta = Meta { entity: family.entity, family: u32::try_from(index).unwrap() };
    let key = key::series(meta, values);
    let series = shared.register(0, meta, &key, family.cells(), &mut 0).unwrap();
    let cell = shared.base_cell(0, series.room.first).unwrap();
    shared.words.fetch_add(cell, total);
    let descriptor = shared.descriptor(series.descriptor).unwrap();
    descriptor[crate::layout::desc::CREATED].store(created, Ordering::Relaxed);
    shared.repair(series.descriptor);
    series.descriptor
}

fn samples(shared: &Shared) -> Vec<Sample> {
    let snapshot = shared.snapshot(|_| true, &mut Guard::default()).unwrap();
    let family = snapshot.families.into_iter().find(|family| family.name == "baton_thing");
    family.map_or_else(Vec::new, |family| family.samples)
}

#[test]
fn of_two_bucket_schemas_for_the_same_labels_the_newer_is_exported() {
    let shared = region();
    add(&shared, &family(Entity::Histogram, &["rule"], &[1, 2]), &["web"], 7, 20);
    add(&shared, &family(Entity::Histogram, &["rule"], &[5]), &["web"], 3, 10);
    let [sample] = samples(&shared).try_into().unwrap();
    assert!(matches!(sample.value, Value::Histogram { bounds, .. } if bounds == [1.0, 2.0]));
}

#[test]
fn when_releases_disagree_about_the_type_the_newest_decides() {
    let shared = region();
    add(&shared, &family(Entity::Counter, &["rule"], &[]), &["old"], 7, 10);
    add(&shared, &family(Entity::Histogram, &["rule"], &[5]), &["new"], 3, 20);
    let [sample] = samples(&shared).try_into().unwrap();
    assert_eq!(sample.labels, [("rule".to_owned(), "new".to_owned())]);
}

#[test]
fn a_release_with_one_more_label_does_not_hide_the_series_of_the_other() {
    let shared = region();
    add(&shared, &family(Entity::Counter, &["rule"], &[]), &["web"], 7, 10);
    add(&shared, &family(Entity::Counter, &["rule", "mode"], &[]), &["web", "tls"], 3, 20);
    let totals: Vec<Value> = samples(&shared).into_iter().map(|sample| sample.value).collect();
    assert_eq!(totals, [Value::Counter(7), Value::Counter(3)]);
}

#[test]
fn two_descriptors_of_one_series_are_added_up() {
    let shared = region();
    let counter = family(Entity::Counter, &["rule"], &[]);
    add(&shared, &counter, &["web"], 7, 10);
    // The slot is lost, as in the race that the directory names as its limit.
    for slot in 0..shared.layout.slots.len() {
        let word = shared.layout.slots.at(slot).unwrap();
        let family_slot = shared.words.load(word, Ordering::Relaxed) & 0xFFFF_FFFF == 1;
        if !family_slot {
            shared.words.store(word, 0, Ordering::Relaxed);
        }
    }
    add(&shared, &counter, &["web"], 3, 20);
    let [sample] = samples(&shared).try_into().unwrap();
    assert_eq!(sample.value, Value::Counter(10));
}

#[test]
fn a_counter_that_lost_something_is_not_exported_lower() {
    let shared = region();
    let index = add(&shared, &family(Entity::Counter, &[], &[]), &[], 1000, 10);
    let mut guard = Guard::default();
    let total = |guard: &mut Guard| {
        let snapshot = shared.snapshot(|_| true, guard).unwrap();
        let family = snapshot.families.into_iter().find(|family| family.name == "baton_thing");
        family.unwrap().samples.remove(0).value
    };
    assert_eq!(total(&mut guard), Value::Counter(1000));
    let cell = shared.base_cell(0, shared.entry(index).unwrap().room.first).unwrap();
    shared.words.store(cell, 900, Ordering::Relaxed);
    assert_eq!(total(&mut guard), Value::Counter(1000));
    shared.words.store(cell, 1001, Ordering::Relaxed);
    assert_eq!(total(&mut guard), Value::Counter(1001));
}
