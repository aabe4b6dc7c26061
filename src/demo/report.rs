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
    /// No new connection is refused and no byte is wrong. Of the established connections at most
    /// [`IN_HAND`] break: those whose bytes the killed worker was just copying.
    Kill,
}

/// One a thread of the worker, which has one copy buffer: the demo's worker has two threads, and
/// is killed once a step.
pub(crate) const IN_HAND: u64 = 2;

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
        let always = self.refused == 0 && self.corrupted == 0;
        match self.promise {
            Promise::Everything => always && self.reset == 0 && self.broken == 0,
            Promise::Kill => always && self.broken <= IN_HAND,
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
        "What is promised: no listener ever closes, so no new connection is refused, whatever happens.\n\
         Across a reload and an upgrade nothing is lost: established connections move to the new process,\n\
         byte-exact. When a worker is killed, also a new one that dies after it took over, its connections\n\
         go on in another process; only those whose bytes it was just copying (at most one a thread) and\n\
         those that had no upstream yet (RESET) are reset, and none ever ends as if it were complete.\n",
    );
    text
}

/// The same for programs.
pub(crate) fn json(steps: &[Step]) -> Result<String, Failure> {
    let kept = steps.iter().all(Step::kept);
    Ok(format!("{}\n", serde_json::json!({ "kept": kept, "steps": steps })))
}
