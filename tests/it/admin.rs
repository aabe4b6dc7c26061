//! The admin listener, and counters that outlive processes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::harness::{Instance, Loopback, Upstream, baton, until};

struct Answer {
    status: u16,
    head: String,
    body: String,
}

fn request(address: SocketAddr, method: &str, path: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
}

fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path).unwrap()
}

fn setting() -> (Instance, SocketAddr, SocketAddr, Upstream) {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let [entry, admin] = std::array::from_fn(|_| loopback.next());
    let instance = Instance::start(&json!({
        "metrics": { "enabled": true, "listen": admin.to_string() },
        "supervisor": { "watch": "0s" },
        "rules": [{ "name": "r", "listen": entry.to_string(), "mode": "normal",
                    "targets": [{ "address": upstream.address().to_string() }] }]
    }));
    (instance, entry, admin, upstream)
}

fn exchange(entry: SocketAddr) {
    let mut stream = TcpStream::connect(entry).unwrap();
    stream.write_all(b"ping").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
}

#[test]
fn a116_to_a118_the_paths_answer_as_documented() {
    let (instance, _entry, admin, _upstream) = setting();
    let health = get(admin, "/healthz");
    assert_eq!((health.status, health.body.trim()), (200, "ok"));
    assert_eq!(get(admin, "/readyz").status, 200);
    let metrics = get(admin, "/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    let version = String::from_utf8(baton().arg("--version").output().unwrap().stdout).unwrap();
    let commit = version.split(['(', ')', ' ', ',']).skip_while(|word| *word != "commit").nth(1);
    let build = format!("commit=\"{}\"", commit.unwrap());
    let info = metrics.body.lines().find(|line| line.starts_with("baton_build_info{")).unwrap();
    assert!(info.contains(&build), "{info} {version}");
    assert_eq!(request(admin, "POST", "/metrics").unwrap().status, 405);
    assert_eq!(request(admin, "HEAD", "/metrics").unwrap().status, 200);
    assert_eq!(get(admin, "/nothing").status, 404);
    instance.stop();
}

#[test]
fn a119_connections_relays_and_dials_are_counted_by_what_became_of_them() {
    let loopback = Loopback::unique();
    let echo = Upstream::echo(loopback.next());
    // Half an answer, and then a reset.
    let torn = Upstream::serve(loopback.next(), |mut stream| {
        let _heard = stream.read(&mut [0; 4]);
        let _told = stream.write_all(b"po");
        let _reset = socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
    });
    let dead = loopback.next();
    let [served, broken, failed, closed, admin] = std::array::from_fn(|_| loopback.next());
    let rule = |name: &str, entry: SocketAddr, target: SocketAddr| {
        json!({ "name": name, "listen": entry.to_string(), "mode": "normal",
                "targets": [{ "address": target.to_string(), "name": "t" }] })
    };
    let mut private = rule("closed", closed, echo.address());
    private["allowlist"] = json!(["10.0.0.0/8"]);
    let instance = Instance::start(&json!({
        "metrics": { "enabled": true, "listen": admin.to_string() },
        "rules": [rule("served", served, echo.address()), rule("broken", broken, torn.address()),
                  rule("failed", failed, dead), private] }));
    exchange(served);
    let mut open = TcpStream::connect(served).unwrap();
    open.write_all(b"ping").unwrap();
    open.read_exact(&mut [0; 4]).unwrap();
    for entry in [broken, failed, closed] {
        let mut stream = TcpStream::connect(entry).unwrap();
        let _cut = stream.write_all(b"ping");
        let _reset = stream.read_to_end(&mut Vec::new());
    }
    let wanted = [
        r#"connections_accepted_total{rule="served",mode="normal"} 2"#,
        r#"connections_active{rule="served",mode="normal"} 1"#,
        r#"connections_rejected_total{rule="served",mode="normal",reason="access_policy"} 0"#,
        r#"dial_attempts_total{rule="served",target="t"} 2"#,
        r#"dial_success_total{rule="served",target="t"} 2"#,
        r#"dial_failures_total{rule="served",target="t"} 0"#,
        r#"dial_canceled_total{rule="served",target="t"} 0"#,
        r#"dial_latency_seconds_count{rule="served",target="t"} 2"#,
        r#"relay_bytes_total{rule="served",direction="client_to_upstream"} 8"#,
        r#"relay_bytes_total{rule="served",direction="upstream_to_client"} 8"#,
        r#"relay_errors_total{rule="served",direction="upstream_to_client"} 0"#,
        r#"relay_duration_seconds_count{rule="served"} 1"#,
        r#"relay_bytes_total{rule="broken",direction="upstream_to_client"} 2"#,
        r#"relay_errors_total{rule="broken",direction="upstream_to_client"} 1"#,
        r#"relay_errors_total{rule="broken",direction="client_to_upstream"} 0"#,
        r#"connections_accepted_total{rule="failed",mode="normal"} 1"#,
        r#"dial_attempts_total{rule="failed",target="t"} 1"#,
        r#"dial_success_total{rule="failed",target="t"} 0"#,
        r#"dial_failures_total{rule="failed",target="t"} 1"#,
        r#"relay_duration_seconds_count{rule="failed"} 0"#,
        r#"connections_accepted_total{rule="closed",mode="normal"} 0"#,
        r#"connections_rejected_total{rule="closed",mode="normal",reason="access_policy"} 1"#,
        r#"dial_attempts_total{rule="closed",target="t"} 0"#,
        "routing_generation 1",
    ];
    for line in wanted {
        let line = format!("baton_{line}");
        until(&line, || {
            get(admin, "/metrics").body.lines().any(|shown| shown == line).then_some(())
        });
    }
    assert!(instance.metric("baton_tasks") >= 1.0, "one for each live connection at least");
    drop(open);
    instance.stop();
}

#[test]
fn scrapes_survive_upgrades_and_crashes_and_no_counter_falls() {
    let (instance, entry, admin, _upstream) = setting();
    let mut last = 0.0;
    for round in 0..6 {
        exchange(entry);
        let old = instance.serving();
        if round % 2 == 0 {
            instance.expect_ok(&["upgrade"]);
        } else {
            instance.kill_worker(old);
            instance.wait_replaced(old);
        }
        let body = until("a scrape", || request(admin, "GET", "/metrics").ok()).body;
        let accepted: f64 = body
            .lines()
            .find_map(|line| line.strip_prefix("baton_connections_accepted_total{"))
            .and_then(|rest| rest.rsplit(' ').next()?.parse().ok())
            .unwrap();
        assert!(accepted >= last, "accepted fell from {last} to {accepted}");
        last = accepted;
    }
    assert_eq!(last, 6.0);
    instance.stop();
}

#[test]
fn counters_go_on_after_the_whole_instance_was_restarted() {
    let (mut instance, entry, _admin, upstream) = setting();
    exchange(entry);
    let before = instance.metric("baton_connections_accepted_total");
    assert_eq!(before, 1.0);
    let config = instance.config();
    instance.expect_ok(&["stop"]);
    assert!(instance.wait_end().success());
    let again = instance.restart(&config);
    exchange(entry);
    let families = again.expect_ok(&["metrics", "--json"]);
    let accepted = families
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .find(|family| family["name"] == "baton_connections_accepted_total")
        .unwrap();
    assert_eq!(accepted["samples"][0]["value"], 2);
    assert_eq!(accepted["samples"][0]["labels"]["rule"], "r");
    assert_eq!(again.metric("baton_connections_accepted_total"), 2.0);
    drop(upstream);
    again.stop();
}

#[test]
fn a120_to_a123_every_family_of_the_engine_is_exported_with_known_labels() {
    let loopback = Loopback::unique();
    let upstream = Upstream::echo(loopback.next());
    let [entry, admin] = std::array::from_fn(|_| loopback.next());
    let instance = Instance::start(&json!({
        "metrics": { "enabled": true, "listen": admin.to_string() },
        "rules": [{ "name": "r", "listen": entry.to_string(), "mode": "boost", "hedge": {},
                    "prewarm": true,
                    "healthCheck": { "type": "tcp" },
                    "targets": [{ "address": upstream.address().to_string(), "name": "a" },
                                { "address": loopback.next().to_string(), "name": "b" }] }]}));
    exchange(entry);
    let families = [
        r#"dial_bulkhead_in_flight{class="foreground"}"#,
        "dial_bulkhead_waiting ",
        "dial_bulkhead_target_in_flight{target=",
        r#"dial_bulkhead_rejected_total{class="foreground",reason="process_full"}"#,
        r#"dial_bulkhead_rejected_total{class="foreground",reason="target_full"}"#,
        "dial_bulkhead_wait_seconds_count ",
        r#"dial_bulkhead_limit{class="foreground"} 256"#,
        r#"dial_bulkhead_limit{class="background"} 32"#,
        r#"dial_bulkhead_limit{class="health"} 32"#,
        "dial_bulkhead_target_limit 64",
        r#"boost_cache_hits_total{rule="r"} 0"#,
        r#"boost_cache_misses_total{rule="r"} 1"#,
        r#"boost_hedge_events_total{rule="r",outcome="scheduled"} 0"#,
        r#"boost_hedge_events_total{rule="r",outcome="launched"} 0"#,
        r#"boost_hedge_events_total{rule="r",outcome="won"} 0"#,
        r#"boost_hedge_events_total{rule="r",outcome="avoided"} 0"#,
        r#"boost_hedge_events_total{rule="r",outcome="skipped_capacity"} 0"#,
        r#"boost_hedge_events_total{rule="r",outcome="skipped_deadline"} 0"#,
        r#"boost_hedge_events_total{rule="r",outcome="no_candidate"} 0"#,
        r#"boost_refreshes_total{rule="r",outcome="kept"} 0"#,
        r#"boost_refreshes_total{rule="r",outcome="replaced"} 0"#,
        r#"boost_refreshes_total{rule="r",outcome="failed"} 0"#,
        r#"boost_hedge_delay_seconds_count{rule="r"} 0"#,
        r#"boost_decision_duration_seconds_count{rule="r"} 1"#,
        r#"route_latency_ewma_seconds{rule="r",target="a"}"#,
        r#"route_first_byte_ewma_seconds{rule="r",target="a"} 0."#,
        r#"route_circuit_open{rule="r",target="a"} 0"#,
        r#"route_observed{rule="r",target="a"} 1"#,
        r#"route_consecutive_failures{rule="r",target="b"}"#,
        r#"route_half_open{rule="r",target="b"} 0"#,
        r#"route_last_attempt_timestamp_seconds{rule="r",target="a"}"#,
        r#"active_health_unhealthy{rule="r",target="a"} 0"#,
        "prewarm_desired{target=",
        "prewarm_idle{target=",
        "prewarm_warming{target=",
        "prewarm_failures_total{target=",
        "routing_generation 1",
        "routing_retired_generations 0",
        r#"connections_rejected_total{rule="r",mode="boost",reason="invalid_remote_address"} 0"#,
        r#"connections_rejected_total{rule="r",mode="boost",reason="proxy_protocol"} 0"#,
        r#"connections_rejected_total{rule="r",mode="boost",reason="global_connection_limit"} 0"#,
        r#"connections_rejected_total{rule="r",mode="boost",reason="connection_limit"} 0"#,
        r#"connections_rejected_total{rule="r",mode="boost",reason="access_policy"} 0"#,
    ];
    for family in families {
        until(family, || {
            let body = get(admin, "/metrics").body;
            let mut lines = body.lines().filter_map(|line| line.strip_prefix("baton_"));
            lines.any(|line| line.starts_with(family)).then_some(())
        });
    }
    instance.stop();
}
