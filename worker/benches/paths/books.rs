//! What is counted and noted of a connection: limits, lists, metrics, the table for a successor.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use baton_handoff::table::{
    Busy, Endpoint, Identity, Lane, RuleKey, Slot, State, Table, TargetKey, Way,
};
use baton_metrics::{Region, catalog};
use baton_worker::accept::admission::Gate;
use baton_worker::accept::lists::PrefixSet;
use ipnet::IpNet;

use super::Path;

/// All of them.
pub(crate) fn paths() -> Vec<Path> {
    [admission(), vec![address_list()], metrics(), table()].into_iter().flatten().collect()
}

/// Taking the slots of a connection and giving them back.
fn admission() -> Vec<Path> {
    let limits = [("process and rule", 1000), ("process, rule and client", 100)];
    let paths = limits.map(|(name, client_limit)| {
        let gate = Gate::new(Arc::default(), Arc::default(), 1000, 1000, client_limit);
        let ip = IpAddr::from([192, 0, 2, 1]);
        Path::new(format!("admission: {name}"), move || {
            let admitted = gate.enter().and_then(|()| gate.enter_client(black_box(ip)));
            gate.leave(admitted.unwrap_or_else(|why| panic!("there is room: {why:?}")));
        })
    });
    paths.into()
}

/// The longest list a rule may have.
fn address_list() -> Path {
    let networks: Vec<IpNet> = (0..4096u32)
        .filter_map(|n| IpNet::new(Ipv4Addr::from_bits(n << 12).into(), 24).ok())
        .collect();
    let set = PrefixSet::new(&networks);
    let mut n = 0u32;
    Path::new("address list: 4096 networks asked", move || {
        let asked = IpAddr::from(Ipv4Addr::from_bits(n.wrapping_mul(2_654_435_761) >> 8));
        black_box(set.contains(black_box(asked)));
        n = n.wrapping_add(1);
    })
}

fn metrics() -> Vec<Path> {
    let dir = std::env::temp_dir().join(format!("baton-paths-{}", std::process::id()));
    let region = std::fs::create_dir(&dir).and_then(|()| {
        let region = Region::create(&dir, 4 << 20).map_err(std::io::Error::other);
        std::fs::remove_dir_all(&dir)?;
        region
    });
    let region = region.unwrap_or_else(|error| panic!("a metrics region: {error}"));
    let lane = region.claim_lane(std::process::id());
    let labels = [("rule", "web"), ("mode", "normal")];
    let counter = lane.counter(&catalog::CONNECTIONS_ACCEPTED, &labels);
    let histogram = lane.histogram(&catalog::RELAY_DURATION, &[("rule", "web")]);
    let mut nanos = 1;
    vec![
        Path::new("metrics: count one", move || counter.inc()),
        Path::new("metrics: observe a duration", move || {
            nanos = nanos * 7 % 100_000_000_007;
            histogram.observe(Duration::from_nanos(nanos));
        }),
    ]
}

/// A table of connections with room for a few.
pub(super) fn lane() -> Rc<Lane> {
    let (_, mut lanes) = Table::create(1, 8).unwrap_or_else(|error| panic!("a table: {error}"));
    Rc::new(lanes.remove(0))
}

/// A connection's record.
pub(super) fn slot(lane: &Rc<Lane>) -> Slot {
    let endpoint = |number| Endpoint { number, cookie: 1 << 40 };
    let identity = Identity {
        client: endpoint(7),
        upstream: endpoint(8),
        rule: RuleKey(1),
        target: TargetKey(2),
        target_index: 3,
        generation: 4,
        opened_at: 5,
        peer: ([192, 0, 2, 1], 50_000).into(),
        idle: Some(Duration::from_secs(60)),
        adoptions: 0,
        adopted_at: 0,
    };
    lane.open(black_box(&identity), State::Doomed).unwrap_or_else(|| panic!("there is room"))
}

fn table() -> Vec<Path> {
    let (short, long) = (lane(), lane());
    let lasting = slot(&long);
    let mut bytes = 0;
    vec![
        Path::new("table: open and free a record", move || drop(black_box(slot(&short)))),
        Path::new("table: note a message", move || {
            bytes += 64;
            lasting.busy(Way::ToUpstream, Busy::Memory);
            lasting.total(Way::ToUpstream, black_box(bytes));
            lasting.busy(Way::ToUpstream, Busy::No);
        }),
    ]
}
