//! Reading without a right to write.

use std::path::Path;

use nix::fcntl::OFlag;

use super::RegionError;
use super::file::{self, FILE_NAME};
use super::mapping::Access;
use crate::collector::EncodeError;
use crate::shared::Shared;
use crate::snapshot::{Busy, Guard, Snapshot};

/// The region, for reading only: what `baton metrics` uses beside a running instance or after
/// its end.
pub struct Reader {
    shared: Shared,
}

impl Reader {
    /// Opens the region in `dir`.
    ///
    /// # Errors
    /// When there is none ([`RegionError::File`] with `NotFound`) or it cannot be read.
    pub fn open(dir: &Path) -> Result<Self, RegionError> {
        let path = dir.join(FILE_NAME);
        let file = file::open(&path, OFlag::O_RDONLY)?;
        let (shared, _) = file::check(&file, Access::Read).map_err(|wrong| wrong.of_file(&path))?;
        Ok(Self { shared })
    }

    /// What the region says now. The gauges of processes that have ended are left out even when
    /// nobody has folded them.
    ///
    /// # Errors
    /// When the region changes too fast for a whole look.
    pub fn snapshot(&self) -> Result<Snapshot, Busy> {
        self.shared.snapshot(|holder| !holder.is_dead(), &mut Guard::default())
    }

    /// See [`Region::encode_text`](super::Region::encode_text).
    ///
    /// # Errors
    /// As there.
    pub fn encode_text(&self) -> Result<String, EncodeError> {
        self.snapshot()?.encode_text()
    }
}
