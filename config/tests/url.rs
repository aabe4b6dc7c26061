//! Rules as URLs.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use baton_config::model::{Config, Forward, HashKey, Mode, OnAllFailed, ParallelMode, Strategy};
use baton_config::url::compile;

fn config(urls: &[&str]) -> Config {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    let json = compile(&urls).unwrap_or_else(|problems| panic!("{problems}"));
    baton_config::parse("-L", json.as_bytes()).unwrap().config
}

fn forward(config: &Config, rule: usize) -> &Forward {
    let Mode::Forward(forward) = &config.rules[rule].mode else { panic!() };
    forward
}

fn refused(urls: &[&str]) -> String {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    compile(&urls).unwrap_err().to_string()
}

#[test]
fn the_documented_form_is_a_forward_rule() {
    let config = config(&["tcp://:8080/:8081,:8082?strategy=round&maxFails=1&failTimeout=30s"]);
    let rule = &config.rules[0];
    assert_eq!((rule.name.as_str(), rule.listen.text.as_str()), (":8080", ":8080"));
    let addresses: Vec<String> = rule.targets.iter().map(|t| t.address.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:8081", "127.0.0.1:8082"]);
    let forward = forward(&config, 0);
    assert_eq!(forward.selector.strategy, Strategy::Round);
    assert_eq!(forward.selector.max_fails, 1);
    assert_eq!(forward.selector.fail_timeout, Duration::from_secs(30));
}

#[test]
fn every_key_has_its_place() {
    let config = config(&[
        "tcp://[::1]:1/[::1]:2,db.internal:3?strategy=parallel&maxParallel=2&parallelMode=rand&onAllFailed=reject&retries=0&timeout=1500",
        "tcp://127.0.0.1:4/a:5?strategy=hash&hash=host",
    ]);
    let one = forward(&config, 0);
    let race = Strategy::Parallel { max: 2, mode: ParallelMode::Rand };
    assert_eq!((one.selector.strategy, one.retries), (race, 0));
    assert_eq!(one.selector.on_all_failed, OnAllFailed::Reject);
    assert_eq!(config.rules[0].timeout, Duration::from_millis(1500));
    assert_eq!(forward(&config, 1).hash, HashKey::Host);
    assert_eq!(forward(&config, 1).retries, 2);
}

#[test]
fn problems_point_into_the_url() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["tcp://:1/:2?maxfail=1"],
            "-L:1:13: $.rules[0]: unknown query key \"maxfail\" (did you mean \"maxFails\"?)",
        ),
        (
            &["tcp://:1/:2?weight=1"],
            "-L:1:13: $.rules[0]: unknown query key \"weight\" (allowed: name, timeout, \
             idleTimeout, maxConnections, maxConnectionsPerIP, hash, retries, strategy, maxFails, failTimeout, maxParallel, parallelMode, onAllFailed)",
        ),
        (
            &["tcp://:1/:2", "tcp://:3/:4,b?strategy=best&retries=9"],
            "-L:2:13: $.rules[1].targets[1].address: invalid address \"b\": the port is missing \
             (host:port, such as 10.0.0.7:443 or db.internal:5432)\n\
             -L:2:24: $.rules[1].selector.strategy: unknown strategy \"best\" (allowed: round, \
             rand, fifo, hash, parallel, leastconn, latency)\n\
             -L:2:37: $.rules[1].retries: 9 is out of range (0 to 8)",
        ),
        (
            &["tcp://:1/:2", "tcp://:1/:2"],
            "-L:2:7: $.rules[1].listen: duplicate listen address \":1\" (also rules[0])",
        ),
        (
            &["tcp://:1/:2?maxFails=many"],
            "-L:1:22: $.rules[0].selector.maxFails: expected an integer, found a string",
        ),
        (
            &["tcp://:1/:2?retries=1&retries=2&timeout"],
            "-L:1:23: $.rules[0]: duplicate query key \"retries\"\n\
             -L:1:33: $.rules[0]: query key \"timeout\" has no value",
        ),
        (
            &["http://:8080"],
            "-L:1:1: $.rules[0]: scheme \"http\" is not supported yet (allowed: tcp)",
        ),
        (
            &["tcp+tls://:1/:2"],
            "-L:1:1: $.rules[0]: scheme \"tcp+tls\" is not supported yet (allowed: tcp)",
        ),
        (&["tpc://:1/:2"], "-L:1:1: $.rules[0]: unknown scheme \"tpc\" (allowed: tcp)"),
        (
            &[":8080"],
            "-L:1:1: $.rules[0]: the scheme is missing (tcp://LISTEN/TARGET[,TARGET...]; without \
             a scheme means auto, which is not supported yet)",
        ),
        (&["tcp://:8080"], "-L:1:12: $.rules[0]: no targets (tcp://LISTEN/TARGET[,TARGET...])"),
        (&["tcp://u:p@:1/:2"], "-L:1:7: $.rules[0]: credentials are not supported yet"),
        (&["tcp://:1/:2#x"], "-L:1:12: $.rules[0]: a fragment (#) has no meaning here"),
        (&["tcp://:1/:2\n"], "-L:1:1: $.rules[0]: a URL has no control characters"),
    ];
    for (urls, message) in cases {
        assert_eq!(refused(urls), *message, "{urls:?}");
    }
}

#[test]
fn every_url_is_looked_at() {
    let problems = refused(&["http://:1", "tcp://:2", "x"]);
    assert_eq!(problems.lines().count(), 3, "{problems}");
}

#[test]
fn a_rule_can_have_a_name_and_limits() {
    let config =
        config(&["TCP://:1/:2?name=7&maxConnections=10&maxConnectionsPerIP=3&idleTimeout=1m"]);
    let rule = &config.rules[0];
    assert_eq!(rule.name, "7");
    assert_eq!((rule.max_connections, rule.max_connections_per_ip), (10, 3));
    assert_eq!(rule.idle_timeout, Some(Duration::from_secs(60)));
}

#[test]
fn a_query_may_be_empty_and_text_may_be_encoded() {
    for url in ["tcp://:1/:2?", "tcp://:1/%3A2", "tcp://%5B%3A%3A%5D:1/127.0.0.1:2?&"] {
        let config = config(&[url]);
        assert_eq!(config.rules[0].targets[0].address.to_string(), "127.0.0.1:2", "{url}");
    }
    assert_eq!(config(&["tcp://:1/:2?name=a%20b"]).rules[0].name, "a b");
    let half = "-L:1:9: $.rules[0]: a % stands before two hexadecimal digits (%25 for itself)";
    assert_eq!(refused(&["tcp://:1%4/:2"]), half);
}
