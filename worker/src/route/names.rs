//! `tls`: server name and protocols → targets.
//!
//! A name matches exactly or by a wildcard for one whole first label (`*.example.com` matches
//! `a.example.com`, not `a.b.example.com` nor `example.com`). A protocol matches exactly. A
//! target with both lists needs both; a list it does not have asks nothing. The target with
//! neither is the fallback, tried after every match. Matches keep the configured order: the
//! file decides between an exact name and a wildcard, not a rule of ours.
//!
//! Everything is a set of at most 128 targets, so a look-up is a few hash probes and a few
//! instructions on bits, however many names there are.

use std::collections::HashMap;

use baton_config::model::Target;

use crate::flow::{Hello, TargetSet};

/// The name rules of one rule's targets.
#[derive(Debug, Default)]
pub struct NameTable {
    exact: HashMap<Box<str>, TargetSet>,
    /// By what follows the `*.`.
    wildcard: HashMap<Box<str>, TargetSet>,
    protocols: HashMap<Box<[u8]>, TargetSet>,
    /// Targets that ask for no name; for no protocol.
    any_name: TargetSet,
    any_protocol: TargetSet,
    fallback: Option<u16>,
}

impl NameTable {
    /// The table of these targets; names are lower-case, as the configuration makes them.
    #[must_use]
    pub fn new(targets: &[Target]) -> Self {
        let mut table = Self::default();
        for (position, target) in (0u16..).zip(targets) {
            if target.server_names.is_empty() && target.alpn.is_empty() {
                table.fallback.get_or_insert(position);
                continue;
            }
            if target.server_names.is_empty() {
                table.any_name.insert(position);
            }
            if target.alpn.is_empty() {
                table.any_protocol.insert(position);
            }
            for name in &target.server_names {
                match name.strip_prefix("*.") {
                    Some(parent) => table.wildcard.entry(parent.into()),
                    None => table.exact.entry(name.as_str().into()),
                }
                .or_default()
                .insert(position);
            }
            for protocol in &target.alpn {
                table.protocols.entry(protocol.as_bytes().into()).or_default().insert(position);
            }
        }
        table
    }

    /// The targets a hello matches; never the fallback.
    #[must_use]
    pub fn matching(&self, hello: &Hello) -> TargetSet {
        let mut by_name = self.any_name;
        if let Some(name) = hello.server_name.as_deref() {
            by_name = by_name.union(self.exact.get(name).copied().unwrap_or_default());
            if let Some((_, parent)) = name.split_once('.') {
                by_name = by_name.union(self.wildcard.get(parent).copied().unwrap_or_default());
            }
        }
        let mut by_protocol = self.any_protocol;
        if !self.protocols.is_empty() {
            for protocol in hello.protocols() {
                by_protocol =
                    by_protocol.union(self.protocols.get(protocol).copied().unwrap_or_default());
            }
        }
        by_name.intersection(by_protocol)
    }

    /// The target that asks nothing.
    #[must_use]
    pub fn fallback(&self) -> Option<u16> {
        self.fallback
    }
}
