//! `forward`: stickiness, marks, backups, retries and labels, as clients see them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Hello, Instance, Loopback, Upstream, converse, deliver, hear, until};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Setting {
    instance: Instance,
    entry: SocketAddr,
    addresses: Vec<SocketAddr>,
    upstreams: Vec<Option<Upstream>>,
}

impl Setting {
    /// `targets` has what each target has beside its address.
    fn start(rule: Value, targets: &[Value]) -> Self {
        Self::with(rule, targets, Upstream::named)
    }

    fn with(
        mut rule: Value,
        targets: &[Value],
        upstream: impl Fn(SocketAddr, &'static str) -> Upstream,
    ) -> Self {
        let loopback = Loopback::unique();
        let upstreams: Vec<_> = NAMES[..targets.len()]
            .iter()
            .map(|name| Some(upstream(loopback.next(), name)))
            .collect();
        let addresses = upstreams.iter().flatten().map(Upstream::address).collect();
        let entry = loopback.next();
        rule["name"] = json!("r");
        rule["listen"] = json!(entry.to_string());
        rule["mode"] = json!("forward");
        rule["targets"] = targets
            .iter()
            .zip(upstreams.iter().flatten())
            .map(|(target, upstream)| {
                let mut target = target.clone();
                target["address"] = json!(upstream.address().to_string());
                target
            })
            .collect();
        let instance = Instance::start(&json!({ "rules": [rule] }));
        Self { instance, entry, addresses, upstreams }
    }

    /// Ends an upstream; returns where it was.
    fn kill(&mut self, number: usize) -> SocketAddr {
        let upstream = self.upstreams[number].take().expect("alive");
        upstream.address()
    }

    fn hear(&self) -> String {
        hear(self.entry).unwrap()
    }

    fn failures(&self, number: usize) -> f64 {
        let target = format!("target=\"{}\"", self.addresses[number]);
        self.instance.series("baton_dial_failures_total", &target)
    }
}

fn plain(count: usize) -> Vec<Value> {
    vec![json!({}); count]
}

#[test]
fn c9_clients_stick_and_a_dead_target_moves_only_its_own() {
    let mut setting = Setting::with(
        json!({ "selector": { "strategy": "hash", "failTimeout": "1h" }, "timeout": "1m",
                "proxyProtocol": { "accept": true, "trustedCIDRs": ["127.0.0.0/8"] } }),
        &plain(4),
        Upstream::reporting,
    );
    let entry = setting.entry;
    // The port is no part of the key.
    let served = move |client: u8, port: u16| {
        let header = format!("PROXY TCP4 10.1.2.{client} 10.0.0.9 {port} 80\r\n");
        String::from_utf8(converse(entry, header.as_bytes()).unwrap()).unwrap()
    };
    let before: Vec<_> = (0..80).map(|client| served(client, 1000)).collect();
    let mut shares = BTreeMap::new();
    for (client, name) in (0..).zip(&before) {
        assert_eq!(served(client, 2000), *name);
        *shares.entry(name.clone()).or_insert(0) += 1;
    }
    // Binomial, 80 times a quarter, with other addresses in every run: five standard deviations
    // are 19, once in a million runs.
    assert!(
        shares.len() == 4 && shares.values().all(|&share| (2..=39).contains(&share)),
        "{shares:?}"
    );
    setting.kill(1);
    for (client, name) in (0..).zip(&before) {
        let now = served(client, 3000);
        assert_ne!(now, "b:");
        assert!(name == "b:" || now == *name, "client {client} moved from {name} to {now}");
    }
    assert_eq!(setting.failures(1), 1.0, "one failure marks it");
    setting.instance.stop();
}

#[test]
fn c9_c10_hosts_stick_over_tls_and_http_and_the_rest_goes_by_client() {
    let mut setting = Setting::with(
        json!({ "selector": { "strategy": "hash", "failTimeout": "1h" }, "hash": "host",
                "timeout": "1m",
                "proxyProtocol": { "accept": true, "trustedCIDRs": ["127.0.0.0/8"] } }),
        &plain(4),
        Upstream::reporting,
    );
    let entry = setting.entry;
    let client = std::cell::Cell::new(0_u8);
    // Each connection is another client's; what it says arrives as it was, split or not.
    let served = |bytes: &[u8], split: usize| {
        client.set(client.get().wrapping_add(1));
        let header = format!("PROXY TCP4 10.1.2.{} 10.0.0.9 999 80\r\n", client.get());
        let pieces = [header.as_bytes(), &bytes[..split], &bytes[split..]];
        let heard = deliver(entry, pieces).unwrap();
        assert!(heard[2..] == *bytes, "the bytes were changed");
        char::from(heard[0])
    };
    let site = |number: u8| format!("site-{number}.example");
    let request = |number: u8| format!("GET / HTTP/1.1\r\nHost: {}:8080\r\n\r\n", site(number));
    let mut before = Vec::new();
    for number in 0..60 {
        let hello = Hello::named(site(number).to_uppercase().as_bytes()).bytes();
        let (split, request) = (usize::from(number) % 40, request(number));
        let name = served(&hello, split);
        assert_eq!(served(request.as_bytes(), split), name);
        before.push(name);
    }
    let mut shares = BTreeMap::new();
    before.iter().for_each(|name| *shares.entry(*name).or_insert(0) += 1);
    // Binomial, 60 times a quarter, with other addresses in every run: outside once in a
    // hundred thousand.
    assert!(
        shares.len() == 4 && shares.values().all(|share| (2..=33).contains(share)),
        "{shares:?}"
    );
    // `explain` knows where a name leads without asking anybody.
    let foretold = |arguments: &[&str]| -> SocketAddr {
        let question = [&["explain", "--rule", "r", "--json"], arguments].concat();
        let answer: Value = serde_json::from_str(&setting.instance.expect_ok(&question)).unwrap();
        answer["candidates"][0]["address"].as_str().unwrap().parse().unwrap()
    };
    let address = |name: char| {
        let number = NAMES.iter().position(|&other| other.starts_with(name)).unwrap();
        setting.addresses[number]
    };
    for number in 0..8 {
        let name = before[usize::from(number)];
        assert_eq!(foretold(&["--sni", &site(number)]), address(name));
    }
    // Without a host the client decides.
    for number in 1..20 {
        let ip = format!("10.9.9.{number}");
        for bytes in ["SSH-2.0-x\r\n", "GET / HTTP/1.0\r\n\r\n", ""] {
            let header = format!("PROXY TCP4 {ip} 10.0.0.9 999 80\r\n{bytes}");
            let heard = converse(entry, header.as_bytes()).unwrap();
            assert_eq!(address(char::from(heard[0])), foretold(&["--client", &ip]), "{bytes:?}");
        }
    }
    setting.kill(1);
    for (number, &name) in (0..).zip(&before) {
        let now = served(request(number).as_bytes(), 3);
        assert_ne!(now, 'b');
        assert!(name == 'b' || now == name, "site {number} moved from {name} to {now}");
    }
    assert_eq!(setting.failures(1), 1.0, "one failure marks it");
    setting.instance.stop();
}

#[test]
fn c10_a_client_that_waits_for_the_server_is_served_when_the_time_for_its_host_is_over() {
    let rule = json!({ "selector": { "strategy": "hash" }, "hash": "host", "timeout": 1000 });
    let setting = Setting::start(rule, &plain(4));
    let start = Instant::now();
    let name = setting.hear();
    assert!(start.elapsed().as_millis() >= 1000, "its host was waited for");
    assert_eq!(setting.hear(), name, "and then its address decides");
    setting.instance.stop();
}

#[test]
fn c19_c21_a_mark_ends_and_one_success_restores_the_allowance() {
    const MARKED: Duration = Duration::from_secs(2);
    // A machine too busy to do it all while the mark lasts has proved nothing.
    let mut setting = until("all is seen while it is marked", || {
        let mut setting = Setting::start(
            json!({ "selector": { "strategy": "fifo", "maxFails": 2,
                                  "failTimeout": MARKED.as_millis() as u64 } }),
            &plain(2),
        );
        assert_eq!(setting.hear(), "a");
        setting.kill(0);
        assert_eq!(setting.hear(), "b");
        let before = Instant::now();
        assert_eq!(setting.hear(), "b");
        let allowed = setting.failures(0);
        assert_eq!([setting.hear(), setting.hear()], ["b", "b"]);
        let tried = setting.failures(0);
        if before.elapsed() >= MARKED {
            setting.instance.stop();
            return None;
        }
        assert_eq!(allowed, 2.0, "two are allowed");
        assert_eq!(tried, 2.0, "and then it is left alone");
        Some(setting)
    });
    let address = setting.addresses[0];
    until("its time is over and it is tried again", || {
        assert_eq!(setting.hear(), "b");
        (setting.failures(0) > 2.0).then_some(())
    });
    assert_eq!(setting.failures(0), 3.0, "one more failure marks it again at once");
    setting.upstreams[0] = Some(Upstream::named(address, "a"));
    until("it is back", || (setting.hear() == "a").then_some(()));
    setting.kill(0);
    assert_eq!([setting.hear(), setting.hear()], ["b", "b"]);
    assert_eq!(setting.failures(0), 5.0, "the success restored both");
    setting.instance.stop();
}

#[test]
fn c31_a_backup_serves_only_while_every_primary_is_marked() {
    let mut setting = Setting::start(
        json!({ "selector": { "strategy": "round", "failTimeout": "700ms" } }),
        &[json!({}), json!({}), json!({ "backup": true })],
    );
    for _ in 0..6 {
        assert_ne!(setting.hear(), "c");
    }
    setting.kill(0);
    assert_eq!([setting.hear(), setting.hear(), setting.hear()], ["b", "b", "b"]);
    let address = setting.kill(1);
    until("the backup serves", || hear(setting.entry).is_ok_and(|name| name == "c").then_some(()));
    setting.upstreams[1] = Some(Upstream::named(address, "b"));
    until("a primary is back and the backup leaves", || {
        hear(setting.entry).is_ok_and(|name| name == "b").then_some(())
    });
    setting.instance.stop();
}

#[test]
fn c39_retries_decide_whether_a_dead_target_costs_a_client() {
    let selector = json!({ "strategy": "fifo", "failTimeout": "1h" });
    let mut patient = Setting::start(json!({ "selector": selector, "retries": 2 }), &plain(3));
    patient.kill(0);
    patient.kill(1);
    assert_eq!(patient.hear(), "c", "both dead ones are passed over in one connection");
    patient.instance.stop();

    let mut strict = Setting::start(json!({ "selector": selector, "retries": 0 }), &plain(3));
    strict.kill(0);
    assert!(hear(strict.entry).is_err(), "without retries the first failure is the client's");
    assert_eq!(strict.hear(), "b", "and marks the target for the next");
    strict.instance.stop();
}

#[test]
fn c29_with_all_marked_the_last_resort_is_dialled_or_nobody() {
    for (choice, dials) in [("lastResort", true), ("reject", false)] {
        let mut setting = Setting::start(
            json!({ "selector": { "strategy": "round", "failTimeout": "1h",
                                  "onAllFailed": choice } }),
            &plain(2),
        );
        let address = setting.kill(0);
        setting.kill(1);
        assert!(hear(setting.entry).is_err(), "both are found dead, and marked");
        let before = setting.failures(0) + setting.failures(1);
        assert!(hear(setting.entry).is_err());
        let more = setting.failures(0) + setting.failures(1) > before;
        assert_eq!(more, dials, "{choice}");
        if dials {
            setting.upstreams[0] = Some(Upstream::named(address, "a"));
            until("whoever lives again is found", || hear(setting.entry).ok());
        }
        setting.instance.stop();
    }
}

#[test]
fn c22_a_targets_own_allowance_overrides_the_selectors() {
    let mut setting = Setting::start(
        json!({ "selector": { "strategy": "fifo", "maxFails": 1, "failTimeout": "1h" } }),
        &[json!({ "maxFails": 3 }), json!({})],
    );
    setting.kill(0);
    for _ in 0..6 {
        assert_eq!(setting.hear(), "b");
    }
    assert_eq!(setting.failures(0), 3.0);
    setting.instance.stop();
}

#[test]
fn c28_a_sole_target_is_used_whatever_happened() {
    let mut setting = Setting::start(json!({ "selector": { "failTimeout": "1h" } }), &plain(1));
    let address = setting.kill(0);
    for _ in 0..3 {
        assert!(hear(setting.entry).is_err());
    }
    assert_eq!(setting.failures(0), 3.0);
    setting.upstreams[0] = Some(Upstream::named(address, "a"));
    assert_eq!(setting.hear(), "a");
    setting.instance.stop();
}

/// Connects and waits until an upstream has answered; the connection stays.
fn held(entry: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(entry).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    stream
}

#[test]
fn leastconn_fills_the_emptiest_target() {
    let setting = Setting::with(
        json!({ "selector": { "strategy": "leastconn" } }),
        &plain(3),
        |address, _| Upstream::echo(address),
    );
    let active = || -> Vec<u64> {
        let status = setting.instance.status();
        let lines = status["rules"][0]["lines"].as_array().unwrap().clone();
        let of = |address: &SocketAddr| {
            let line = lines.iter().find(|line| line["address"] == address.to_string());
            line.unwrap()["active"].as_u64().unwrap()
        };
        setting.addresses.iter().map(of).collect()
    };
    let mut connections: Vec<_> = (0..9).map(|_| held(setting.entry)).collect();
    assert_eq!(active(), [3, 3, 3]);
    // Whoever loses some gets the next.
    for _ in 0..3 {
        connections.drain(..2);
        until("their end is seen", || (active().iter().sum::<u64>() == 7).then_some(()));
        connections.extend((0..2).map(|_| held(setting.entry)));
        assert_eq!(active(), [3, 3, 3]);
    }
    drop(connections);
    setting.instance.stop();
}

#[test]
fn latency_turns_away_from_a_server_that_connects_fast_and_answers_late() {
    const LATE: Duration = Duration::from_millis(300);
    let setting = Setting::with(
        // Nobody is marked: what the lines have learned decides alone.
        json!({ "selector": { "strategy": "latency", "maxFails": 1000 } }),
        &plain(3),
        |address, name| {
            Upstream::serve(address, move |mut stream| {
                let _asked = stream.read(&mut [0; 8]);
                if name == "a" {
                    // It is alive, its kernel connects at once, and it is slow.
                    std::thread::park_timeout(LATE);
                }
                let _gone = stream.write_all(name.as_bytes());
            })
        },
    );
    let count = 60;
    let mut shares = BTreeMap::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(setting.entry).unwrap();
        stream.write_all(b"question").unwrap();
        let mut name = String::new();
        stream.read_to_string(&mut name).unwrap();
        *shares.entry(name).or_insert(0) += 1;
    }
    // By turns it would have a third. Of two drawn at random it loses to any other.
    assert!(shares.get("a").is_none_or(|&share| share <= count / 8), "{shares:?}");
    let shown = |family: &str, number: usize| {
        setting.instance.series(family, &format!("target=\"{}\"", setting.addresses[number]))
    };
    until("both times are exported", || {
        let first_byte = shown("baton_route_first_byte_ewma_seconds", 0);
        let connect = shown("baton_route_latency_ewma_seconds", 0);
        (first_byte >= 0.2 && connect > 0.0).then_some(())
    });
    setting.instance.stop();
}

#[test]
fn labels_are_preferred_in_turn_and_nothing_else_serves_when_the_rule_says_so() {
    let zone = |zone: &str| json!({ "labels": { "zone": zone } });
    for (fallback, last) in [("any", Some("c")), ("none", None)] {
        let mut setting = Setting::start(
            json!({ "selector": { "strategy": "round", "failTimeout": "1h",
                                  "onAllFailed": "reject" },
                    "subset": { "prefer": [{ "zone": "eu" }, { "zone": "us" }],
                                "fallback": fallback } }),
            &[zone("us"), zone("eu"), zone("asia")],
        );
        assert_eq!([setting.hear(), setting.hear()], ["b", "b"]);
        setting.kill(1);
        until("the second choice serves", || {
            hear(setting.entry).is_ok_and(|name| name == "a").then_some(())
        });
        setting.kill(0);
        assert!(hear(setting.entry).is_err() || last.is_some());
        assert_eq!(hear(setting.entry).ok().as_deref(), last, "{fallback}");
        setting.instance.stop();
    }
}
