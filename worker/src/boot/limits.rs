//! The process's limit of open descriptors.

use std::collections::BTreeSet;
use std::io;

use baton_config::model::Config;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::prewarm;

/// Descriptors beside those of connections and listeners: runtimes, control, logs, dials that
/// lose a race, pipes of busy directions.
const RESERVE: u64 = 256;

/// Raises the soft limit to the hard one; returns what holds now.
pub(super) fn raise_descriptors() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// The most idle connections that a configuration keeps ready.
pub(super) fn idle_connections(config: &Config) -> usize {
    let prewarmed = config.rules.iter().filter(|rule| rule.prewarm);
    let targets: BTreeSet<String> = prewarmed
        .flat_map(|rule| rule.targets.iter().map(|target| target.address.to_string()))
        .collect();
    targets.len() * prewarm::KEEP
}

/// What to tell the operator when the limit cannot hold the configured connections.
pub(super) fn shortage(
    limit: u64,
    connections: u32,
    listeners: usize,
    shards: usize,
    idle: usize,
) -> Option<String> {
    let beside = u64::try_from(listeners * (2 * shards + 1) + idle).unwrap_or(u64::MAX);
    let needed = (u64::from(connections) * 2).saturating_add(beside).saturating_add(RESERVE);
    (needed > limit).then(|| {
        let room = limit.saturating_sub(beside).saturating_sub(RESERVE) / 2;
        format!(
            "the limit of {limit} open descriptors holds about {room} of the {connections} \
             connections that supervisor.maxConnections allows; {needed} are needed"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_cap_fits_a_common_limit() {
        assert_eq!(shortage(65_536, 4096, 10, 8, 1024), None);
    }

    #[test]
    fn a_limit_that_is_too_low_is_told_with_what_it_holds() {
        let told = shortage(1024, 4096, 2, 2, 0).unwrap();
        assert!(told.contains("holds about 379 of the 4096"), "{told}");
        assert!(told.contains("8458 are needed"), "{told}");
    }

    #[test]
    fn the_soft_limit_can_be_raised() {
        let limit = raise_descriptors().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
    }
}
