//! What a decision costs: each mode and strategy with 2, 16 and 128 targets, from `begin` to
//! `Use` of a connection whose first attempt succeeds, lines told and winner dropped; and what
//! building and asking the subset index, and asking an address list, cost. Single-threaded,
//! medians of many short runs.
//!
//! Goals: at most 2 µs a connection at 16 targets; at most 5.5 ms for the index of 8000 targets
//! with 4 labels of 3 values and all 15 combinations of keys; at most 100 ns a look-up in the
//! longest list.

#![allow(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_config::model::{
    Address, Forward, HashKey, Hedge, Host, Listen, ListenHost, Mode, OnAllFailed, ParallelMode,
    ProxyProtocol, Resolve, Rule, Selector as Spec, Strategy, Target,
};
use baton_worker::accept::lists::PrefixSet;
use baton_worker::classify::regex::Patterns;
use baton_worker::classify::tls::HelloParser;
use baton_worker::classify::{Classifier, Decision, Progress, Reason};
use baton_worker::flow::{Event, Moment, Step, Steps, Verdict};
use baton_worker::route::Router;
use baton_worker::route::subset::SubsetIndex;
use baton_worker::select::{Affinity, Selector};
use baton_worker::upstream::LineSet;
use ipnet::IpNet;

const CONNECT: Duration = Duration::from_millis(20);

fn main() {
    println!("{:<24}{:>10}{:>10}{:>10}", "ns per connection", 2, 16, 128);
    let cold = COUNTS.map(|count| format!("{:>10}", decision(&Mode::Boost(None), count, COLD)));
    println!("{:<24}{}", "boost, cold race", cold.concat());
    for (name, mode) in modes() {
        let costs: Vec<String> =
            COUNTS.iter().map(|&count| format!("{:>10}", decision(&mode, count, WARM))).collect();
        println!("{name:<24}{}", costs.concat());
    }
    content();
    subset();
    address_list();
}

/// How many targets the decisions are measured with.
const COUNTS: [u16; 3] = [2, 16, 128];
/// Between two connections: the winner cache stays warm …
const WARM: Duration = Duration::from_micros(100);
/// … or has forgotten its winner (its life is 30 s).
const COLD: Duration = Duration::from_secs(31);

/// `regex` and `tls`: reading the first bytes and finding the candidates.
fn content() {
    let request = b"GET /index.html HTTP/1.1\r\nHost: example.test\r\n\r\n";
    let regex = COUNTS.map(|count| {
        let texts: Vec<String> = (1..count).map(|n| format!("^PROTO{n} ")).collect();
        let patterns = texts.iter().map(|text| Some(text.as_str())).chain([Some("^GET ")]);
        let Ok(patterns) = Patterns::compile(&patterns.collect::<Vec<_>>()) else {
            return "-".into();
        };
        let patterns = Arc::new(patterns);
        let read = || Classifier::Regex(patterns.scan());
        format!("{:>10}", classified(rule(Mode::Regex, count), read, request))
    });
    println!("{:<24}{}", "regex, last matches", regex.concat());
    let hello = include_bytes!("../../fuzz/corpus/client_hello/bare");
    let tls = COUNTS.map(|count| {
        let read = || Classifier::Tls(HelloParser::default());
        format!("{:>10}", classified(rule(Mode::Tls, count), read, hello))
    });
    println!("{:<24}{}", "tls, ClientHello", tls.concat());
}

/// Nanoseconds of one classification and routing: the median over runs of 1000.
fn classified<'p>(rule: Rule, read: impl Fn() -> Classifier<'p>, bytes: &[u8]) -> u128 {
    let lines = Arc::new(LineSet::for_rule(&rule, |_| None, None));
    let router = Router::for_rule(&rule, &lines);
    let now = Moment(1_000_000_000_000);
    median(|| {
        let mut classifier = read();
        let decision = match classifier.feed(black_box(bytes)) {
            Progress::Decided(decision) => decision,
            Progress::NeedMore => classifier.end(bytes, Reason::Eof),
        };
        let (Decision::Found(verdict) | Decision::Nothing(verdict, _)) = decision;
        drop(black_box(router.candidates(&verdict, &lines, now)));
    })
}

fn median(mut connection: impl FnMut()) -> u128 {
    let mut runs: Vec<u128> = (0..200)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..1000 {
                connection();
            }
            begun.elapsed().as_nanos() / 1000
        })
        .collect();
    runs.sort_unstable();
    runs[runs.len() / 2]
}

fn modes() -> Vec<(&'static str, Mode)> {
    let forward = |strategy| {
        let selector = Spec {
            strategy,
            max_fails: 1,
            fail_timeout: Duration::from_secs(10),
            on_all_failed: OnAllFailed::LastResort,
        };
        Mode::Forward(Forward { selector, retries: 2, hash: HashKey::Client })
    };
    let hedge =
        Hedge { min_delay: Duration::from_millis(25), max_delay: Duration::from_millis(250) };
    let pair = Strategy::Parallel { max: 2, mode: ParallelMode::Round };
    vec![
        ("normal", Mode::Normal),
        ("boost", Mode::Boost(None)),
        ("boost, hedge", Mode::Boost(Some(hedge))),
        ("roundrobin", Mode::RoundRobin),
        ("forward round", forward(Strategy::Round)),
        ("forward rand", forward(Strategy::Rand)),
        ("forward fifo", forward(Strategy::Fifo)),
        ("forward hash", forward(Strategy::Hash)),
        ("forward parallel, 2", forward(pair)),
        ("forward leastconn", forward(Strategy::LeastConn)),
        ("forward latency", forward(Strategy::Latency)),
    ]
}

/// Nanoseconds of one connection, `pause` after the last: the median over runs of 1000.
fn decision(mode: &Mode, count: u16, pause: Duration) -> u128 {
    let rule = rule(mode.clone(), count);
    let lines = Arc::new(LineSet::for_rule(&rule, |_| None, None));
    let router = Router::for_rule(&rule, &lines);
    let selector = Arc::new(Selector::for_rule(&rule));
    let mut now = Moment(1_000_000_000_000);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut steps = Steps::new();
    median(|| {
        let Ok(candidates) = router.candidates(&Verdict::Unread, &lines, now) else { return };
        let affinity = Affinity::client([10, 0, 0, rng.u8(..)].into());
        let mut machine = selector.begin(&lines, candidates, affinity, rng.fork());
        machine.start(now, &mut steps);
        let first = steps.iter().find_map(|step| match step {
            Step::Dial { attempt, .. } => Some(*attempt),
            Step::WakeAt(_) | Step::Cancel(_) | Step::Use(_) | Step::GiveUp(_) => None,
        });
        let Some(attempt) = first else { return };
        machine.on(Event::Started(attempt), now, &mut steps);
        let connect = Some(CONNECT);
        machine.on(Event::Connected { attempt, connect }, now, &mut steps);
        black_box(&steps);
        steps.clear();
        drop(black_box(machine.take_winner()));
        now = now.after(pause);
    })
}

fn subset() {
    const KEYS: [&str; 4] = ["zone", "tier", "version", "weight-class"];
    let mut rng = fastrand::Rng::with_seed(2);
    let labels: Vec<BTreeMap<String, String>> = (0..8000)
        .map(|_| {
            KEYS.iter()
                .map(|&key| (key.to_owned(), ["one", "two", "three"][rng.usize(0..3)].to_owned()))
                .collect()
        })
        .collect();
    let combinations: Vec<Vec<&str>> = (1u8..16)
        .map(|bits| (0..4).filter(|bit| bits & (1 << bit) != 0).map(|bit| KEYS[bit]).collect())
        .collect();
    let mut builds: Vec<Duration> = (0..51)
        .map(|_| {
            let begun = Instant::now();
            black_box(SubsetIndex::build(labels.iter(), &combinations));
            begun.elapsed()
        })
        .collect();
    builds.sort_unstable();
    let index = SubsetIndex::build(labels.iter(), &combinations);
    let begun = Instant::now();
    for wanted in labels.iter().cycle().take(100_000) {
        black_box(index.lookup(black_box(wanted)));
    }
    let lookup = begun.elapsed() / 100_000;
    println!("subset index of 8000: built in {:?}, asked in {lookup:?}", builds[builds.len() / 2]);
}

/// The longest list a rule may have.
fn address_list() {
    let networks: Vec<IpNet> = (0..4096u32)
        .filter_map(|n| IpNet::new(Ipv4Addr::from_bits(n << 12).into(), 24).ok())
        .collect();
    let set = PrefixSet::new(&networks);
    let asked = |n: u32| IpAddr::from(Ipv4Addr::from_bits(n.wrapping_mul(2_654_435_761) >> 8));
    let begun = Instant::now();
    for n in 0..100_000 {
        black_box(set.contains(black_box(asked(n))));
    }
    println!("address list of {}: asked in {:?}", networks.len(), begun.elapsed() / 100_000);
}

fn rule(mode: Mode, count: u16) -> Rule {
    let target = |port| Target {
        address: Address { host: Host::Ip([127, 0, 0, 1].into()), port },
        name: format!("node-{port}"),
        weight: 1,
        backup: false,
        max_fails: None,
        fail_timeout: None,
        labels: BTreeMap::new(),
        resolve: Resolve::Dial,
        regexp: None,
        server_names: Vec::new(),
        alpn: Vec::new(),
    };
    Rule {
        name: "rule".into(),
        listen: Listen { text: ":1".into(), host: ListenHost::Any, port: 1 },
        mode,
        targets: (1..=count).map(target).collect(),
        timeout: Duration::from_secs(3),
        idle_timeout: None,
        prewarm: false,
        health_check: None,
        proxy_protocol: ProxyProtocol::default(),
        allowlist: Vec::new(),
        blacklist: Vec::new(),
        max_connections: 1,
        max_connections_per_ip: 1,
        subset: None,
    }
}
