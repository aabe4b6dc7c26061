//! What an operator sees of a worker: its admin server and its counters.

use std::net::{SocketAddr, TcpStream};

use super::boss::{Boss, Upstream, config_with_admin, get, nobody, rule, rule_with};
use super::echoed;

/// A target's series: without a name of its own a target is known by its address.
fn of(metric: &str, rule: &str, target: SocketAddr, value: u32) -> String {
    format!("{metric}{{rule=\"{rule}\",target=\"{target}\"}} {value}\n")
}

#[test]
fn the_admin_server_answers_while_the_worker_serves() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let (address, admin) = (boss.listen(), boss.listen());
    let rules = [rule("r", address, &[upstream.address])];
    boss.serve_config(1, &config_with_admin(admin, &rules));
    assert!(get(admin, "/healthz").ends_with("\r\n\r\nok"));
    assert!(get(admin, "/readyz").starts_with("HTTP/1.1 200 "));
    let mut client = TcpStream::connect(address).unwrap();
    echoed(&mut client, b"hello");
    let answer = get(admin, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for series in [
        "baton_connections_accepted_total{rule=\"r\",mode=\"normal\"} 1\n",
        "baton_connections_active{rule=\"r\",mode=\"normal\"} 1\n",
        "baton_routing_generation 1\n",
        "baton_build_info{version=",
    ] {
        assert!(answer.contains(series), "{series} in {answer}");
    }
    for series in ["baton_dial_attempts_total", "baton_dial_success_total", "baton_route_observed"]
    {
        let series = of(series, "r", upstream.address, 1);
        assert!(answer.contains(&series), "{series} in {answer}");
    }
}

#[test]
fn bytes_are_counted_both_ways_while_the_connection_lives() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let mut client = TcpStream::connect(address).unwrap();
    echoed(&mut client, b"hello");
    boss.metrics_until(|text| {
        ["client_to_upstream", "upstream_to_client"].iter().all(|direction| {
            text.contains(&format!(
                "baton_relay_bytes_total{{rule=\"r\",direction=\"{direction}\"}} 5\n"
            ))
        })
    });
    drop(client);
    boss.metrics_until(|text| {
        text.contains("baton_connections_active{rule=\"r\",mode=\"normal\"} 0\n")
            && text.contains("baton_relay_duration_seconds_count{rule=\"r\"} 1\n")
    });
}

#[test]
fn refused_clients_are_counted_by_reason() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let fields = r#""mode":"normal","maxConnections":1"#;
    boss.serve(1, &[rule_with("r", address, &[upstream.address], fields)]);
    let mut kept = TcpStream::connect(address).unwrap();
    echoed(&mut kept, b"in");
    assert_eq!(super::heard(address).unwrap(), "");
    let series = "baton_connections_rejected_total{rule=\"r\",mode=\"normal\",\
                  reason=\"connection_limit\"} 1\n";
    boss.metrics_until(|text| text.contains(series));
}

#[test]
fn counts_go_on_over_a_reload_and_learned_latency_stays_with_an_equal_rule() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let (address, other) = (boss.listen(), boss.listen());
    let stays = rule("stays", address, &[upstream.address]);
    boss.serve(1, std::slice::from_ref(&stays));
    echoed(&mut TcpStream::connect(address).unwrap(), b"one");
    boss.serve(2, &[stays, rule("new", other, &[upstream.address])]);
    boss.metrics_until(|text| {
        text.contains("baton_routing_generation 2\n")
            && text.contains(&of("baton_route_observed", "stays", upstream.address, 1))
            && text.contains(&of("baton_route_observed", "new", upstream.address, 0))
            && text.contains("baton_connections_accepted_total{rule=\"stays\",mode=\"normal\"} 1\n")
    });
}

#[test]
fn a_breaker_that_opens_is_seen() {
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let nobody = nobody();
    boss.serve(1, &[rule("r", address, &[nobody])]);
    for _ in 0..3 {
        assert!(super::heard(address).is_err());
    }
    boss.metrics_until(|text| {
        text.contains(&of("baton_route_circuit_open", "r", nobody, 1))
            && text.contains(&of("baton_dial_failures_total", "r", nobody, 3))
    });
}

#[test]
fn a_quiesced_worker_leaves_the_admin_listener_to_another() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let (address, admin) = (boss.listen(), boss.listen());
    let rules = [rule("r", address, &[upstream.address])];
    boss.serve_config(1, &config_with_admin(admin, &rules));
    assert!(get(admin, "/readyz").starts_with("HTTP/1.1 200 "));
    boss.quiesce();
    let other = std::thread::spawn(move || get(admin, "/readyz"));
    boss.activate(1);
    assert!(other.join().unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_target_that_fails_its_checks_is_left_out_until_it_passes_again() {
    let upstream = Upstream::named("healthy");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let nobody = nobody();
    let fields = r#""mode":"normal","healthCheck":{"interval":250,"timeout":250,
        "failureThreshold":1,"successThreshold":1}"#;
    boss.serve(1, &[rule_with("r", address, &[nobody, upstream.address], fields)]);
    boss.metrics_until(|text| {
        text.contains(&of("baton_active_health_unhealthy", "r", nobody, 1))
            && text.contains(&of("baton_active_health_unhealthy", "r", upstream.address, 0))
    });
    assert_eq!(super::heard(address).unwrap(), "healthy");
    assert!(boss.metrics().contains(&of("baton_dial_attempts_total", "r", nobody, 0)));
}

#[test]
fn the_next_worker_begins_with_what_the_last_one_learned() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let rules = [rule("r", address, &[upstream.address])];
    let observed = &of("baton_route_observed", "r", upstream.address, 1);
    boss.serve(1, &rules);
    boss.metrics_until(|text| text.contains(&observed.replace("} 1", "} 0")));
    echoed(&mut TcpStream::connect(address).unwrap(), b"hello");
    boss.metrics_until(|text| text.contains(observed));
    let mut next = boss.succeeded();
    assert!(!next.metrics().contains(observed), "gauges die with their process");
    next.serve(1, &rules);
    next.metrics_until(|text| text.contains(observed));
    let accepted = "baton_connections_accepted_total{rule=\"r\",mode=\"normal\"} 1\n";
    assert!(next.metrics().contains(accepted), "counters outlive it");
}

#[test]
fn the_time_to_the_first_byte_is_kept_in_every_mode() {
    let upstream = Upstream::echo();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule("r", address, &[upstream.address])]);
    let series = of("baton_route_first_byte_ewma_seconds", "r", upstream.address, 0);
    boss.metrics_until(|text| text.contains(&series));
    echoed(&mut TcpStream::connect(address).unwrap(), b"hello");
    let begins = series.trim_end_matches(" 0\n");
    boss.metrics_until(|text| text.contains(begins) && !text.contains(&series));
}
