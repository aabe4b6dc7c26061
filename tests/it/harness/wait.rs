//! Waiting for a phase that can be observed.

use std::time::{Duration, Instant};

/// After this a phase will not come any more. Far beyond what anything here takes on a busy
/// machine, so it decides only whether a broken test ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Asks `probe` until it has an answer.
///
/// # Panics
/// When `PATIENCE` passes first, with `what` it was.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        // Gives the processor away between two looks; nothing is concluded from the time.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
