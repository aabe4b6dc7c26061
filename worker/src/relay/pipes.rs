//! The pipes of one thread, lent to directions in bulk.
//!
//! A direction borrows a pipe for as long as there are bytes in it, so the pool grows to the
//! number of directions that are blocked at the same time, not to the number of connections.

use crate::net::{PIPE_SIZES, Pipe};

/// Above this many lent pipes a direction fills its own only to [`SMALL_FILL`]: a reader that
/// stops reading would otherwise pin a megabyte of kernel memory each.
const GENEROUS_LENT: usize = 64;
const SMALL_FILL: usize = PIPE_SIZES[PIPE_SIZES.len() - 1];

/// More pipes than this are not lent; further directions copy. Two descriptors each.
const MOST_LENT: usize = 256;

#[derive(Debug, Default)]
pub(super) struct PipePool {
    idle: Vec<Pipe>,
    lent: usize,
    /// The most that were lent at once since the last trim.
    peak: usize,
    /// The kernel refused a pipe; not asked again before the next trim.
    refused: bool,
}

impl PipePool {
    /// An empty pipe, or `None` when none is to be had: then copy.
    pub(super) fn take(&mut self) -> Option<Pipe> {
        if self.lent >= MOST_LENT {
            return None;
        }
        let pipe = match self.idle.pop() {
            Some(pipe) => pipe,
            None => self.open()?,
        };
        self.lent += 1;
        self.peak = self.peak.max(self.lent);
        Some(pipe)
    }

    /// Takes an empty pipe back.
    pub(super) fn put(&mut self, pipe: Pipe) {
        self.lent = self.lent.saturating_sub(1);
        self.idle.push(pipe);
    }

    /// A lent pipe will not come back: it left with a frozen connection or was closed full.
    pub(super) fn forget(&mut self) {
        self.lent = self.lent.saturating_sub(1);
    }

    /// A pipe that came with a resumed connection counts as lent.
    pub(super) fn adopt(&mut self) {
        self.lent += 1;
        self.peak = self.peak.max(self.lent);
    }

    /// How many bytes a direction may put into `pipe`, given how many are lent.
    pub(super) fn fill_limit(&self, pipe: &Pipe) -> usize {
        if self.lent > GENEROUS_LENT { SMALL_FILL.min(pipe.capacity()) } else { pipe.capacity() }
    }

    pub(super) fn trim(&mut self) {
        self.idle.truncate(self.peak.saturating_sub(self.lent));
        self.idle.shrink_to_fit();
        self.peak = self.lent;
        self.refused = false;
    }

    pub(super) fn lent(&self) -> usize {
        self.lent
    }

    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    fn open(&mut self) -> Option<Pipe> {
        if self.refused {
            return None;
        }
        match Pipe::new() {
            Ok(pipe) => Some(pipe),
            Err(error) => {
                // Said once a sweep at most; relaying goes on by copying.
                tracing::debug!(%error, "no pipe to be had, copying instead");
                self.refused = true;
                None
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_pipe_is_lent_again_and_a_quiet_pool_is_emptied_by_two_trims() {
        let mut pool = PipePool::default();
        let pipes: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        for pipe in pipes {
            pool.put(pipe);
        }
        assert_eq!((pool.lent(), pool.idle()), (0, 3));
        pool.trim();
        assert_eq!(pool.idle(), 3, "they were all in use since the last trim");
        let pipe = pool.take().unwrap();
        pool.put(pipe);
        pool.trim();
        assert_eq!(pool.idle(), 1);
        pool.trim();
        assert_eq!(pool.idle(), 0);
    }

    #[test]
    fn beyond_the_limit_nothing_is_lent() {
        let mut pool = PipePool::default();
        for _ in 0..MOST_LENT {
            pool.adopt();
        }
        assert!(pool.take().is_none());
        pool.forget();
        assert!(pool.take().is_some());
    }

    #[test]
    fn many_lent_pipes_are_filled_less() {
        let mut pool = PipePool::default();
        let pipe = pool.take().unwrap();
        assert_eq!(pool.fill_limit(&pipe), pipe.capacity());
        for _ in 0..GENEROUS_LENT {
            pool.adopt();
        }
        assert_eq!(pool.fill_limit(&pipe), SMALL_FILL);
    }
}
