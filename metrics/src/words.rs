//! A run of atomic 64-bit words: mapped from the region's file, or in process memory.
//!
//! Every access is bounds-checked. The layout is checked once at attach, so an index outside
//! can only come from memory that was overwritten later; it then reads as zero and writes
//! nothing, because a gateway that miscounts is better than one that dies of it.

#[cfg(not(loom))]
use crate::region::mapping::Mapping;
use crate::sync::{AtomicU64, Ordering};

/// See the module.
pub(crate) enum Words {
    /// Process memory: series without room in the region, tests, models.
    Heap(Box<[AtomicU64]>),
    /// The region.
    #[cfg(not(loom))]
    Mapped(Mapping),
}

impl Words {
    /// `count` zeroed words in process memory.
    pub(crate) fn heap(count: usize) -> Self {
        Self::Heap((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    pub(crate) fn all(&self) -> &[AtomicU64] {
        match self {
            Self::Heap(words) => words,
            #[cfg(not(loom))]
            Self::Mapped(mapping) => mapping.words(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&AtomicU64> {
        self.all().get(index)
    }

    pub(crate) fn load(&self, index: usize, order: Ordering) -> u64 {
        self.get(index).map_or(0, |word| word.load(order))
    }

    pub(crate) fn store(&self, index: usize, value: u64, order: Ordering) {
        #[cfg(test)]
        fuse::burn();
        if let Some(word) = self.get(index) {
            word.store(value, order);
        }
    }

    /// Whether the exchange happened.
    pub(crate) fn swap_if(&self, index: usize, current: u64, new: u64) -> bool {
        #[cfg(test)]
        fuse::burn();
        self.get(index).is_some_and(|word| {
            word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }

    /// The value before; `None` outside.
    pub(crate) fn fetch_add(&self, index: usize, by: u64) -> Option<u64> {
        #[cfg(test)]
        fuse::burn();
        self.get(index).map(|word| word.fetch_add(by, Ordering::Relaxed))
    }
}

/// Ends a test's thread of work before a chosen write, as SIGKILL would.
#[cfg(test)]
pub(crate) mod fuse {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Runs `work` and stops it before its write number `writes`. Whether it came to its end.
    pub(crate) fn within(writes: usize, work: impl FnOnce()) -> bool {
        LEFT.set(Some(writes));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
        LEFT.set(None);
        done
    }

    pub(super) fn burn() {
        if let Some(left) = LEFT.get() {
            if left == 0 {
                // No unwinding hook: this is no failure.
                std::panic::resume_unwind(Box::new("killed"));
            }
            LEFT.set(Some(left - 1));
        }
    }
}
