//! Asking a running instance about its lines, and the log of its decisions.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, Upstream, until};

struct Setting {
    instance: Instance,
    entry: SocketAddr,
    upstream: Upstream,
    dead: SocketAddr,
}

fn setting(level: &str) -> Setting {
    let loopback = Loopback::unique();
    let (dead, entry) = (loopback.next(), loopback.next());
    let upstream = Upstream::named(loopback.next(), "up");
    let instance = Instance::start(&json!({
        "log": { "level": level },
        "rules": [{ "name": "r", "listen": entry.to_string(), "mode": "boost", "targets": [
            { "address": dead.to_string() },
            { "name": "good", "address": upstream.address().to_string() }] }]
    }));
    Setting { instance, entry, upstream, dead }
}

fn ask(entry: SocketAddr) -> String {
    let mut answer = String::new();
    TcpStream::connect(entry).unwrap().read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn explain_says_where_a_connection_would_go_and_why_not_elsewhere() {
    let Setting { instance, entry, upstream, dead } = setting("info");
    let explain = || -> Value {
        let text =
            instance.expect_ok(&["explain", "--rule", "r", "--client", "192.0.2.9", "--json"]);
        serde_json::from_str(&text).unwrap()
    };
    let order = |answer: &Value| -> Vec<String> {
        let candidates = answer["candidates"].as_array().unwrap();
        candidates.iter().map(|one| one["address"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(order(&explain()), [dead.to_string(), upstream.address().to_string()]);
    assert_eq!(ask(entry), "up");
    let answer = explain();
    assert_eq!((&answer["rule"], &answer["mode"]), (&json!("r"), &json!("boost")));
    assert_eq!(answer["generation"], 1);
    assert_eq!(order(&answer), [upstream.address().to_string(), dead.to_string()]);
    assert_eq!(answer["candidates"][0]["reason"], "cached winner");
    let text = instance.expect_ok(&["explain", "--rule", "r"]);
    assert!(text.starts_with("rule r, mode boost, generation 1\n"), "{text}");
    assert!(text.contains("cached winner"), "{text}");
    let unknown = instance.run(&["explain", "--rule", "other"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("there are r"), "{unknown:?}");
    instance.stop();
}

#[test]
fn the_status_has_a_row_a_line_and_a_vanished_rule_leaves_no_series() {
    let Setting { instance, entry, upstream, .. } = setting("info");
    assert_eq!(ask(entry), "up");
    let status = instance.status();
    let rule = &status["rules"][0];
    assert_eq!(rule["lines"].as_array().unwrap().len(), 2);
    assert_eq!(rule["lines"][0]["target"], "good");
    let text = instance.expect_ok(&["status"]);
    let row = format!("good {}", upstream.address());
    assert!(text.lines().any(|line| line.starts_with("r ") && line.contains(&row)), "{text}");
    // A reload that leaves the rule out leaves no series of it behind.
    let mut config = instance.config();
    config["rules"][0]["name"] = json!("renamed");
    instance.configure(&config);
    instance.expect_ok(&["reload"]);
    until("the old rule's series are gone", || {
        (!instance.expect_ok(&["metrics"]).contains("rule=\"r\"")).then_some(())
    });
    instance.stop();
}

#[test]
fn each_decision_is_one_json_line_at_debug_and_none_at_info() {
    let decisions = |setting: &Setting| -> Vec<Value> {
        let log = std::fs::read_to_string(setting.instance.scratch().path().join("log")).unwrap();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| {
                line.get("targetAddr").is_some() && line["message"] == "connection established"
            })
            .collect()
    };
    let chatty = setting("debug");
    let client = TcpStream::connect(chatty.entry).unwrap();
    let line = until("a decision", || decisions(&chatty).pop());
    assert_eq!(line["ruleName"], "r");
    assert_eq!(line["remoteAddr"], client.local_addr().unwrap().to_string());
    assert_eq!(line["targetAddr"], chatty.upstream.address().to_string());
    assert!(line["decisionTime(ms)"].is_f64() && line["boostCacheHit"] == false, "{line}");
    drop(client);
    chatty.instance.stop();
    let quiet = setting("info");
    assert_eq!(ask(quiet.entry), "up");
    quiet.instance.expect_ok(&["reload"]);
    assert!(decisions(&quiet).is_empty());
    quiet.instance.stop();
}
