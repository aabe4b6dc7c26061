//! Whether a new worker has descriptors enough for the connections that would move to it. Pure.
//!
//! Asked before anything is started: an upgrade that runs into the limit half-way loses nothing,
//! but it leaves connections where they should not stay, and the operator hears of it too late.

/// Descriptors of a connection: two sockets. Pipes come and go.
const PER_CONNECTION: u64 = 2;
/// Of a listener: one to hold it, and one a relay thread; there is one thread at least.
const PER_LISTENER: u64 = 2;
/// Of a worker without connections: log, channels, runtimes, keeper, and one batch of a move that
/// arrives before it is counted. Measured: 30 with two relay threads.
const WORKER: u64 = 64;

/// What to tell the operator when `limit` descriptors cannot do. Errs on the side of going on.
pub(crate) fn shortage(limit: u64, connections: u64, listeners: usize) -> Option<String> {
    let listeners = u64::try_from(listeners).unwrap_or(u64::MAX);
    let needed = connections
        .saturating_mul(PER_CONNECTION)
        .saturating_add(listeners.saturating_mul(PER_LISTENER))
        .saturating_add(WORKER);
    (connections > 0 && needed > limit).then(|| {
        format!(
            "a limit of {limit} open descriptors does not hold the {connections} connections that \
             would move to the new worker, at least {needed} are needed: raise it (LimitNOFILE=, \
             ulimit -n, prlimit), or let connections stay (supervisor.handover: \"listeners\")"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_just_enough_passes_and_one_less_is_told() {
        assert_eq!(shortage(2 * 1000 + 2 * 3 + 64, 1000, 3), None);
        let told = shortage(2 * 1000 + 2 * 3 + 63, 1000, 3).unwrap();
        assert!(told.contains("2069") && told.contains("1000 connections"), "{told}");
        assert!(told.contains("at least 2070 are needed"), "{told}");
    }

    #[test]
    fn without_connections_there_is_nothing_to_hold() {
        assert_eq!(shortage(10, 0, 1000), None);
        assert!(shortage(u64::MAX - 1, u64::MAX, usize::MAX).is_some());
    }
}
