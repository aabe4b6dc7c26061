//! Targets given by name.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::libc::O_NONBLOCK;
use nix::sys::stat::Mode;
use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, Scratch, Upstream, baton, hear, until};

fn config(entry: SocketAddr, port: u16, hosts: &[IpAddr], target: Value, rule: Value) -> Value {
    let mut target = target;
    target["address"] = json!(format!("db.internal:{port}"));
    let mut rule = rule;
    rule["name"] = json!("r");
    rule["listen"] = json!(entry.to_string());
    rule["targets"] = json!([target]);
    json!({ "dns": { "hosts": { "db.internal": hosts } }, "rules": [rule] })
}

#[test]
fn a72_a_name_of_the_hosts_map_is_dialled_and_its_next_address_when_the_first_refuses() {
    let [one, two] = [Loopback::unique(), Loopback::unique()];
    let port = one.next().port();
    let first = Upstream::named(SocketAddr::new(one.ip(), port), "one");
    let _second = Upstream::named(SocketAddr::new(two.ip(), port), "two");
    let entry = one.next();
    let normal = || json!({ "mode": "normal" });
    let instance =
        Instance::start(&config(entry, port, &[one.ip(), two.ip()], json!({}), normal()));
    assert_eq!(hear(entry).unwrap(), "one");
    drop(first);
    assert_eq!(hear(entry).unwrap(), "two");
    assert_eq!(instance.metric("baton_dial_failures_total"), 0.0, "the line itself did not fail");
    instance.stop();
}

#[test]
fn a_reload_that_changes_the_hosts_map_changes_where_a_name_leads() {
    let [one, two] = [Loopback::unique(), Loopback::unique()];
    let port = one.next().port();
    let _upstreams = [
        Upstream::named(SocketAddr::new(one.ip(), port), "one"),
        Upstream::named(SocketAddr::new(two.ip(), port), "two"),
    ];
    let entry = one.next();
    let normal = || json!({ "mode": "normal" });
    let instance = Instance::start(&config(entry, port, &[one.ip()], json!({}), normal()));
    assert_eq!(hear(entry).unwrap(), "one");
    instance.configure(&config(entry, port, &[two.ip()], json!({}), normal()));
    instance.expect_ok(&["reload"]);
    assert_eq!(hear(entry).unwrap(), "two");
    instance.stop();
}

#[test]
fn every_address_of_an_expanded_name_is_a_line_of_its_own() {
    let homes = [Loopback::unique(), Loopback::unique(), Loopback::unique()];
    let port = homes[0].next().port();
    let mut upstreams: Vec<_> = homes
        .iter()
        .zip(["a", "b", "c"])
        .map(|(home, name)| Upstream::named(SocketAddr::new(home.ip(), port), name))
        .collect();
    let entry = homes[0].next();
    let hosts: Vec<_> = homes.iter().map(Loopback::ip).collect();
    let rule =
        json!({ "mode": "forward", "selector": { "strategy": "round", "failTimeout": "1h" } });
    let instance =
        Instance::start(&config(entry, port, &hosts, json!({ "resolve": "expand" }), rule));
    let shares = |count: usize| {
        let mut shares = BTreeMap::new();
        for _ in 0..count {
            *shares.entry(hear(entry).unwrap()).or_insert(0) += 1;
        }
        shares
    };
    let even = ["a", "b", "c"].map(|name| (name.to_owned(), 3));
    assert_eq!(shares(9), BTreeMap::from(even));
    for home in &homes {
        let label = format!("target=\"{}:{port}\"", home.ip());
        until("each shows as a line", || {
            (instance.series("baton_route_observed", &label) == 1.0).then_some(())
        });
    }
    let target = format!("target=\"db.internal:{port}\"");
    assert_eq!(instance.series("baton_dial_success_total", &target), 9.0);
    drop(upstreams.remove(1));
    let after = shares(8);
    assert!(!after.contains_key("b") && after.len() == 2, "{after:?}");
    instance.stop();
}

/// More names than there are threads to look them up on, each stuck in the resolver.
#[test]
fn a_dead_resolver_keeps_nobody_from_reloading_or_stopping() {
    let loopback = Loopback::unique();
    let upstream = Upstream::named(loopback.next(), "up");
    let entry = loopback.next();
    let scratch = Scratch::new();
    // The system's resolver reads this file for a name without a dot (resolver(7)), and waits
    // for somebody to open the other end.
    let pipe = scratch.path().join("aliases");
    nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let stuck: Vec<_> =
        (0..24).map(|number| json!({ "address": format!("baton-stuck-{number}:1") })).collect();
    let other = loopback.next();
    let setting = |name: &str| {
        json!({ "rules": [
            { "name": name, "listen": entry.to_string(), "mode": "normal",
              "targets": [{ "address": upstream.address().to_string() }] },
            { "name": "stuck", "listen": other.to_string(), "mode": "normal", "targets": stuck }
        ] })
    };
    let mut command = baton();
    command.env("HOSTALIASES", &pipe);
    let instance = Instance::launch_in(scratch, &setting("one"), command);
    instance.wait_serving();
    instance.configure(&setting("two"));
    instance.expect_ok(&["reload"]);
    assert_eq!(hear(entry).unwrap(), "up");
    // Fails unless somebody waits at the other end. They then wait for a line.
    let _waiting = until("a look-up is stuck", || {
        OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&pipe).ok()
    });
    instance.stop();
}
