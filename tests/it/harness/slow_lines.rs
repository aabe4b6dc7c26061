//! A gateway in front of lines with real delay and real silence.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::hear;
use super::delaynet::DelayNet;
use super::instance::Instance;
use super::upstream::Upstream;

/// What the upstreams of a setting say, in the order of its lines.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A gateway with the rule `r` over lines 1, 2, … of a network of its own.
pub(crate) struct SlowLines {
    pub(crate) instance: Instance,
    pub(crate) entry: SocketAddr,
    pub(crate) net: DelayNet,
    _upstreams: Vec<Upstream>,
}

impl SlowLines {
    /// Behind each line a server that says its name. Nothing where there is no such network.
    pub(crate) fn start(test: &str, lines: &[&str], rule: Value) -> Option<Self> {
        Self::with(test, lines, rule, Upstream::named)
    }

    /// As [`Self::start`], with servers of the test's choice.
    pub(crate) fn with(
        test: &str,
        lines: &[&str],
        mut rule: Value,
        upstream: impl Fn(SocketAddr, &'static str) -> Upstream + Sync,
    ) -> Option<Self> {
        let count = u8::try_from(lines.len()).unwrap();
        let net = DelayNet::start(test, count)?;
        let addresses: Vec<_> = (1..=count).map(DelayNet::line).collect();
        let upstreams = net.far(|| {
            addresses.iter().zip(NAMES).map(|(&address, name)| upstream(address, name)).collect()
        });
        for (number, line) in (1..).zip(lines) {
            net.set(&format!("{number} {line}"));
        }
        let entry: SocketAddr = ([127, 0, 0, 1], 10_000).into();
        rule["name"] = json!("r");
        rule["listen"] = json!(entry.to_string());
        rule["targets"] =
            addresses.iter().map(|address| json!({ "address": address.to_string() })).collect();
        let instance = net.near(|| Instance::start(&json!({ "rules": [rule] })));
        Some(Self { instance, entry, net, _upstreams: upstreams })
    }

    /// What a client hears.
    pub(crate) fn hear(&self) -> std::io::Result<String> {
        self.net.near(|| hear(self.entry))
    }

    /// Hears `name`, and how long it took.
    pub(crate) fn expect(&self, name: &str) -> Duration {
        let start = Instant::now();
        assert_eq!(self.hear().unwrap(), name);
        start.elapsed()
    }

    /// Dials for clients over a line, counted from 0.
    pub(crate) fn attempts(&self, number: u8) -> f64 {
        let labels = format!("rule=\"r\",target=\"{}\"", DelayNet::line(number + 1));
        self.instance.series("baton_dial_attempts_total", &labels)
    }

    /// How often a hedge has come to this.
    pub(crate) fn hedges(&self, outcome: &str) -> f64 {
        let outcome = format!("outcome=\"{outcome}\"");
        self.instance.series("baton_boost_hedge_events_total", &outcome)
    }
}
