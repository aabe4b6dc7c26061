//! The monotonic clock.

use nix::time::{ClockId, clock_gettime};

use crate::flow::Moment;

/// The monotonic clock now, in nanoseconds since an arbitrary point of this boot.
///
/// Answered by the vDSO in about 20 ns; still, read it once a wake-up and pass it along.
#[must_use]
pub fn now() -> Moment {
    // The call fails only for a clock the kernel does not know; CLOCK_MONOTONIC always exists.
    let Ok(time) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
        return Moment(0);
    };
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
    Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
