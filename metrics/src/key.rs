//! The keys of the directory: what makes two registrations the same series.
//!
//! A key is bytes. A *family* is name, type, aggregation, unit, label names and bucket bounds:
//! a release that changes one of them makes a new family, so old and new never share cells; the
//! help text is no part of it and comes from the reader's catalog. A *series* is its family's
//! descriptor and the label values; a *record* is its schema, rule and target.

use crate::catalog::{Aggregation, Kind, Metric, Unit};

/// What a descriptor describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Entity {
    Family,
    Counter,
    Gauge,
    Histogram,
    Record,
}

impl Entity {
    const ALL: [Self; 5] =
        [Self::Family, Self::Counter, Self::Gauge, Self::Histogram, Self::Record];

    fn code(self) -> u8 {
        match self {
            Self::Family => 1,
            Self::Counter => 2,
            Self::Gauge => 3,
            Self::Histogram => 4,
            Self::Record => 5,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|entity| entity.code() == code)
    }
}

/// The `meta` word of a descriptor: entity and, for a series, its family's descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) entity: Entity,
    pub(crate) family: u32,
}

impl Meta {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.entity.code()) | u64::from(self.family) << 32
    }

    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let [code, ..] = word.to_le_bytes();
        Some(Self { entity: Entity::from_code(code)?, family: crate::layout::high(word) })
    }
}

/// A family as the region describes it, readable without the catalog that wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FamilyKey {
    pub(crate) name: String,
    pub(crate) entity: Entity,
    pub(crate) aggregation: Aggregation,
    pub(crate) unit: Unit,
    pub(crate) labels: Vec<String>,
    /// Upper bounds in nanoseconds.
    pub(crate) bounds: Vec<u64>,
}

impl FamilyKey {
    pub(crate) fn of(metric: &Metric) -> Self {
        let (entity, aggregation, bounds) = match metric.kind {
            Kind::Counter => (Entity::Counter, Aggregation::Sum, Vec::new()),
            Kind::Gauge(aggregation) => (Entity::Gauge, aggregation, Vec::new()),
            Kind::Histogram(bounds) => (Entity::Histogram, Aggregation::Sum, bounds.to_vec()),
        };
        Self {
            name: metric.name.to_owned(),
            entity,
            aggregation,
            unit: metric.unit,
            labels: metric.labels.iter().map(|label| label.name.to_owned()).collect(),
            bounds,
        }
    }

    /// Cells a series of it takes: a histogram has one a bound, one for everything above and
    /// one for the sum.
    pub(crate) fn cells(&self) -> usize {
        match self.entity {
            Entity::Histogram => self.bounds.len() + 2,
            Entity::Counter | Entity::Gauge => 1,
            Entity::Family | Entity::Record => 0,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![
            Entity::Family.code(),
            self.entity.code(),
            self.aggregation.code(),
            self.unit.code(),
        ];
        put_text(&mut out, &self.name);
        put_count(&mut out, self.labels.len());
        for label in &self.labels {
            put_text(&mut out, label);
        }
        put_count(&mut out, self.bounds.len());
        for bound in &self.bounds {
            out.extend(bound.to_le_bytes());
        }
        out
    }

    /// `None` when the bytes are no well-formed family: also when a name is none Prometheus
    /// accepts or bounds do not rise.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Cursor(bytes);
        let [family, entity, aggregation, unit] = from.take()?;
        if family != Entity::Family.code() {
            return None;
        }
        let entity = Entity::from_code(entity)?;
        if matches!(entity, Entity::Family | Entity::Record) {
            return None;
        }
        let name = from.text()?;
        let labels = (0..from.count()?).map(|_| from.text()).collect::<Option<Vec<_>>>()?;
        let bounds = (0..from.count()?)
            .map(|_| from.take().map(u64::from_le_bytes))
            .collect::<Option<Vec<_>>>()?;
        let rising = bounds.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
        let named = is_name(&name) && labels.iter().all(|label| is_name(label));
        (from.0.is_empty() && rising && named && (entity == Entity::Histogram || bounds.is_empty()))
            .then_some(Self {
                name,
                entity,
                aggregation: Aggregation::from_code(aggregation)?,
                unit: Unit::from_code(unit)?,
                labels,
                bounds,
            })
    }
}

/// A series' key: its entity, its family's descriptor and the label values in the family's order.
pub(crate) fn series(meta: Meta, values: &[&str]) -> Vec<u8> {
    let mut out = vec![meta.entity.code()];
    out.extend(meta.family.to_le_bytes());
    for value in values {
        put_text(&mut out, value);
    }
    out
}

/// The label values of a series' key; `None` when it is no well-formed one for `meta`.
pub(crate) fn series_values(bytes: &[u8], meta: Meta) -> Option<Vec<String>> {
    let mut from = Cursor(bytes);
    let [entity] = from.take()?;
    if entity != meta.entity.code() || u32::from_le_bytes(from.take()?) != meta.family {
        return None;
    }
    let mut values = Vec::new();
    while !from.0.is_empty() {
        values.push(from.text()?);
    }
    Some(values)
}

/// A record's key.
pub(crate) fn record(schema: u16, rule: &str, target: &str) -> Vec<u8> {
    let mut out = vec![Entity::Record.code()];
    out.extend(schema.to_le_bytes());
    put_text(&mut out, rule);
    put_text(&mut out, target);
    out
}

/// Rule and target of a record's key.
pub(crate) fn record_scope(bytes: &[u8]) -> Option<(String, String)> {
    let mut from = Cursor(bytes);
    let [entity] = from.take()?;
    let [_, _] = from.take()?;
    let scope = (from.text()?, from.text()?);
    (entity == Entity::Record.code() && from.0.is_empty()).then_some(scope)
}

/// What Prometheus takes as a metric or label name (without the colon, which is for rules).
fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Length and bytes. A text too long for its length makes a key longer than any that gets a
/// place, so it is cut here only to keep the key well-formed.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend(length.to_le_bytes());
    out.extend(text.bytes().take(usize::from(length)));
}

/// Counts come from the catalog, whose tests keep them small.
fn put_count(out: &mut Vec<u8>, count: usize) {
    out.push(u8::try_from(count).unwrap_or(u8::MAX));
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn count(&mut self) -> Option<u8> {
        self.take().map(|[count]| count)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(u16::from_le_bytes(self.take()?));
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(head.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::catalog;

    #[test]
    fn every_family_of_the_catalog_survives_its_key() {
        for metric in catalog::all() {
            let family = FamilyKey::of(metric);
            let key = family.encode();
            assert!(key.len() <= crate::layout::MAX_KEY, "{}", metric.name);
            assert_eq!(FamilyKey::decode(&key), Some(family));
        }
    }

    #[test]
    fn a_cut_or_longer_key_is_refused() {
        let key = FamilyKey::of(catalog::DIAL_LATENCY_SECONDS.metric()).encode();
        for end in 0..key.len() {
            assert_eq!(FamilyKey::decode(&key[..end]), None, "cut at {end}");
        }
        assert_eq!(FamilyKey::decode(&[&key[..], b"x"].concat()), None);
    }

    #[test]
    fn label_values_survive_and_do_not_run_into_each_other() {
        let meta = Meta { entity: Entity::Counter, family: 7 };
        let key = series(meta, &["a", "bc", ""]);
        assert_eq!(series_values(&key, meta).unwrap(), ["a", "bc", ""]);
        assert_ne!(key, series(meta, &["ab", "c", ""]));
        assert_eq!(series_values(&key, Meta { family: 8, ..meta }), None);
    }

    #[test]
    fn a_name_that_prometheus_refuses_makes_no_family() {
        let mut family = FamilyKey::of(catalog::TASKS.metric());
        for name in ["", "9a", "a b", "a\nb", "ä"] {
            name.clone_into(&mut family.name);
            assert_eq!(FamilyKey::decode(&family.encode()), None, "{name:?}");
        }
    }
}
