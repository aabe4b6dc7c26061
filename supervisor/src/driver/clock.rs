//! The one place where the supervisor looks at a clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::event::Millis;

/// Monotonic time since the start, as the machine counts it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// As far as a former image of this process had come.
    pub(crate) fn resume(uptime: Millis) -> Self {
        let now = Instant::now();
        let origin = now.checked_sub(Duration::from_millis(uptime.0)).unwrap_or(now);
        Self { origin }
    }

    /// Now, rounded down: a deadline never counts as passed before it has.
    pub(crate) fn now(self) -> Millis {
        Millis(0).after(self.origin.elapsed())
    }

    /// When to wake for a deadline.
    pub(crate) fn instant(self, moment: Millis) -> Instant {
        self.origin + Duration::from_millis(moment.0)
    }

    pub(crate) fn uptime(self) -> Duration {
        self.origin.elapsed()
    }
}
