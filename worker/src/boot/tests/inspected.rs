//! What an operator hears who asks about routing.

use std::net::TcpStream;

use baton_handoff::message::{Answer, Query, ToSupervisor, ToWorker};
use serde_json::{Value, json};

use super::boss::{Boss, Upstream, config_with_admin, get, heard, nobody, rule, rule_with};
use super::echoed;

/// Asks; the answer.
fn ask(boss: &mut Boss, question: &Value) -> Value {
    boss.say(&ToWorker::Query(Query { id: 9, text: question.to_string() }), &[]);
    match boss.hear() {
        ToSupervisor::Answer(Answer { id: 9, text }) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Asks where a connection would go: the addresses that would be tried, and the others with the
/// reason.
fn explain(boss: &mut Boss, connection: Value) -> (Vec<String>, Vec<(String, String)>) {
    let mut question = json!({ "ask": "explain", "rule": "r" });
    question.as_object_mut().unwrap().extend(connection.as_object().unwrap().clone());
    let answer = ask(boss, &question);
    let candidates = answer["candidates"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let orders: Vec<_> = candidates.iter().map(|one| one["order"].as_u64().unwrap()).collect();
    assert_eq!(orders, (1..=candidates.len() as u64).collect::<Vec<_>>());
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let (usable, others): (Vec<_>, Vec<_>) =
        candidates.iter().partition(|one| one["usable"].as_bool().unwrap());
    let others = others.iter().map(|one| (text(one, "address"), text(one, "reason")));
    (usable.iter().map(|one| text(one, "address")).collect(), others.collect())
}

#[test]
fn an_open_breaker_puts_a_target_last_with_its_reason() {
    let upstream = Upstream::named("up");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let nobody = nobody();
    boss.serve(3, &[rule("r", address, &[nobody, upstream.address])]);
    let both = vec![nobody.to_string(), upstream.address.to_string()];
    assert_eq!(explain(&mut boss, json!({})), (both, vec![]));
    for _ in 0..3 {
        assert_eq!(heard(address).unwrap(), "up");
    }
    let open = vec![(nobody.to_string(), "open".to_owned())];
    assert_eq!(explain(&mut boss, json!({})), (vec![upstream.address.to_string()], open));
    let answer = ask(&mut boss, &json!({ "ask": "explain", "rule": "r" }));
    assert_eq!(answer["rule"], "r");
    assert_eq!(answer["mode"], "normal");
    assert_eq!(answer["generation"], 3);
    let [first, last] = [0, 1].map(|n| &answer["candidates"][n]);
    assert!(first["ewma_ms"].as_f64().unwrap() > 0.0 && last["ewma_ms"].is_null(), "{answer}");
    assert!(first["score"].as_f64().unwrap() < last["score"].as_f64().unwrap(), "{answer}");
}

#[test]
fn content_decides_by_name_protocol_or_bytes() {
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let targets = r#"{"address":"127.0.0.1:1","serverNames":["a.example"]},
        {"address":"127.0.0.1:2","alpn":["h2"]},{"address":"127.0.0.1:3"}"#;
    let tls = |targets: &str, mode: &str| {
        format!(r#"{{"name":"r","listen":"{address}","mode":"{mode}","targets":[{targets}]}}"#)
    };
    boss.serve(1, &[tls(targets, "tls")]);
    let tried = |boss: &mut Boss, connection| explain(boss, connection).0;
    assert_eq!(tried(&mut boss, json!({ "sni": "A.Example." })), ["127.0.0.1:1", "127.0.0.1:3"]);
    assert_eq!(
        tried(&mut boss, json!({ "alpn": ["http/1.1", "h2"] })),
        ["127.0.0.1:2", "127.0.0.1:3"]
    );
    let (fallback, others) = explain(&mut boss, json!({ "bytes": "474554" }));
    assert_eq!(fallback, ["127.0.0.1:3"]);
    assert!(others.iter().all(|(_, reason)| reason == "no match"), "{others:?}");
    let patterns = r#"{"address":"127.0.0.1:1","regexp":"^SSH-"},
        {"address":"127.0.0.1:2","regexp":"^GET "}"#;
    boss.serve(2, &[tls(patterns, "regex")]);
    assert_eq!(tried(&mut boss, json!({ "bytes": "474554202f" })), ["127.0.0.1:2"]);
    assert_eq!(tried(&mut boss, json!({})).len(), 0);
}

#[test]
fn c10_the_host_or_the_client_decides_where_a_hash_leads() {
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let targets: Vec<_> =
        (1..9).map(|port| format!(r#"{{"address":"127.0.0.1:{port}"}}"#)).collect();
    let rule = format!(
        r#"{{"name":"r","listen":"{address}","mode":"forward","hash":"host",
            "selector":{{"strategy":"hash"}},"targets":[{}]}}"#,
        targets.join(",")
    );
    boss.serve(1, &[rule]);
    let tried = |boss: &mut Boss, connection| explain(boss, connection).0;
    let request =
        |head: &str| -> String { head.bytes().map(|byte| format!("{byte:02x}")).collect() };
    let mut first = std::collections::BTreeSet::new();
    for site in ["a.example", "b.example", "c.example", "d.example", "e.example", "f.example"] {
        let over_tls = tried(&mut boss, json!({ "sni": format!("{}.", site.to_uppercase()) }));
        let head = format!("GET / HTTP/1.1\r\nHost: {site}:80\r\n");
        let bytes = json!({ "bytes": request(&head), "client": "192.0.2.7" });
        assert_eq!(tried(&mut boss, bytes), over_tls, "the client is no part of the key");
        first.insert(over_tls[0].clone());
    }
    assert!(first.len() > 1, "sites are spread: {first:?}");
    let client = |ip: &str| json!({ "client": ip });
    let by_client = tried(&mut boss, client("192.0.2.7"));
    assert_eq!(tried(&mut boss, client("::ffff:192.0.2.7")), by_client);
    let other = json!({ "bytes": request("SSH-2.0-x\r\n"), "client": "192.0.2.7" });
    assert_eq!(tried(&mut boss, other), by_client, "what names no host goes by the client");
    assert!((1..20).any(|host| tried(&mut boss, client(&format!("192.0.2.{host}"))) != by_client));
}

#[test]
fn marks_and_backups_are_told() {
    let (up, spare) = (Upstream::named("up"), Upstream::named("spare"));
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let nobody = nobody();
    let rule = format!(
        r#"{{"name":"r","listen":"{address}","mode":"forward",
            "selector":{{"strategy":"fifo","failTimeout":"1m"}},"targets":[
            {{"address":"{nobody}"}},{{"address":"{}"}},{{"address":"{}","backup":true}}]}}"#,
        up.address, spare.address
    );
    boss.serve(1, &[rule]);
    assert_eq!(heard(address).unwrap(), "up");
    let (usable, others) = explain(&mut boss, json!({}));
    assert_eq!(usable, [up.address.to_string()]);
    let reasons = [
        (nobody.to_string(), "marked failed".to_owned()),
        (spare.address.to_string(), "backup held back".to_owned()),
    ];
    assert_eq!(others, reasons);
}

#[test]
fn a_client_that_is_not_let_in_is_tried_nowhere() {
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let fields = r#""mode":"normal","allowlist":["10.0.0.0/8"]"#;
    boss.serve(1, &[rule_with("r", address, &[nobody()], fields)]);
    assert_eq!(explain(&mut boss, json!({ "client": "::ffff:10.1.2.3" })).0.len(), 1);
    let (usable, others) = explain(&mut boss, json!({ "client": "192.0.2.1" }));
    assert!(usable.is_empty() && others[0].1 == "client not allowed", "{others:?}");
}

#[test]
fn what_cannot_be_answered_says_why() {
    let mut boss = Boss::greeted();
    let question = json!({ "ask": "explain", "rule": "other" });
    assert_eq!(ask(&mut boss, &question)["error"], "nothing is served yet");
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[nobody()])]);
    let error = |boss: &mut Boss, question| ask(boss, &question)["error"].to_string();
    assert!(error(&mut boss, question).contains("no rule is called"));
    assert!(error(&mut boss, json!({ "ask": "the way" })).contains("not a question"));
    let odd = json!({ "ask": "explain", "rule": "r", "bytes": "abc" });
    assert_eq!(ask(&mut boss, &odd)["candidates"].as_array().unwrap().len(), 1);
}

#[test]
fn the_status_tells_of_every_line_and_the_admin_server_shows_the_same() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let (address, admin) = (boss.listen(), boss.listen());
    let rules = [rule_with("r", address, &[upstream.address], r#""mode":"boost","prewarm":true"#)];
    boss.serve_config(1, &config_with_admin(admin, &rules));
    let mut client = TcpStream::connect(address).unwrap();
    echoed(&mut client, b"hello");
    let status = ask(&mut boss, &json!({ "ask": "status" }));
    let rule = &status["rules"][0];
    assert_eq!((&rule["rule"], &rule["mode"]), (&json!("r"), &json!("boost")));
    assert_eq!(rule["listen"], address.to_string());
    let line = &rule["lines"][0];
    assert_eq!(line["address"], upstream.address.to_string());
    assert_eq!((&line["active"], &line["reason"]), (&json!(1), &json!("cached winner")));
    assert!(line["ewma_ms"].is_f64() && line["first_byte_ms"].is_f64(), "{line}");
    assert!(line["prewarmed"].is_u64() && line["excluded_ms"].is_null(), "{line}");
    let page = get(admin, "/status");
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert!(page.contains("content-type: application/json\r\n"), "{page}");
    let body: Value = serde_json::from_str(page.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body["rules"][0]["lines"][0]["reason"], "cached winner");
}
