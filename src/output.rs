//! What people see: failures with their exit codes, and text on the standard streams.

use std::io::{self, Write};
use std::process::ExitCode;

/// Exit codes, part of the interface.
pub(crate) const FAILED: u8 = 1;
/// No instance is running.
pub(crate) const NO_INSTANCE: u8 = 3;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Lines for standard error, exit code 1; such as begin with a place in a file stand as they
    /// are, every other one is marked as ours.
    Problems(Vec<String>),
    /// Exit code 3.
    NoInstance(String),
    /// Anything else, exit code 1.
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Writes the failure to standard error and returns its exit code.
pub(crate) fn report(failure: &Failure) -> ExitCode {
    let (lines, code) = match failure {
        Failure::Problems(lines) => (lines.iter().map(|line| marked(line)).collect(), FAILED),
        Failure::NoInstance(line) => (vec![format!("baton: {line}")], NO_INSTANCE),
        Failure::Other(error) => (vec![format!("baton: {}", whole(error))], FAILED),
    };
    for line in lines {
        // Nobody is left to tell when standard error itself is gone.
        let _unreported = writeln!(io::stderr(), "{line}");
    }
    ExitCode::from(code)
}

fn marked(line: &str) -> String {
    if line.starts_with("baton: ") || names_a_place(line) {
        return line.to_owned();
    }
    format!("baton: {line}")
}

/// `FILE:LINE:COLUMN: $…`, as every problem of a configuration begins.
fn names_a_place(line: &str) -> bool {
    line.split_once(": $").is_some_and(|(place, _)| {
        let number = |text: Option<&str>| text.is_some_and(|text| text.parse::<u64>().is_ok());
        let mut parts = place.rsplit(':');
        number(parts.next()) && number(parts.next()) && parts.next().is_some()
    })
}

/// An error with its causes, each once: many errors say in their own text what caused them.
pub(crate) fn whole(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Writes to standard output; a reader that has gone (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lays rows out in columns as wide as their widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|row| row.get(c)).map(|t| t.chars().count()).max())
        .map(|width| width.unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{marked, table, whole};

    #[test]
    fn every_line_is_ours_or_has_a_place_in_a_file() {
        assert_eq!(marked("a:b.json:3:14: $.rules: wrong"), "a:b.json:3:14: $.rules: wrong");
        assert_eq!(marked("another instance: 1"), "baton: another instance: 1");
        assert_eq!(marked("baton: refused"), "baton: refused");
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = || std::io::Error::other("no such file");
        let said = baton_config::LoadError::Read { path: "a".into(), source: cause() };
        assert_eq!(whole(&said.into()), "cannot read a: no such file");
        let unsaid = anyhow::Error::new(cause()).context("cannot read a");
        assert_eq!(whole(&unsaid), "cannot read a: no such file");
    }

    #[test]
    fn a_table_has_columns_as_wide_as_their_widest_cell() {
        let rows = [vec!["PID".into(), "ROLE".into()], vec!["12345".into(), "serving".into()]];
        assert_eq!(table(&rows), "PID    ROLE\n12345  serving\n");
    }
}
