//! The modes and strategies, as clients see them.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, Upstream};

const NAMES: [&str; 3] = ["a", "b", "c"];

struct Setting {
    instance: Instance,
    entry: SocketAddr,
    _upstreams: Vec<Upstream>,
}

fn setting(rule: Value) -> Setting {
    let loopback = Loopback::unique();
    let upstreams: Vec<_> =
        NAMES.iter().map(|name| Upstream::named(loopback.next(), name)).collect();
    let entry = loopback.next();
    let mut rule = rule;
    rule["name"] = json!("r");
    rule["listen"] = json!(entry.to_string());
    let weights = rule["weights"].take();
    rule.as_object_mut().unwrap().remove("weights");
    rule["targets"] = upstreams
        .iter()
        .enumerate()
        .map(|(number, upstream)| {
            let mut target = json!({ "address": upstream.address().to_string() });
            if let Some(weight) = weights.get(number) {
                target["weight"] = weight.clone();
            }
            target
        })
        .collect();
    let instance = Instance::start(&json!({ "rules": [rule] }));
    Setting { instance, entry, _upstreams: upstreams }
}

fn ask(entry: SocketAddr) -> String {
    let mut answer = String::new();
    TcpStream::connect(entry).unwrap().read_to_string(&mut answer).unwrap();
    answer
}

fn shares(entry: SocketAddr, count: usize) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for _ in 0..count {
        *shares.entry(ask(entry)).or_default() += 1;
    }
    shares
}

#[test]
fn a62_normal_takes_the_first_that_connects() {
    let Setting { instance, entry, _upstreams } = setting(json!({ "mode": "normal" }));
    assert_eq!(shares(entry, 10), BTreeMap::from([("a".into(), 10)]));
    let mut upstreams = _upstreams;
    drop(upstreams.remove(0));
    assert_eq!(shares(entry, 10), BTreeMap::from([("b".into(), 10)]));
    instance.stop();
}

#[test]
fn a68_roundrobin_turns() {
    let Setting { instance, entry, _upstreams } = setting(json!({ "mode": "roundrobin" }));
    let seen: Vec<_> = (0..6).map(|_| ask(entry)).collect();
    assert_eq!(seen, ["a", "b", "c", "a", "b", "c"]);
    instance.stop();
}

#[test]
fn c6_round_turns_and_a_dead_target_costs_nobody_a_connection() {
    let setting = setting(json!({ "mode": "forward", "selector": { "strategy": "round" } }));
    assert_eq!(
        shares(setting.entry, 9),
        BTreeMap::from([("a".into(), 3), ("b".into(), 3), ("c".into(), 3)])
    );
    let mut upstreams = setting._upstreams;
    drop(upstreams.remove(1));
    let after = shares(setting.entry, 12);
    assert_eq!(after.keys().collect::<Vec<_>>(), ["a", "c"], "{after:?}");
    setting.instance.stop();
}

#[test]
fn c8_fifo_stays_with_the_first() {
    let Setting { instance, entry, _upstreams } =
        setting(json!({ "mode": "forward", "selector": { "strategy": "fifo" } }));
    assert_eq!(shares(entry, 10), BTreeMap::from([("a".into(), 10)]));
    instance.stop();
}

#[test]
fn c7_rand_follows_the_weights() {
    let Setting { instance, entry, _upstreams } = setting(json!({
        "mode": "forward", "selector": { "strategy": "rand" }, "weights": [20, 10, 1] }));
    let count = 620;
    let shares = shares(entry, count);
    // Five standard deviations of a binomial share: once in a million runs.
    for (name, weight) in [("a", 20.0), ("b", 10.0), ("c", 1.0)] {
        let p: f64 = weight / 31.0;
        let expected = p * count as f64;
        let bound = 5.0 * (count as f64 * p * (1.0 - p)).sqrt();
        let got = shares.get(name).copied().unwrap_or(0) as f64;
        assert!((got - expected).abs() <= bound, "{name}: {got}, expected {expected} ± {bound}");
    }
    instance.stop();
}
