//! What happened while an upstream was chosen, for the decision log and the counters.

use std::time::Duration;

/// What happened on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes {
    /// Whether the winner cache had a usable line; `None` when it was not asked.
    pub cache_hit: Option<bool>,
    /// What became of the hedge.
    pub hedge: HedgeNotes,
}

/// The hedge of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HedgeNotes {
    /// The clock was started.
    pub scheduled: bool,
    /// The backup was started, after this delay.
    pub launched: Option<Duration>,
    /// The backup won.
    pub won: bool,
    /// The primary finished before the clock ran out.
    pub avoided: bool,
    /// No place to dial was free when it was due.
    pub skipped_capacity: bool,
    /// The rule's time limit would have come first.
    pub skipped_deadline: bool,
    /// There was no other usable line.
    pub no_candidate: bool,
}
