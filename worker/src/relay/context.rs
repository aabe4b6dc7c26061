//! What all connections of one thread share.

use std::cell::RefCell;

use super::pipes::PipePool;

/// Size of a thread's copy buffer, in bytes.
///
/// Measured with one bulk connection, in CPU seconds a GiB: 16 KiB 0.49, 32 KiB 0.44,
/// 64 KiB 0.68, 128 KiB 0.52, 256 KiB 0.45; with eight 0.67, 0.60, 0.64, 0.58, 0.49. Small is
/// kind to the cache, and a direction in bulk leaves the buffer for a pipe anyway.
pub const COPY_BUFFER: usize = 32 << 10;

/// The copy buffer and the pipes of one thread; each shard has one, in an `Rc`.
#[derive(Debug)]
pub struct RelayContext {
    buffer: RefCell<Box<[u8]>>,
    pub(super) pipes: RefCell<PipePool>,
}

impl RelayContext {
    /// One for this thread.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buffer: RefCell::new(vec![0; COPY_BUFFER].into_boxed_slice()),
            pipes: RefCell::default(),
        }
    }

    /// Lends the thread's buffer, for example for a first read. Its content is left over from
    /// whoever used it last.
    ///
    /// # Panics
    /// When `work` itself asks for the buffer.
    pub fn with_buffer<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        work(&mut self.buffer.borrow_mut())
    }

    /// Closes pipes that were not needed since the last call. To be called by the shard's sweep.
    pub fn trim(&self) {
        self.pipes.borrow_mut().trim();
    }

    /// Pipes open on this thread: lent to connections, and kept for the next.
    #[must_use]
    pub fn pipes_open(&self) -> (usize, usize) {
        let pipes = self.pipes.borrow();
        (pipes.lent(), pipes.idle())
    }
}

impl Default for RelayContext {
    fn default() -> Self {
        Self::new()
    }
}
