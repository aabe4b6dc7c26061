//! Baton's configuration: a strict reader, a checked model and the difference of two models.
//!
//! The stages of a file: bytes → syntax tree (positions, duplicates) → shape (types, ranges,
//! words, all from one table) → meaning (the checked [`model`]). Every problem of a file is
//! reported at once, as `FILE:LINE:COLUMN: $.json.path: what is wrong (what is allowed)`.
//!
//! The crate touches the file system only in [`load`], opens no socket, resolves no name and
//! compiles no pattern: those can fail for reasons outside the file. Whoever does them points
//! at the file through [`Positions`].

pub mod diff;
#[doc(hidden)]
pub mod fuzz;
pub mod model;
pub mod print;
pub mod process;
pub mod url;

mod position;
mod problem;
mod read;
mod schema;
mod shape;
mod suggest;
mod syntax;
mod words;
mod written;

use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use position::Positions;
pub use problem::{Problem, Problems};
pub use schema::schema;
pub use written::{Written, WrittenRule, written};

/// A configuration that passed every check of this crate.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What the file means.
    pub config: model::Config,
    /// Where it says so.
    pub positions: Positions,
}

/// Why a file was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file was read and is wrong.
    #[error(transparent)]
    Problems(#[from] Problems),
}

/// Reads and checks a file.
///
/// # Errors
/// When the file cannot be read, or with everything that is wrong in it.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    Ok(parse(&path.display().to_string(), &bytes(path)?)?)
}

/// The bytes of a file, a little more than the largest file accepted at most.
///
/// # Errors
/// When the file cannot be read.
pub fn bytes(path: &Path) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read { path: path.into(), source };
    let limit = u64::try_from(syntax::MAX_BYTES).unwrap_or(u64::MAX) + 1;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Checks the bytes of a file; `source_name` is what messages call it.
///
/// # Errors
/// With everything that is wrong, in the order of the file. Text that is not JSON has one
/// problem: where reading it had to stop.
pub fn parse(source_name: &str, bytes: &[u8]) -> Result<Loaded, Problems> {
    let text = syntax::text(source_name, bytes)?;
    let tree = syntax::tree(source_name, text)?;
    let mut report = problem::Report::default();
    shape::check::duplicates(&tree, "$", &mut report);
    let mut check = shape::check::Check::new(&mut report);
    let file = check.object(&tree, "$", &shape::table::FILE);
    let positions = Positions::new(source_name, text, check.offsets);
    match file.and_then(|file| read::file(&file, &mut report)) {
        Some(config) if report.is_empty() => Ok(Loaded { config, positions }),
        Some(_) | None => Err(report.finish(source_name, text)),
    }
}
