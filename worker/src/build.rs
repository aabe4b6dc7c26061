//! Which build of the program this process is.
//!
//! Told once at the start and never changed, so it is kept for the process rather than handed
//! through everything between the start and the one gauge that shows it.

use std::sync::OnceLock;

static BUILD: OnceLock<Build> = OnceLock::new();

/// A build of the program, as its `--version` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// `major.minor.patch`.
    pub version: &'static str,
    /// The source revision, or `unknown`.
    pub commit: &'static str,
}

/// Keeps what the process is; later calls change nothing.
pub(crate) fn set(build: Build) {
    // Only tests run several workers in a process, and those are all of one build.
    let _kept = BUILD.set(build);
}

/// What the process is.
pub(crate) fn current() -> Build {
    let library = Build { version: env!("CARGO_PKG_VERSION"), commit: "unknown" };
    BUILD.get().copied().unwrap_or(library)
}
