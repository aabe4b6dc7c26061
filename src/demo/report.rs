//! The table at the end.

use std::cell::Cell;
use std::time::Duration;

use serde::Serialize;

use super::ledger::Ledger;
use crate::output::{self, Failure};

/// What a step must not lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Promise {
    /// Nothing at all.
    Everything,
    /// No new connection is refused and no byte is wrong; those connections break whose
    /// bytes were in the killed worker's memory, or that had no upstream yet.
    Listeners,
}

/// One row: what happened during a step.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Step {
    name: &'static str,
    promise: Promise,
    served: u64,
    refused: u64,
    reset: u64,
    broken: u64,
    corrupted: u64,
    longest_connect_ms: Option<u128>,
    /// Nobody is left to stall where every established connection broke.
    longest_stall_ms: Option<u128>,
}

impl Step {
    /// Takes the ledger's counts.
    pub(crate) fn of(name: &'static str, ledger: &Ledger, promise: Promise) -> Self {
        Self {
            name,
            promise,
            served: ledger.served.get(),
            refused: ledger.refused.get(),
            reset: ledger.reset.get(),
            broken: ledger.broken.get(),
            corrupted: ledger.corrupted.get(),
            longest_connect_ms: timed(&ledger.longest_connect),
            longest_stall_ms: timed(&ledger.longest_stall),
        }
    }

    /// Whether everything promised was kept.
    pub(crate) fn kept(&self) -> bool {
        let listeners = self.refused == 0 && self.corrupted == 0;
        match self.promise {
            Promise::Everything => listeners && self.reset == 0 && self.broken == 0,
            Promise::Listeners => listeners,
        }
    }

    fn row(&self) -> Vec<String> {
        let mut row = vec![self.name.to_owned()];
        row.extend(
            [self.served, self.refused, self.reset, self.broken, self.corrupted]
                .map(|count| count.to_string()),
        );
        row.extend([self.longest_connect_ms, self.longest_stall_ms].map(span));
        row.push(if self.kept() { "kept" } else { "BROKEN" }.to_owned());
        row
    }
}

/// A time, if one was measured.
fn span(ms: Option<u128>) -> String {
    ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms} ms"))
}

/// The ledger's time, unless nothing was timed since it began.
fn timed(longest: &Cell<Duration>) -> Option<u128> {
    let longest = longest.get();
    (!longest.is_zero()).then_some(longest.as_millis())
}

const HEADER: [&str; 9] = [
    "STEP",
    "NEW SERVED",
    "REFUSED",
    "RESET",
    "LIVE BROKEN",
    "CORRUPTED",
    "LONGEST CONNECT",
    "LONGEST STALL",
    "PROMISE",
];

/// The table, and in plain words what it means.
pub(crate) fn table(steps: &[Step]) -> String {
    let mut rows = vec![HEADER.map(String::from).to_vec()];
    rows.extend(steps.iter().map(Step::row));
    let mut text = format!("\n{}\n", output::table(&rows));
    text.push_str(
        "This release promises: no listener ever closes, so no new connection is refused, whatever\n\
         happens; across a reload and an upgrade established connections go on byte-exact. They do\n\
         so through a kill -9 of the worker, but for those whose bytes were in its memory at that\n\
         moment or that had no upstream yet: these are reset, never ended as if all were well.\n\
         (RESET in that row counts calls the killed worker had already accepted.)\n",
    );
    text
}

/// The same for programs.
pub(crate) fn json(steps: &[Step]) -> Result<String, Failure> {
    let kept = steps.iter().all(Step::kept);
    Ok(format!("{}\n", serde_json::json!({ "kept": kept, "steps": steps })))
}
