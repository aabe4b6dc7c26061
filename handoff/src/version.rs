//! Which protocol two processes speak with each other.
//!
//! Every header carries the sender's range of versions, so each side can settle the version by
//! itself on the first message it sees, with no round trip and no third party. A release speaks
//! its own protocol N and the one before, N−1: an upgrade and a downgrade by one step both find a
//! common version, and a larger step is refused by both sides with the same words.
//!
//! The header and the `Hello` messages are frozen over all versions (but for optional fields):
//! they are read before a version is agreed.

use std::fmt;

/// A protocol version; 1 is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

/// The versions a process speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionRange {
    min: Version,
    max: Version,
}

/// What this build speaks. Protocol 2 adds connections that outlive their worker.
pub const OURS: VersionRange = VersionRange { min: Version(1), max: LIVING };

/// From this version on connections move between workers and are recovered from dead ones.
pub const LIVING: Version = Version(2);

/// What this process speaks: [`OURS`], or what a test makes it speak.
#[must_use]
pub fn ours() -> VersionRange {
    crate::faults::spoken().unwrap_or(OURS)
}

impl VersionRange {
    /// A range; `None` when it is empty or starts below version 1.
    #[must_use]
    pub fn new(min: Version, max: Version) -> Option<Self> {
        (min.0 >= 1 && min <= max).then_some(Self { min, max })
    }

    /// The range of exactly one version.
    #[must_use]
    pub fn only(version: Version) -> Self {
        Self { min: version, max: version }
    }

    /// The oldest version spoken.
    #[must_use]
    pub fn min(self) -> Version {
        self.min
    }

    /// The newest version spoken.
    #[must_use]
    pub fn max(self) -> Version {
        self.max
    }

    /// Whether `version` is spoken.
    #[must_use]
    pub fn contains(self, version: Version) -> bool {
        self.min <= version && version <= self.max
    }

    /// The newest version that both sides speak.
    ///
    /// # Errors
    /// [`Refusal`] when there is none.
    pub fn negotiate(self, theirs: Self) -> Result<Version, Refusal> {
        if theirs.max < self.min {
            Err(Refusal::PeerTooOld { ours: self, theirs })
        } else if theirs.min > self.max {
            Err(Refusal::PeerTooNew { ours: self, theirs })
        } else {
            Ok(self.max.min(theirs.max))
        }
    }
}

/// Why two processes cannot talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Everything the peer speaks is older than what this side still speaks.
    #[error(
        "no common protocol: the peer speaks {theirs}, this side {ours}; the peer is too old, \
         go through a release in between"
    )]
    PeerTooOld {
        /// This side's range.
        ours: VersionRange,
        /// The peer's range.
        theirs: VersionRange,
    },
    /// The peer has dropped everything this side speaks.
    #[error(
        "no common protocol: the peer speaks {theirs}, this side {ours}; this side is too old, \
         go through a release in between"
    )]
    PeerTooNew {
        /// This side's range.
        ours: VersionRange,
        /// The peer's range.
        theirs: VersionRange,
    },
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            self.min.fmt(f)
        } else {
            write!(f, "{} to {}", self.min, self.max)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(min: u16, max: u16) -> VersionRange {
        VersionRange::new(Version(min), Version(max)).unwrap()
    }

    #[test]
    fn one_step_up_or_down_finds_the_older_sides_newest_version() {
        assert_eq!(range(1, 2).negotiate(range(2, 3)), Ok(Version(2)));
        assert_eq!(range(2, 3).negotiate(range(1, 2)), Ok(Version(2)));
        assert_eq!(range(1, 1).negotiate(range(1, 1)), Ok(Version(1)));
    }

    #[test]
    fn a_refusal_says_which_side_is_too_old() {
        let refusal = range(1, 2).negotiate(range(3, 4)).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "no common protocol: the peer speaks 3 to 4, this side 1 to 2; this side is too old, \
             go through a release in between"
        );
        let refusal = range(3, 4).negotiate(range(1, 1)).unwrap_err();
        assert!(refusal.to_string().contains("the peer is too old"), "{refusal}");
    }

    #[test]
    fn empty_ranges_and_version_zero_do_not_exist() {
        assert_eq!(VersionRange::new(Version(2), Version(1)), None);
        assert_eq!(VersionRange::new(Version(0), Version(1)), None);
    }

    proptest! {
        #[test]
        fn both_sides_settle_on_the_same_version(a in 1u16..6, b in 0u16..3, c in 1u16..6, d in 0u16..3) {
            let (left, right) = (range(a, a + b), range(c, c + d));
            let (l, r) = (left.negotiate(right), right.negotiate(left));
            prop_assert_eq!(l.ok(), r.ok());
            if let Ok(version) = l {
                prop_assert!(left.contains(version) && right.contains(version));
                prop_assert!(!(left.contains(Version(version.0 + 1)) && right.contains(Version(version.0 + 1))));
            }
        }
    }
}
