//! The closed word lists of the file, each once: read, printed and put into the schema from here.

use crate::model::{
    Handover, HashKey, Level, OnAllFailed, ParallelMode, Prefer, ProxyVersion, Resolve,
    SubsetFallback,
};

/// A type whose values are words of the file.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// Every word; where two mean the same, the first is the one that is printed.
    const WORDS: &'static [(&'static str, Self)];

    fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
    }

    fn name(self) -> &'static str {
        // Every value is in its list: the tests go through all of them.
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

/// The words of a list, in order.
pub(crate) fn names<W: Word>() -> Vec<&'static str> {
    W::WORDS.iter().map(|(name, _)| *name).collect()
}

/// `mode`, without what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModeWord {
    Normal,
    Regex,
    Boost,
    RoundRobin,
    Tls,
    Forward,
}

impl Word for ModeWord {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("normal", Self::Normal),
        ("regex", Self::Regex),
        ("boost", Self::Boost),
        ("roundrobin", Self::RoundRobin),
        ("tls", Self::Tls),
        ("forward", Self::Forward),
    ];
}

/// `selector.strategy`, without what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrategyWord {
    Round,
    Rand,
    Fifo,
    Hash,
    Parallel,
    LeastConn,
    Latency,
}

impl Word for StrategyWord {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("round", Self::Round),
        ("rand", Self::Rand),
        ("fifo", Self::Fifo),
        ("hash", Self::Hash),
        ("parallel", Self::Parallel),
        ("leastconn", Self::LeastConn),
        ("latency", Self::Latency),
    ];
}

/// `healthCheck.type`, without what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthWord {
    Tcp,
    Http,
}

impl Word for HealthWord {
    const WORDS: &'static [(&'static str, Self)] = &[("tcp", Self::Tcp), ("http", Self::Http)];
}

/// `protocol`: what clients speak before the payload. Newer Moto files name it; plain TCP is
/// all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolWord {
    Tcp,
}

impl Word for ProtocolWord {
    const WORDS: &'static [(&'static str, Self)] = &[("tcp", Self::Tcp)];
}

impl Word for Level {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("debug", Self::Debug),
        ("info", Self::Info),
        ("warn", Self::Warn),
        ("error", Self::Error),
        ("dpanic", Self::Error),
        ("panic", Self::Error),
        ("fatal", Self::Error),
    ];
}

impl Word for Handover {
    const WORDS: &'static [(&'static str, Self)] =
        &[("connections", Self::Connections), ("listeners", Self::Listeners)];
}

impl Word for Prefer {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("ipv4", Self::Ipv4), ("ipv6", Self::Ipv6)];
}

impl Word for HashKey {
    const WORDS: &'static [(&'static str, Self)] =
        &[("client", Self::Client), ("host", Self::Host)];
}

impl Word for ParallelMode {
    const WORDS: &'static [(&'static str, Self)] = &[("round", Self::Round), ("rand", Self::Rand)];
}

impl Word for OnAllFailed {
    const WORDS: &'static [(&'static str, Self)] =
        &[("lastResort", Self::LastResort), ("reject", Self::Reject)];
}

impl Word for Resolve {
    const WORDS: &'static [(&'static str, Self)] =
        &[("dial", Self::Dial), ("expand", Self::Expand)];
}

impl Word for ProxyVersion {
    const WORDS: &'static [(&'static str, Self)] = &[("v1", Self::V1), ("v2", Self::V2)];
}

impl Word for SubsetFallback {
    const WORDS: &'static [(&'static str, Self)] = &[("any", Self::Any), ("none", Self::None)];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go_round<W: Word + std::fmt::Debug>() {
        for (name, value) in W::WORDS {
            assert_eq!(W::parse(name), Some(*value));
            assert_eq!(W::parse(value.name()), Some(*value), "{name}");
        }
        assert_eq!(W::parse(""), None);
    }

    #[test]
    fn every_word_is_read_and_printed() {
        go_round::<ModeWord>();
        go_round::<StrategyWord>();
        go_round::<HealthWord>();
        go_round::<ProtocolWord>();
        go_round::<Level>();
        go_round::<Handover>();
        go_round::<Prefer>();
        go_round::<HashKey>();
        go_round::<ParallelMode>();
        go_round::<OnAllFailed>();
        go_round::<Resolve>();
        go_round::<ProxyVersion>();
        go_round::<SubsetFallback>();
    }
}
