//! How long a keeper waits. Pure.

use std::time::Duration;

/// A dead worker's keeper that hears nothing for so long gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a keeper knows about the two who may want it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    /// Since when nothing has happened after the worker's death, in milliseconds.
    deserted_since: Option<u64>,
    peer_gone: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until something happens.
    Sleep,
    /// Nothing, for at most so many milliseconds.
    SleepFor(u64),
    /// Reset what is left and end.
    GiveUp,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { deserted_since: None, peer_gone: false }
    }

    pub(super) fn worker_died(&mut self, now: u64) {
        self.deserted_since.get_or_insert(now);
    }

    pub(super) fn peer_left(&mut self) {
        self.peer_gone = true;
    }

    /// A question came (or an answer was fetched).
    pub(super) fn heard(&mut self, now: u64) {
        if let Some(since) = &mut self.deserted_since {
            *since = now;
        }
    }

    pub(super) fn worker_is_dead(&self) -> bool {
        self.deserted_since.is_some()
    }

    pub(super) fn peer_is_gone(&self) -> bool {
        self.peer_gone
    }

    pub(super) fn next(&self, now: u64) -> Next {
        let Some(since) = self.deserted_since else { return Next::Sleep };
        // Fits: it is thirty seconds.
        let patience = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
        match patience.saturating_sub(now.saturating_sub(since)) {
            0 => Next::GiveUp,
            _ if self.peer_gone => Next::GiveUp,
            left => Next::SleepFor(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_worker_is_waited_for_without_limit_even_when_the_supervisor_is_gone() {
        let mut watch = Watch::new();
        assert_eq!(watch.next(1 << 40), Next::Sleep);
        watch.peer_left();
        assert_eq!(watch.next(1 << 40), Next::Sleep);
    }

    #[test]
    fn after_the_workers_death_patience_starts_anew_with_every_question() {
        let mut watch = Watch::new();
        watch.heard(50);
        watch.worker_died(1_000);
        watch.worker_died(9_000);
        assert_eq!(watch.next(1_000), Next::SleepFor(30_000));
        assert_eq!(watch.next(30_999), Next::SleepFor(1));
        watch.heard(30_999);
        assert_eq!(watch.next(31_000), Next::SleepFor(29_999));
        assert_eq!(watch.next(60_999), Next::GiveUp);
    }

    #[test]
    fn with_both_gone_there_is_nobody_to_wait_for() {
        let mut watch = Watch::new();
        watch.peer_left();
        watch.worker_died(5);
        assert_eq!(watch.next(5), Next::GiveUp);
        let mut watch = Watch::new();
        watch.worker_died(5);
        watch.peer_left();
        assert_eq!(watch.next(6), Next::GiveUp);
    }
}
