//! A lane: the cells of one live process, and the registration of what it counts.
//!
//! A lane is claimed with one exchange of its owner word, so a process that dies while claiming
//! leaves either nothing or a lane that the supervisor folds. It owns blocks of the pool only
//! for the series that it has registered.
//!
//! Handles hold their series: when the last clone in this process is dropped (its generation
//! has drained), the lane lets the series go, and the series of a rule that no lane holds any
//! more disappears from the export.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::catalog::{Aggregation, CounterDef, GaugeDef, HistogramDef, Label, Metric};
use crate::cell::{Counter, Gauge, Histogram};
use crate::key::{self, Entity, FamilyKey, Meta};
use crate::layout::{LANE_CLAIM, LANE_NAMESPACE, LANE_OWNER, MAX_KEY, RECORD_PAYLOAD_WORDS, head};
use crate::owner::{Owner, pid_namespace};
use crate::record::Record;
use crate::shared::Shared;
use crate::sync::{AtomicU64, Ordering};
use crate::words::Words;

/// Lanes one process may have.
const MAX_SHARDS: usize = 8;

/// The cells of one process. Clones are the same lane. Dropping it frees nothing: the counts
/// belong to the region until the supervisor folds them.
#[derive(Clone)]
pub struct Lane {
    inner: Arc<LaneInner>,
}

pub(crate) struct LaneInner {
    shared: Arc<Shared>,
    /// `None` when no lane was free: then every series is process-local.
    index: Option<usize>,
    /// The process's first lane, when this is one more for a thread.
    first: Option<Arc<LaneInner>>,
    book: Mutex<Book>,
}

/// What this process has registered.
#[derive(Default)]
struct Book {
    series: HashMap<Vec<u8>, Entered>,
    entries: u64,
    /// Where the last search for a reusable descriptor ended.
    cursor: usize,
}

struct Entered {
    number: u64,
    series: Weak<Series>,
}

/// A registered series; alive while a handle is.
pub(crate) struct Series {
    home: Home,
    first: usize,
    lane: Arc<LaneInner>,
    /// `None` for one without room in the region.
    descriptor: Option<usize>,
    key: Vec<u8>,
    number: u64,
    gauge: bool,
    /// Held while this process writes a record.
    pub(crate) writing: Mutex<()>,
}

/// Where the cells are.
enum Home {
    Region(Arc<Shared>),
    Process(Words),
}

impl Series {
    /// The cell `offset` places behind the first.
    #[inline]
    pub(crate) fn cell(&self, offset: usize) -> Option<&AtomicU64> {
        match &self.home {
            Home::Region(shared) => shared.words.get(self.first + offset),
            Home::Process(words) => words.get(offset),
        }
    }

    /// The first word of a record.
    pub(crate) fn record_words(&self) -> (&Words, usize) {
        match &self.home {
            Home::Region(shared) => (&shared.words, self.first),
            Home::Process(words) => (words, 0),
        }
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        let mut book = self.lane.book();
        // A registration that came between the last handle and this lock has made a new entry;
        // then the series is still held.
        if book.series.get(&self.key).is_none_or(|entered| entered.number != self.number) {
            return;
        }
        book.series.remove(&self.key);
        if let (Some(index), Some(descriptor)) = (self.lane.index, self.descriptor) {
            if self.gauge
                && let Some(cell) = self.cell(0)
            {
                cell.store(0, Ordering::Relaxed);
            }
            self.lane.shared.let_go(descriptor, index);
        }
    }
}

impl Lane {
    /// Claims a free lane for `owner`; when none is free the lane counts in process memory.
    pub(crate) fn claim(shared: Arc<Shared>, owner: Owner) -> Self {
        let free = (0..shared.layout.lanes.len()).find(|lane| {
            shared.layout.lanes.at(*lane).is_some_and(|entry| {
                shared.words.swap_if(entry + LANE_OWNER, Owner::NOBODY, owner.0)
            })
        });
        if let Some(entry) = free.and_then(|lane| shared.layout.lanes.at(lane)) {
            let before = shared.words.fetch_add(head::CLAIMS, 1).unwrap_or(0);
            shared.words.store(entry + LANE_CLAIM, before.wrapping_add(1), Ordering::Relaxed);
            shared.words.store(entry + LANE_NAMESPACE, pid_namespace(), Ordering::Relaxed);
        }
        Self::on(shared, free, None)
    }

    /// The lane `owner` already has (an image that replaced itself under the same number goes
    /// on in its own lane), else a free one.
    pub(crate) fn resume(shared: Arc<Shared>, owner: Owner) -> Self {
        match shared.lane_of(owner) {
            Some(lane) => Self::on(shared, Some(lane), None),
            None => Self::claim(shared, owner),
        }
    }

    fn on(shared: Arc<Shared>, index: Option<usize>, first: Option<Arc<LaneInner>>) -> Self {
        Self { inner: Arc::new(LaneInner { shared, index, first, book: Mutex::default() }) }
    }

    /// Lanes for `count` threads of this process, so that they do not contend for cells. The
    /// first is this lane; up to seven are further ones, and more threads share these in turn.
    /// What the region has no room for in a further lane counts in the first. Sums may be begun
    /// on one thread and ended on another; gauges that do not add up and records are the
    /// process's, whichever thread asks.
    #[must_use]
    pub fn shards(&self, count: usize) -> Vec<Self> {
        let mut lanes = vec![self.clone()];
        let owner = self.inner.index.and_then(|index| self.inner.shared.owner(index));
        if let Some(owner) = owner {
            while lanes.len() < count.min(MAX_SHARDS) {
                let further = Self::claim(Arc::clone(&self.inner.shared), owner);
                let Some(index) = further.inner.index else { break };
                let first = Arc::clone(&self.inner);
                lanes.push(Self::on(Arc::clone(&self.inner.shared), Some(index), Some(first)));
            }
        }
        let own = lanes.clone();
        own.into_iter().cycle().take(count).collect()
    }

    /// Whether the region had no free lane, so that nothing counted here is exported.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.inner.index.is_none()
    }

    /// The counter of this metric and these labels (name and value, any order, the names those
    /// of the catalog). Registering again gives the same counter.
    #[must_use]
    pub fn counter(&self, metric: &CounterDef, labels: &[(&str, &str)]) -> Counter {
        Counter::new(self.series(metric.metric(), labels))
    }

    /// The gauge of this metric and these labels; see [`counter`](Self::counter). It starts at
    /// zero and is zero again when its last handle is dropped.
    #[must_use]
    pub fn gauge(&self, metric: &GaugeDef, labels: &[(&str, &str)]) -> Gauge {
        Gauge::new(self.series(metric.metric(), labels))
    }

    /// The histogram of this metric and these labels; see [`counter`](Self::counter).
    #[must_use]
    pub fn histogram(&self, metric: &HistogramDef, labels: &[(&str, &str)]) -> Histogram {
        Histogram::new(self.series(metric.metric(), labels), metric.bounds())
    }

    /// What the line `target` of `rule` has learned. It is shared by all processes and outlives
    /// them; `schema` is the number of the payload's meaning, and another number is another
    /// record.
    #[must_use]
    pub fn record(&self, schema: u16, rule: &str, target: &str) -> Record {
        let key = key::record(schema, rule, target);
        let meta = Meta { entity: Entity::Record, family: 0 };
        Record::new(self.first().enter(meta, key, 1, RECORD_PAYLOAD_WORDS + 2))
    }

    /// The process's first lane.
    fn first(&self) -> Self {
        let inner = self.inner.first.as_ref().unwrap_or(&self.inner);
        Self { inner: Arc::clone(inner) }
    }

    fn series(&self, metric: &Metric, labels: &[(&str, &str)]) -> Arc<Series> {
        let family = FamilyKey::of(metric);
        if family.aggregation == Aggregation::Newest && self.inner.first.is_some() {
            return self.first().series(metric, labels);
        }
        let cells = family.cells();
        let known =
            labels.iter().all(|(name, _)| metric.labels.iter().any(|label| label.name == *name));
        debug_assert!(
            known && labels.len() == metric.labels.len(),
            "{} has the labels {:?}, not {labels:?}",
            metric.name,
            metric.labels
        );
        let value = |wanted: &Label| {
            labels.iter().find(|(name, _)| *name == wanted.name).map_or("", |(_, value)| *value)
        };
        let values: Vec<&str> = metric.labels.iter().map(value).collect();
        let descriptor = self.inner.family(&family.encode());
        let meta = Meta { entity: family.entity, family: descriptor.unwrap_or(u32::MAX) };
        let mut key = key::series(meta, &values);
        if descriptor.is_none() {
            // Two families without room must still be two, and neither may find a place.
            key.extend_from_slice(metric.name.as_bytes());
            key.resize(key.len().max(MAX_KEY + 1), 0);
        }
        self.enter(meta, key, cells, cells)
    }

    /// The series of `key`: the one in the book, else a registered one, else a local one of
    /// `local` words.
    fn enter(&self, meta: Meta, key: Vec<u8>, cells: usize, local: usize) -> Arc<Series> {
        let inner = &self.inner;
        let mut book = inner.book();
        if let Some(series) = book.series.get(&key).and_then(|entered| entered.series.upgrade()) {
            return series;
        }
        book.entries += 1;
        let number = book.entries;
        let placed = inner.place(&mut book, meta, &key, cells);
        if placed.is_none() && inner.first.is_some() {
            return self.first().enter(meta, key, cells, local);
        }
        let (home, first, descriptor) = match placed {
            Some((descriptor, first)) => {
                (Home::Region(Arc::clone(&inner.shared)), first, Some(descriptor))
            }
            None => {
                inner.shared.count_dropped();
                (Home::Process(Words::heap(local)), 0, None)
            }
        };
        let series = Arc::new(Series {
            home,
            first,
            lane: Arc::clone(inner),
            descriptor,
            key: key.clone(),
            number,
            gauge: meta.entity == Entity::Gauge,
            writing: Mutex::default(),
        });
        book.series.insert(key, Entered { number, series: Arc::downgrade(&series) });
        series
    }
}

impl LaneInner {
    fn book(&self) -> MutexGuard<'_, Book> {
        // The book is consistent between statements: a panic elsewhere must not end counting.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of a family.
    fn family(&self, key: &[u8]) -> Option<u32> {
        let meta = Meta { entity: Entity::Family, family: 0 };
        let mut book = self.book();
        let registered = self.shared.register(self.index?, meta, key, 0, &mut book.cursor)?;
        u32::try_from(registered.descriptor).ok()
    }

    /// Registers a series and sees to it that the lane has its block: descriptor and index of
    /// the first word.
    fn place(
        &self,
        book: &mut Book,
        meta: Meta,
        key: &[u8],
        cells: usize,
    ) -> Option<(usize, usize)> {
        let lane = self.index?;
        let registered = self.shared.register(lane, meta, key, cells, &mut book.cursor)?;
        let first = registered.room.first;
        let word = if registered.room.record {
            self.shared.layout.records.at(first)
        } else {
            self.shared.own_block(lane, first, self.first.is_some())
        };
        match word {
            Some(word) => Some((registered.descriptor, word)),
            None => {
                self.shared.let_go(registered.descriptor, lane);
                None
            }
        }
    }
}

impl Shared {
    /// Index of the word that is `cell` of `lane`, with a block taken from the pool if the lane
    /// has none there. Only the lane's owner calls it, under its book's lock. A `further` lane
    /// of a process leaves half of the pool to first lanes.
    pub(crate) fn own_block(&self, lane: usize, cell: usize, further: bool) -> Option<usize> {
        if let Some(word) = self.lane_cell(lane, cell) {
            return Some(word);
        }
        let table = self.table_word(lane, cell)?;
        let owners = self.layout.owners;
        let is_free = |block: usize| {
            owners.at(block).is_some_and(|owner| self.words.load(owner, Ordering::Relaxed) == 0)
        };
        if further && (0..owners.len()).filter(|block| is_free(*block)).count() * 2 <= owners.len()
        {
            return None;
        }
        // A block is zeroed before it is freed, so a claimed one is ready for use. A process
        // that dies between claim and table entry leaves a block that its fold frees.
        let block = (0..owners.len()).find(|block| {
            owners.at(*block).is_some_and(|owner| self.words.swap_if(owner, 0, lane as u64 + 1))
        })?;
        self.words.store(table, block as u64 + 1, Ordering::Release);
        self.lane_cell(lane, cell)
    }
}
