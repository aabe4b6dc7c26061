//! Byte offsets, JSON paths, lines and columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::problem::Problem;

/// Walks a text forward and knows the line and column it is at.
#[derive(Debug)]
pub(crate) struct Cursor<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    column: usize,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1, column: 1 }
    }

    /// Line and column, counted from 1, of a byte offset at or after the last one. An offset
    /// past the end is the end; one inside a character is that character.
    pub(crate) fn move_to(&mut self, offset: usize) -> (usize, usize) {
        for character in self.text.get(self.at..).unwrap_or("").chars() {
            if self.at + character.len_utf8() > offset {
                break;
            }
            self.at += character.len_utf8();
            if character == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.here()
    }

    pub(crate) fn here(&self) -> (usize, usize) {
        (self.line, self.column)
    }
}

/// Where every value of a file stands, so that later checks (a pattern that does not compile,
/// a port that is taken) can point at the text.
#[derive(Debug, Clone)]
pub struct Positions {
    source: Arc<str>,
    text: Arc<str>,
    offsets: BTreeMap<String, usize>,
}

impl Positions {
    pub(crate) fn new(source: &str, text: &str, offsets: BTreeMap<String, usize>) -> Self {
        Self { source: source.into(), text: text.into(), offsets }
    }

    /// A problem with the value at `path` (`$.rules[0].targets[1].regexp`). A value that is not
    /// written in the file is reported at the closest object or list around it.
    #[must_use]
    pub fn problem(&self, path: &str, message: impl Into<String>) -> Problem {
        let (line, column) = Cursor::new(&self.text).move_to(self.offset(path));
        let source = Arc::clone(&self.source);
        Problem { source, line, column, path: path.into(), message: message.into() }
    }

    fn offset(&self, path: &str) -> usize {
        let mut around = path;
        loop {
            if let Some(offset) = self.offsets.get(around) {
                return *offset;
            }
            match around.rfind(['.', '[']) {
                Some(end) => around = &around[..end],
                None => return 0,
            }
        }
    }
}

/// `path` extended by an object key: `.key`, or `["key"]` when it is not a plain word.
pub(crate) fn join(path: &str, key: &str) -> String {
    let mut path = path.to_owned();
    push_key(&mut path, key);
    path
}

/// Extends a path in place.
pub(crate) fn push_key(path: &mut String, key: &str) {
    const LONGEST: usize = 80;
    let plain = key.len() <= LONGEST
        && key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain {
        path.push('.');
        path.push_str(key);
    } else {
        path.push('[');
        path.push_str(&crate::problem::quoted(key));
        path.push(']');
    }
}
