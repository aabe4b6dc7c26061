//! Builds that failed too often to be tried again by accident.
//!
//! A package manager that signals on every file change, or a timer that upgrades, would
//! otherwise start a broken build over and over. An operator who knows better says `force`.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::program::BuildId;

/// Failures after which a build is no longer tried.
const FAILURES: u32 = 3;
/// Builds remembered; the oldest is forgotten first.
const REMEMBERED: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Quarantine {
    failed: VecDeque<(BuildId, u32)>,
}

impl Quarantine {
    /// The build failed once more by its own fault.
    pub(super) fn blame(&mut self, build: BuildId) {
        if let Some((_, count)) = self.failed.iter_mut().find(|(known, _)| *known == build) {
            *count = count.saturating_add(1);
            return;
        }
        if self.failed.len() == REMEMBERED {
            self.failed.pop_front();
        }
        self.failed.push_back((build, 1));
    }

    /// The build is not to be tried again without force, whatever it did before.
    pub(super) fn condemn(&mut self, build: BuildId) {
        for _ in 0..FAILURES {
            self.blame(build);
        }
    }

    /// The build stood its test.
    pub(super) fn clear(&mut self, build: BuildId) {
        self.failed.retain(|(known, _)| *known != build);
    }

    /// Whether the build is not to be tried without force.
    pub(super) fn holds(&self, build: BuildId) -> bool {
        self.failed.iter().any(|(known, count)| *known == build && *count >= FAILURES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_quarantine_a_build_and_one_success_frees_it() {
        let mut quarantine = Quarantine::default();
        let build = BuildId::fake(1);
        quarantine.blame(build);
        quarantine.blame(build);
        assert!(!quarantine.holds(build));
        quarantine.blame(build);
        assert!(quarantine.holds(build));
        assert!(!quarantine.holds(BuildId::fake(2)));
        quarantine.clear(build);
        assert!(!quarantine.holds(build));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_build_is_forgotten_first() {
        let mut quarantine = Quarantine::default();
        for inode in 0..20 {
            for _ in 0..FAILURES {
                quarantine.blame(BuildId::fake(inode));
            }
        }
        assert_eq!(quarantine.failed.len(), REMEMBERED);
        assert!(!quarantine.holds(BuildId::fake(3)));
        assert!(quarantine.holds(BuildId::fake(4)));
    }
}
