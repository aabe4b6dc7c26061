//! The mapped file seen as atomic words; the only unsafe code of the table.
//!
//! Why not plain `u64`: another process may read (and a hostile one write) the same memory. Why
//! not `memmap2::MmapMut`: its `DerefMut` to `[u8]` promises that nobody else touches it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};

/// A shared, writable mapping of a whole table.
#[derive(Debug)]
pub(super) struct Memory {
    map: MmapRaw,
    words: usize,
}

impl Memory {
    /// Maps the first `len` bytes of `file`, which must be sealed against shrinking: an access
    /// behind its end would be SIGBUS.
    pub(super) fn new(file: &File, len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_raw(file)?;
        Ok(Self { map, words: len / size_of::<AtomicU64>() })
    }

    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts on a page, so it is aligned for AtomicU64; it is at least
        // `words * 8` bytes long (the length given to mmap in `new`), cannot lose them (the file
        // is sealed) and lives as long as `self`. Every bit pattern is a valid AtomicU64, and
        // nothing but atomics is ever made of it. There is no safe view: memmap2 gives bytes that
        // it assumes nobody else changes.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.words) }
    }
}
