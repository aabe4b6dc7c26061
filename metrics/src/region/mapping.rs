//! The only unsafe code of this crate: a mapped file seen as atomic words.
//!
//! Why not `&mut` or plain `u64`: other processes write to the same memory, so nothing but
//! atomics may ever look at it. Why not `memmap2::Mmap`: its `Deref` to `[u8]` promises memory
//! that does not change.
//!
//! Limit: if somebody shrinks the file, an access beyond its end raises SIGBUS. The size is
//! checked before mapping, Baton never shrinks a region, and its directory is 0700.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{MmapOptions, MmapRaw};

use crate::sync::AtomicU64;

/// A shared mapping of a whole region file. It may be read-only: then nothing but loads may be
/// done through [`words`](Self::words), which [`Reader`](super::Reader) guarantees by offering
/// nothing else.
pub(crate) struct Mapping {
    map: MmapRaw,
    words: usize,
}

/// Whether a mapping may be written to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Mapping {
    /// Maps the first `len` bytes of `file`, which must have them and go on having them.
    pub(super) fn new(file: &File, len: usize, access: Access) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.len(len);
        let map = match access {
            Access::Read => options.map_raw_read_only(file)?,
            Access::Write => options.map_raw(file)?,
        };
        Ok(Self { map, words: len / size_of::<AtomicU64>() })
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts on a page, so it is aligned for AtomicU64; it is at least
        // `words * 8` bytes long (length given to mmap in `new`) and lives as long as `self`.
        // Every bit pattern is a valid AtomicU64, and all processes use atomics only. There is no
        // safe view: memmap2 gives bytes that it assumes to be unchanging.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.words) }
    }
}
