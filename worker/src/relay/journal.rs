//! What a connection leaves for a successor: notes in its record of the connection table.
//!
//! Each note is a store to memory that outlives the process, made *before* what it warns of:
//! the mark before a read into user memory, the pipe's name before a byte goes in. So whenever
//! the process is killed, the record errs on the safe side. Without a record nothing is noted,
//! and nothing is different.

use std::os::fd::AsRawFd;

use baton_handoff::table::{Busy, PipeNumbers, Slot, State, Way};

use super::Direction;
use super::state::{Flow, Mode};
use crate::net::Pipe;

#[derive(Debug, Default)]
pub(super) struct Journal {
    slot: Option<Slot>,
}

fn way(direction: Direction) -> Way {
    match direction {
        Direction::ToUpstream => Way::ToUpstream,
        Direction::ToClient => Way::ToClient,
    }
}

fn numbers(pipe: &Pipe) -> PipeNumbers {
    PipeNumbers { read: pipe.read_end().as_raw_fd(), write: pipe.write_end().as_raw_fd() }
}

impl Journal {
    /// Begins with what both directions hold; only then is the record open to a successor.
    pub(super) fn begin(slot: Slot, flows: [(Direction, &Flow); 2]) -> Self {
        let journal = Self { slot: Some(slot) };
        for (direction, flow) in flows {
            if let Some(slot) = &journal.slot {
                slot.track(way(direction), &flow.track());
            }
        }
        journal.state(State::Open);
        journal
    }

    pub(super) fn is_kept(&self) -> bool {
        self.slot.is_some()
    }

    /// Bytes are about to enter user memory.
    #[inline]
    pub(super) fn reading(&self, direction: Direction) {
        if let Some(slot) = &self.slot {
            slot.busy(way(direction), Busy::Memory);
        }
    }

    /// Bytes are about to be moved within the kernel.
    #[inline]
    pub(super) fn splicing(&self, direction: Direction, flow: &Flow) {
        if let Some(slot) = &self.slot
            && flow.bytes().is_empty()
        {
            slot.busy(way(direction), Busy::Kernel);
        }
    }

    /// The call is over, and did not fail: only what the direction holds is still with us.
    #[inline]
    pub(super) fn settled(&self, direction: Direction, flow: &Flow) {
        if let Some(slot) = &self.slot {
            let busy = if flow.bytes().is_empty() { Busy::No } else { Busy::Memory };
            slot.busy(way(direction), busy);
        }
    }

    /// The direction is about to use this pipe, or has emptied it.
    #[inline]
    pub(super) fn pipe(&self, direction: Direction, pipe: Option<&Pipe>) {
        if let Some(slot) = &self.slot {
            slot.pipe(way(direction), pipe.map(numbers));
        }
    }

    /// The direction may have changed from copying to splicing, or back.
    pub(super) fn mode(&self, direction: Direction, flow: &Flow) {
        if let Some(slot) = &self.slot {
            slot.splices(way(direction), matches!(flow.mode, Mode::Splice { .. }));
        }
    }

    #[inline]
    pub(super) fn moved(&self, direction: Direction, flow: &Flow) {
        if let Some(slot) = &self.slot {
            slot.total(way(direction), flow.total());
        }
    }

    pub(super) fn eof_seen(&self, direction: Direction) {
        if let Some(slot) = &self.slot {
            slot.eof_seen(way(direction));
        }
    }

    pub(super) fn fin_sent(&self, direction: Direction) {
        if let Some(slot) = &self.slot {
            slot.fin_sent(way(direction));
        }
    }

    /// What is about to become of the connection.
    pub(super) fn state(&self, state: State) {
        if let Some(slot) = &self.slot {
            slot.set_state(state);
        }
    }

    /// Frees the record: both sockets are closed.
    pub(super) fn end(&mut self) {
        self.slot = None;
    }

    pub(super) fn into_slot(self) -> Option<Slot> {
        self.slot
    }
}
