//! Connections made ahead of need, for rules with `prewarm`.
//!
//! Each address has one [`Pool`] in a generation, shared by the rules that prewarm it. A
//! connection takes the newest idle socket that is alive; what was taken is replaced by a dial in
//! the background. Pools belong to the published generation: when it retires, or its worker stops
//! accepting, they are emptied, and none crosses a reload or an upgrade.
//!
//! Own pools rather than the relay's sockets kept open: an upstream's TCP connection carries one
//! client's stream, so only one that nobody has used can be given away.
//!
//! Whoever takes a socket needs no dial place. A dial that measures (`fresh`: races, the half-open
//! probe) never gets one from here.
//!
//! Limits: [`KEEP`] sockets an address, none older than [`TTL`], at most [`KEEP`] dials at once to
//! an address and the bulkhead's background places in the process. The pool of an address is
//! empty, and is not refilled, while the breaker of one of its lines is not closed, a line is
//! marked failed, or its health checks fail.

mod keep;
mod pool;
mod refill;

pub(crate) use keep::{Source, keep_warm};
pub(crate) use pool::{Pool, Pools};

use std::time::Duration;

/// Idle sockets an address; also how many dials to it may be under way.
pub(crate) const KEEP: usize = 4;
/// The longest a socket stays idle. Servers commonly close idle connections after 60 s or more.
const TTL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
