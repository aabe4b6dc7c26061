//! What is wrong with a file, and where.
//!
//! Problems are gathered as byte offsets while the file is read and turned into lines and
//! columns once, at the end: counting characters for every problem on its own would be
//! quadratic on a long line.

use std::fmt;
use std::sync::Arc;

use crate::position::Cursor;

/// Problems reported for one file; what is found beyond them is only counted.
const SHOWN: usize = 1000;
/// Problems kept to be sorted; a file with more is not worth the memory.
const KEPT: usize = 5 * SHOWN;

/// One thing that is wrong, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, or whatever else the text came from.
    pub source: Arc<str>,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// JSON path such as `$.rules[0].listen`.
    pub path: String,
    /// What is wrong, and in parentheses what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, line, column, path, message } = self;
        write!(f, "{source}:{line}:{column}: {path}: {message}")
    }
}

impl Problem {
    /// Sorts problems of one file into the order of the file.
    #[must_use]
    pub fn place(&self) -> (usize, usize) {
        (self.line, self.column)
    }
}

/// Everything that is wrong with a file, in the order of the file; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Gathers problems while a file is read.
#[derive(Debug, Default)]
pub(crate) struct Report {
    found: Vec<Found>,
    /// Beyond [`KEPT`].
    dropped: usize,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    at: usize,
    path: String,
    message: String,
}

impl Report {
    /// Notes a problem at a byte offset.
    pub(crate) fn add(&mut self, at: usize, path: impl Into<String>, message: impl Into<String>) {
        self.add_with(at, || (path.into(), message.into()));
    }

    /// Notes a problem whose path and message are made only when they are kept.
    pub(crate) fn add_with(&mut self, at: usize, say: impl FnOnce() -> (String, String)) {
        if self.found.len() >= KEPT {
            self.dropped += 1;
            return;
        }
        let (path, message) = say();
        self.found.push(Found { at, path, message });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The problems in the order of `text`, each once.
    pub(crate) fn finish(mut self, source: &str, text: &str) -> Problems {
        if self.found.is_empty() {
            // Unreachable as far as the tests can tell; a refusal without a word would be worse.
            self.add(0, "$", "the file was refused for no known reason: a fault of Baton");
        }
        self.found.sort();
        self.found.dedup();
        let source: Arc<str> = source.into();
        let hidden = self.found.len().saturating_sub(SHOWN) + self.dropped;
        let mut cursor = Cursor::new(text);
        let mut problems: Vec<Problem> = self
            .found
            .into_iter()
            .take(SHOWN)
            .map(|found| {
                let (line, column) = cursor.move_to(found.at);
                let source = Arc::clone(&source);
                Problem { source, line, column, path: found.path, message: found.message }
            })
            .collect();
        if hidden > 0 {
            let (line, column) = cursor.here();
            let message = format!("{hidden} further problems are not shown");
            problems.push(Problem { source, line, column, path: "$".into(), message });
        }
        Problems(problems)
    }
}

/// Text from a file, quoted for a message: escaped, so that it cannot drive a terminal or
/// break a log line, and cut, so that it cannot flood one.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{:?}…", &text[..cut]),
        None => format!("{text:?}"),
    }
}
