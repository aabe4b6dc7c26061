//! The lines of a rule as they are now, with what dialling them needs.
//!
//! One value is replaced by another when a name of an expanded target resolves to something new;
//! a connection that is choosing finishes on the one it began with, since positions mean nothing
//! in another.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use baton_config::model::{self, Host, Resolve};
use smallvec::SmallVec;

use crate::dial::{Addresses, Lines, TargetSlots};
use crate::flow::LineIndex;
use crate::generation::learned;
use crate::names::{Name, Names};
use crate::net;
use crate::prewarm::{Pool, Pools};
use crate::process::Process;
use crate::route::Router;
use crate::upstream::LineSet;

/// Lines, their routing and their addresses.
#[derive(Debug)]
pub(crate) struct Routing {
    /// What selection chooses from.
    pub(crate) lines: Arc<LineSet>,
    /// What the first bytes and labels allow.
    pub(crate) router: Router,
    /// Of each line, in the order of `lines`.
    places: Box<[Place]>,
}

/// How a line is dialled.
#[derive(Debug)]
struct Place {
    slots: Arc<TargetSlots>,
    at: At,
    /// Present when the rule prewarms.
    pool: Option<Arc<Pool>>,
}

#[derive(Debug)]
enum At {
    Address(SocketAddr),
    Name(Arc<Name>, u16),
}

impl Routing {
    /// The routing of `rule` with the names as they are known now; lines that `before` has are
    /// taken over with all that was learned.
    pub(crate) fn new(
        rule: &model::Rule,
        names: &Names,
        pools: &Pools,
        process: &Process,
        before: Option<&LineSet>,
    ) -> Self {
        let expanded = |target: u16| {
            let address = &rule.targets.get(usize::from(target))?.address;
            match &address.host {
                Host::Ip(_) => None,
                Host::Name(name) => Some(names.get(name)?.known().to_vec()),
            }
        };
        let lines = LineSet::recalled(rule, expanded, before, |target, address, gate| {
            learned::recall(process, rule, target, address, gate)
        });
        let router = Router::for_rule(rule, &lines);
        let places = lines
            .iter()
            .filter_map(|(_, node)| {
                // Quota goes by the address as it is written, however many it stands for.
                let written = rule.targets.get(usize::from(node.target))?.address.to_string();
                let at = match &node.address.host {
                    Host::Ip(ip) => At::Address(SocketAddr::new(*ip, node.address.port)),
                    Host::Name(name) => At::Name(names.get(name)?, node.address.port),
                };
                let pool = rule.prewarm.then(|| pools.of(&node.address.to_string()));
                Some(Place { slots: process.bulkhead.target(&written), at, pool })
            })
            .collect();
        Self { lines: Arc::new(lines), router, places }
    }

    /// The addresses of a line that are known now.
    pub(crate) fn known_addresses(&self, line: LineIndex) -> SmallVec<[SocketAddr; 1]> {
        match &self.place(line).at {
            At::Address(address) => SmallVec::from_buf([*address]),
            At::Name(name, port) => with_port(&name.known(), *port),
        }
    }

    /// The idle connections of a line, if its rule prewarms.
    pub(crate) fn pool(&self, line: LineIndex) -> Option<&Arc<Pool>> {
        self.place(line).pool.as_ref()
    }

    /// The dial places of a line.
    pub(crate) fn slots(&self, line: LineIndex) -> &Arc<TargetSlots> {
        &self.place(line).slots
    }

    fn place(&self, line: LineIndex) -> &Place {
        &self.places[usize::from(line.0)]
    }
}

/// Whether the lines of a rule depend on what this name resolves to.
pub(crate) fn expands(rule: &model::Rule, name: &str) -> bool {
    rule.targets.iter().any(|target| {
        target.resolve == Resolve::Expand
            && matches!(&target.address.host, Host::Name(host) if host == name)
    })
}

/// A routing as one connection dials it: with the header that this connection sends first.
pub(crate) struct Path<'r> {
    /// The rule's lines.
    pub(crate) routing: &'r Routing,
    /// A PROXY header, or nothing.
    pub(crate) preparation: &'r [u8],
    /// Whether bytes of the client will follow it at once.
    pub(crate) followed: bool,
}

impl Lines for Path<'_> {
    fn slots(&self, line: LineIndex) -> &Arc<TargetSlots> {
        self.routing.slots(line)
    }

    fn addresses(&self, line: LineIndex) -> Addresses {
        match &self.routing.place(line).at {
            At::Address(address) => (*address).into(),
            At::Name(name, port) => name.addresses(*port),
        }
    }

    fn preparation(&self, _line: LineIndex) -> &[u8] {
        self.preparation
    }

    fn followed(&self) -> bool {
        self.followed
    }

    fn prewarmed(&self, line: LineIndex) -> Option<OwnedFd> {
        self.routing.pool(line)?.take(net::now())
    }
}

/// Addresses with a port.
pub(crate) fn with_port(ips: &[std::net::IpAddr], port: u16) -> SmallVec<[SocketAddr; 1]> {
    ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect()
}
