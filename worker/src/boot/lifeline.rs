//! What carries this worker's connections on should it be killed: its keeper and its connection
//! table.
//!
//! The keeper is started before anything else, because then it is small, and long before the
//! configuration says whether it is wanted. Whatever is missing (a system that refuses the clone, a
//! supervisor of an older release, a setting), the worker serves all the same.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use baton_handoff::table::{Lane, MAX_RECORDS, Table};

use super::limits;
use crate::keeper::Keeper;

/// Records a shard has at least: a record costs memory only once it is used.
const LEAST_RECORDS: u32 = 16_384;

/// What was begun before there was a thread.
#[derive(Debug)]
pub(crate) struct Early {
    /// The limit of descriptors.
    pub(super) descriptors: io::Result<u64>,
    /// The keeper, and what the supervisor needs of it.
    pub(super) keeper: io::Result<(Keeper, OwnedFd)>,
}

impl Early {
    /// To be called before the process starts a thread.
    pub(crate) fn start() -> Self {
        let descriptors = limits::raise_descriptors();
        Self { descriptors, keeper: Keeper::start() }
    }
}

/// The keeper and the table, as far as there are such.
#[derive(Debug, Default)]
pub(super) struct Lifeline {
    keeper: Option<Keeper>,
    /// The other end of the keeper's socket, until the supervisor has it.
    far: Option<OwnedFd>,
    table: Option<Table>,
}

impl Lifeline {
    /// With the keeper that was started, if it could be.
    pub(super) fn new(keeper: io::Result<(Keeper, OwnedFd)>) -> Self {
        match keeper {
            Ok((keeper, far)) => Self { keeper: Some(keeper), far: Some(far), table: None },
            Err(error) => {
                tracing::warn!(%error, "no keeper can be had: connections end with this process");
                Self::default()
            }
        }
    }

    /// Whether a successor can carry connections on.
    pub(super) fn holds(&self) -> bool {
        self.keeper.is_some() && self.table.is_some()
    }

    /// Makes the table, one lane a shard, each with room for all the connections there may be.
    /// None, and no keeper any more, when it is not `wanted` or cannot be.
    pub(super) fn begin(&mut self, wanted: bool, shards: usize, connections: u32) -> Vec<Lane> {
        if self.keeper.is_none() {
            return Vec::new();
        }
        if !wanted {
            self.end();
            return Vec::new();
        }
        let most = MAX_RECORDS / u32::try_from(shards).unwrap_or(u32::MAX).max(1);
        let each = connections.max(LEAST_RECORDS).min(most).max(1);
        match Table::create(shards, each) {
            Ok((table, lanes)) => {
                self.table = Some(table);
                lanes
            }
            Err(error) => {
                tracing::warn!(%error, "no connection table: connections end with this process");
                self.end();
                Vec::new()
            }
        }
    }

    /// Whether the keeper was found killed just now.
    pub(super) fn has_lost_its_keeper(&mut self) -> bool {
        self.keeper.as_mut().is_some_and(Keeper::has_ended)
    }

    /// A new keeper: for a new supervisor, because the old one's socket went with the old
    /// supervisor, or because the old one was killed.
    pub(super) fn renew(&mut self) {
        if !self.holds() || self.far.is_some() {
            return;
        }
        // The new one first: at no moment is there none.
        let fresh = Keeper::start();
        let before = std::mem::take(&mut self.keeper);
        if let Some(error) = before.and_then(|keeper| keeper.dismiss().err()) {
            tracing::warn!(%error, "a keeper cannot be dismissed");
        }
        let table = self.table.take();
        *self = Self { table, ..Self::new(fresh) };
    }

    /// What to send to the supervisor, once: the table and the keeper's socket.
    pub(super) fn take_descriptors(&mut self) -> Option<[OwnedFd; 2]> {
        let table = self.table.as_ref().filter(|_| self.far.is_some())?;
        match table.as_fd().try_clone_to_owned() {
            Ok(copy) => Some([copy, self.far.take()?]),
            Err(error) => {
                tracing::warn!(%error, "the connection table cannot be handed over");
                None
            }
        }
    }

    /// Ends the keeper: what is left open from here on closes with this process.
    pub(super) fn end(&mut self) {
        self.far = None;
        if let Some(error) = self.keeper.take().and_then(|keeper| keeper.dismiss().err()) {
            tracing::warn!(%error, "the keeper cannot be dismissed");
        }
    }
}
