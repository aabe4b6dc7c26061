//! The region as checked words with a known layout: what every other module works on.

use crate::layout::{DESCRIPTOR_WORDS, LANE_CLAIM, LANE_NAMESPACE, LANE_OWNER, Layout, low};
use crate::owner::{Owner, Role, pid_namespace};
use crate::sync::{AtomicU64, Ordering};
use crate::words::Words;

/// A region whose header has been checked.
pub(crate) struct Shared {
    pub(crate) words: Words,
    pub(crate) layout: Layout,
}

/// A held lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) lane: usize,
    pub(crate) owner: Owner,
    /// Whether its process number counts in our namespace.
    pub(crate) local: bool,
}

impl Holder {
    /// Whether its process is known to be dead. One of another namespace never is.
    pub(crate) fn is_dead(&self) -> bool {
        self.local && !self.owner.is_alive()
    }
}

/// The words of one descriptor.
pub(crate) type Descriptor = [AtomicU64; DESCRIPTOR_WORDS];

impl Shared {
    /// The descriptor `index`, if the region has it.
    pub(crate) fn descriptor(&self, index: usize) -> Option<&Descriptor> {
        let first = self.layout.descriptors.at(index)?;
        self.words.all().get(first..first + DESCRIPTOR_WORDS)?.try_into().ok()
    }

    /// Who holds `lane`; `None` when it is free.
    pub(crate) fn owner(&self, lane: usize) -> Option<Owner> {
        let entry = self.layout.lanes.at(lane)?;
        match self.words.load(entry + LANE_OWNER, Ordering::Acquire) {
            Owner::NOBODY => None,
            word => Some(Owner(word)),
        }
    }

    /// The lanes that are held.
    pub(crate) fn held_lanes(&self) -> impl Iterator<Item = Holder> + '_ {
        (0..self.layout.lanes.len()).filter_map(|lane| {
            let owner = self.owner(lane)?;
            let entry = self.layout.lanes.at(lane)?;
            let namespace = self.words.load(entry + LANE_NAMESPACE, Ordering::Relaxed);
            let local = namespace == 0 || namespace == pid_namespace();
            Some(Holder { lane, owner, local })
        })
    }

    /// Whether a worker holds a lane.
    pub(crate) fn has_worker(&self) -> bool {
        self.held_lanes().any(|holder| holder.owner.role() == Role::Worker)
    }

    /// The number of the claim that holds `lane`.
    pub(crate) fn claim_number(&self, lane: usize) -> u64 {
        self.layout
            .lanes
            .at(lane)
            .map_or(0, |entry| self.words.load(entry + LANE_CLAIM, Ordering::Relaxed))
    }

    /// Index of the word in `tables` that says which block holds `cell` of `lane`.
    pub(crate) fn table_word(&self, lane: usize, cell: usize) -> Option<usize> {
        let block = cell / self.layout.block_words();
        (block < self.layout.tables.stride as usize)
            .then(|| self.layout.tables.at(lane).map(|table| table + block))
            .flatten()
    }

    /// Index of the word that is `cell` of `lane`; `None` when the lane owns no block for it.
    pub(crate) fn lane_cell(&self, lane: usize, cell: usize) -> Option<usize> {
        let table = self.table_word(lane, cell)?;
        let block = low(self.words.load(table, Ordering::Acquire)).checked_sub(1)?;
        Some(self.layout.pool.at(block as usize)? + cell % self.layout.block_words())
    }

    /// The value of `cell` in `lane`; zero when the lane owns no block for it.
    pub(crate) fn lane_value(&self, lane: usize, cell: usize) -> u64 {
        self.lane_cell(lane, cell).map_or(0, |word| self.words.load(word, Ordering::Relaxed))
    }

    /// Index of the word that is `cell` of the base copy `copy` (0 or 1).
    pub(crate) fn base_cell(&self, copy: u64, cell: usize) -> Option<usize> {
        if copy == 0 { self.layout.base.at(cell) } else { self.layout.base_b.at(cell) }
    }

    /// The lowest index of a lane owned by `owner`.
    pub(crate) fn lane_of(&self, owner: Owner) -> Option<usize> {
        self.held_lanes()
            .find(|holder| holder.local && holder.owner == owner)
            .map(|holder| holder.lane)
    }

    /// Adds one to the number of series without room.
    pub(crate) fn count_dropped(&self) {
        self.words.fetch_add(crate::layout::head::DROPPED, 1);
    }
}

#[cfg(test)]
impl Shared {
    /// A region in process memory, for tests and models.
    pub(crate) fn in_memory(counts: &crate::layout::Counts, words: u32) -> Self {
        let layout = Layout::pack(counts, words);
        #[allow(clippy::unwrap_used, reason = "a test that asks for too little must fail")]
        let layout = layout.unwrap();
        let words = Words::heap(words as usize);
        words.store(crate::layout::head::COMMIT, crate::fold::Commit::START.0, Ordering::Relaxed);
        Self { words, layout }
    }
}
