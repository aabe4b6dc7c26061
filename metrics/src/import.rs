//! Taking over the totals and learned state of another region: of another size, or full of
//! what earlier rules left.

use crate::directory::Entry;
use crate::key::{self, Entity, Meta};
use crate::layout::head;
use crate::shared::Shared;
use crate::snapshot::Item;
use crate::sync::Ordering;

/// Holds everything while it is taken over. Nobody has a lane of a region without a name.
const LANE: usize = 0;

impl Shared {
    /// Adds the base and the records of `old`, which no process uses any more, to this region,
    /// which none uses yet. What finds no room is counted as dropped. Everything taken over
    /// stays visible until a sweep finds its rule gone.
    pub(crate) fn import(&self, old: &Shared) {
        let mut cursor = 0;
        for item in old.items() {
            let moved = match item.entry.meta.entity {
                Entity::Counter | Entity::Histogram => self.import_series(old, &item, &mut cursor),
                Entity::Record => self.import_record(old, &item.entry, &mut cursor),
                // A gauge dies with its process; families come with their series.
                Entity::Gauge | Entity::Family => Some(()),
            };
            if moved.is_none() {
                self.count_dropped();
            }
        }
        let dropped = old.words.load(head::DROPPED, Ordering::Relaxed);
        self.words.fetch_add(head::DROPPED, dropped);
        self.forget_lane(LANE);
    }

    fn import_series(&self, old: &Shared, item: &Item, cursor: &mut usize) -> Option<()> {
        let family = item.family.as_ref()?;
        let meta = Meta { entity: Entity::Family, family: 0 };
        let registered = self.register(LANE, meta, &family.encode(), 0, cursor)?;
        let family = u32::try_from(registered.descriptor).ok()?;
        let meta = Meta { entity: item.entry.meta.entity, family };
        let values: Vec<&str> = item.values.iter().map(String::as_str).collect();
        let from = item.entry.room;
        let key = key::series(meta, &values);
        let to = self.register(LANE, meta, &key, from.count, cursor)?.room;
        for cell in 0..from.count {
            let total = old
                .base_cell(old.commit().copy(), from.first + cell)
                .map_or(0, |word| old.words.load(word, Ordering::Relaxed));
            self.words.fetch_add(self.base_cell(self.commit().copy(), to.first + cell)?, total);
        }
        Some(())
    }

    fn import_record(&self, old: &Shared, entry: &Entry, cursor: &mut usize) -> Option<()> {
        let to = self.register(LANE, entry.meta, &entry.key, entry.room.count, cursor)?.room;
        let (from, to) =
            (old.layout.records.at(entry.room.first)?, self.layout.records.at(to.first)?);
        for word in 0..old.layout.records.stride.min(self.layout.records.stride) as usize {
            let value = old.words.load(from + word, Ordering::Relaxed);
            self.words.store(to + word, value, Ordering::Relaxed);
        }
        Some(())
    }
}
