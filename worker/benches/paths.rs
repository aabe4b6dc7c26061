//! The code that every connection or message runs through, each piece ready to be run again and
//! again: timed by `hot_paths`, counted by `instructions`.
//!
//! Nothing here depends on chance or on time: random numbers have a fixed seed and the clock is
//! an argument.

pub(crate) mod books;
pub(crate) mod content;
pub(crate) mod decision;
pub(crate) mod relaying;

/// A piece of code, and what it needs.
pub(crate) struct Path {
    /// What it is, as reports and the baseline call it.
    pub(crate) name: String,
    /// Runs it once.
    pub(crate) run: Box<dyn FnMut()>,
}

impl Path {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Targets of a rule where the number matters little.
pub(crate) const TARGETS: u16 = 16;

/// All of them, in a fixed order.
pub(crate) fn all() -> Vec<Path> {
    let mut paths = decision::paths(TARGETS);
    paths.extend(content::paths(TARGETS));
    paths.extend(books::paths());
    paths.extend(relaying::paths());
    paths
}
