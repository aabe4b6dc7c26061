//! Every mode once, through a whole worker. How modes choose is tested where it is decided.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::boss::{Boss, Upstream, heard, nobody, rule_with};

/// A rule whose targets are written out.
fn rule_of(listen: SocketAddr, fields: &str, targets: &str) -> String {
    format!(r#"{{"name":"r","listen":"{listen}",{fields},"targets":[{targets}]}}"#)
}

/// The answer to these first bytes.
fn asked(address: SocketAddr, first: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(first)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn roundrobin_takes_turns_and_passes_over_a_dead_target() {
    let (one, two) = (Upstream::named("one"), Upstream::named("two"));
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let targets = [one.address, nobody(), two.address];
    boss.serve(1, &[rule_with("r", address, &targets, r#""mode":"roundrobin""#)]);
    let answers: Vec<String> = (0..6).map(|_| heard(address).unwrap()).collect();
    assert_eq!(answers[0], "one");
    assert_eq!(answers[2], "two");
    assert!(answers.iter().all(|answer| answer == "one" || answer == "two"), "{answers:?}");
}

#[test]
fn boost_serves_from_a_race_and_then_from_its_winner() {
    let upstream = Upstream::named("fast");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let targets = [nobody(), upstream.address];
    boss.serve(1, &[rule_with("r", address, &targets, r#""mode":"boost","hedge":{}"#)]);
    for _ in 0..3 {
        assert_eq!(heard(address).unwrap(), "fast");
    }
    let metrics = boss.metrics();
    assert!(metrics.contains("baton_boost_cache_misses_total{rule=\"r\"} 1\n"), "{metrics}");
    assert!(metrics.contains("baton_boost_cache_hits_total{rule=\"r\"} 2\n"), "{metrics}");
}

#[test]
fn regex_routes_by_the_first_bytes_and_forwards_all_of_them() {
    let (ssh, rest) = (Upstream::first_bytes(), Upstream::named("fallback"));
    let mut boss = Boss::greeted();
    let (address, hasty) = (boss.listen(), boss.listen());
    let targets = format!(
        r#"{{"address":"{}","regexp":"^SSH-"}},{{"address":"{}"}}"#,
        ssh.address, rest.address
    );
    let patient = rule_of(address, r#""mode":"regex","timeout":"5m""#, &targets);
    let fields = r#""mode":"regex","timeout":200"#;
    boss.serve(1, &[patient, rule_of(hasty, fields, &targets).replace("\"r\"", "\"hasty\"")]);
    assert_eq!(asked(address, b"SSH-2.0-test\r\n").unwrap(), "SSH-2.0-test\r\n");
    assert_eq!(asked(address, b"GET / HTTP/1.1\r\n\r\n").unwrap(), "fallback");
    // Silent: the fallback serves when the time for a decision is over.
    assert_eq!(heard(hasty).unwrap(), "fallback");
}

#[test]
fn a_pattern_that_does_not_compile_is_told_with_its_place() {
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let rule = rule_of(address, r#""mode":"regex""#, r#"{"address":"127.0.0.1:1","regexp":"("}"#);
    let problems = boss.prepare(1, &super::config(&[rule])).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("$.rules[0].targets[0].regexp: invalid regexp"), "{problems:?}");
}

#[test]
fn tls_without_a_match_and_without_a_fallback_is_closed_without_a_word() {
    let upstream = Upstream::named("never");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let targets = format!(r#"{{"address":"{}","serverNames":["a.example"]}}"#, upstream.address);
    boss.serve(1, &[rule_of(address, r#""mode":"tls""#, &targets)]);
    assert_eq!(asked(address, b"not a hello").unwrap(), "");
}

#[test]
fn forward_takes_turns_and_leaves_a_failed_target_out() {
    let (one, two) = (Upstream::named("one"), Upstream::named("two"));
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let nobody = nobody();
    let targets = [one.address, nobody, two.address];
    let fields = r#""mode":"forward","selector":{"strategy":"round","failTimeout":"1m"}"#;
    boss.serve(1, &[rule_with("r", address, &targets, fields)]);
    let answers: Vec<String> = (0..9).map(|_| heard(address).unwrap()).collect();
    let ones = answers.iter().filter(|answer| *answer == "one").count();
    assert!((3..=6).contains(&ones), "{answers:?}");
    let metrics = boss.metrics();
    let failed = format!("baton_dial_failures_total{{rule=\"r\",target=\"{nobody}\"}} 1\n");
    assert!(metrics.contains(&failed), "{metrics}");
}

#[test]
fn a_name_is_resolved_and_dialled() {
    let upstream = Upstream::named("by name");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let port = upstream.address.port();
    let targets = format!(r#"{{"address":"localhost:{port}"}}"#);
    boss.serve(1, &[rule_of(address, r#""mode":"normal""#, &targets)]);
    assert_eq!(heard(address).unwrap(), "by name");
}

#[test]
fn a_name_that_does_not_resolve_is_a_failed_target() {
    let upstream = Upstream::named("second");
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let targets =
        format!(r#"{{"address":"no-such-name.invalid:1"}},{{"address":"{}"}}"#, upstream.address);
    boss.serve(1, &[rule_of(address, r#""mode":"normal""#, &targets)]);
    assert_eq!(heard(address).unwrap(), "second");
}

#[test]
fn the_clients_of_a_trusted_hop_are_who_the_header_says() {
    let upstream = Upstream::first_bytes();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let fields = r#""mode":"normal","proxyProtocol":{"accept":true,
        "trustedCIDRs":["127.0.0.0/8"]},"blacklist":{"10.0.0.1":true}"#;
    boss.serve(1, &[rule_with("r", address, &[upstream.address], fields)]);
    let good = b"PROXY TCP4 10.0.0.2 10.0.0.9 1000 80\r\nhello";
    assert_eq!(asked(address, good).unwrap(), "hello");
    // The upstream answers what it reads first and closes: only the header goes byte by byte.
    let (header, greeting) = good.split_at(good.len() - 5);
    let mut split = TcpStream::connect(address).unwrap();
    for byte in header {
        split.write_all(&[*byte]).unwrap();
    }
    split.write_all(greeting).unwrap();
    split.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    split.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
    // Refused ones see a close and no byte; the kernel makes it a reset when some were unread.
    let denied = asked(address, b"PROXY TCP4 10.0.0.1 10.0.0.9 1000 80\r\n");
    assert_eq!(denied.unwrap_or_default(), "");
    let malformed = asked(address, b"hello");
    assert_eq!(malformed.unwrap_or_default(), "");
    let metrics = boss.metrics();
    for reason in ["access_policy", "proxy_protocol"] {
        let series = format!(
            "baton_connections_rejected_total{{rule=\"r\",mode=\"normal\",reason=\"{reason}\"}} 1\n"
        );
        assert!(metrics.contains(&series), "{metrics}");
    }
}

#[test]
fn the_upstream_is_told_who_the_client_is() {
    let upstream = Upstream::first_bytes();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let fields = r#""mode":"normal","proxyProtocol":{"send":"v1"}"#;
    boss.serve(1, &[rule_with("r", address, &[upstream.address], fields)]);
    let mut stream = TcpStream::connect(address).unwrap();
    let own = stream.local_addr().unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", own.port(), address.port());
    assert_eq!(answer, expected);
}

#[test]
fn labels_narrow_the_choice() {
    let (eu, us) = (Upstream::named("eu"), Upstream::named("us"));
    let mut boss = Boss::greeted();
    let address = boss.listen();
    let targets = format!(
        r#"{{"address":"{}","labels":{{"zone":"us"}}}},{{"address":"{}","labels":{{"zone":"eu"}}}}"#,
        us.address, eu.address
    );
    let fields = r#""mode":"normal","subset":{"prefer":[{"zone":"eu"}],"fallback":"any"}"#;
    boss.serve(1, &[rule_of(address, fields, &targets)]);
    assert_eq!(heard(address).unwrap(), "eu");
}

#[test]
fn a_client_that_leaves_cancels_a_dial_that_is_stuck() {
    let (stuck, _full) = Upstream::stuck();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule_with("r", address, &[stuck], r#""mode":"normal","timeout":"5m""#)]);
    let client = TcpStream::connect(address).unwrap();
    let begun = format!("baton_dial_attempts_total{{rule=\"r\",target=\"{stuck}\"}} 1\n");
    boss.metrics_until(|text| text.contains(&begun));
    assert_eq!(boss.ping().connections, 1);
    drop(client);
    boss.pulse_until(|pulse| pulse.connections == 0);
    let canceled = format!("baton_dial_canceled_total{{rule=\"r\",target=\"{stuck}\"}} 1\n");
    assert!(boss.metrics().contains(&canceled));
}

#[test]
fn a_cut_resets_clients_whose_dial_is_stuck() {
    let (stuck, _full) = Upstream::stuck();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule_with("r", address, &[stuck], r#""mode":"normal","timeout":"5m""#)]);
    let mut client = TcpStream::connect(address).unwrap();
    boss.pulse_until(|pulse| pulse.connections == 1);
    assert_eq!(boss.drain(std::time::Duration::ZERO), 1);
    assert_eq!(super::end_of(&mut client), Err(ErrorKind::ConnectionReset));
    assert!(boss.ended());
}

#[test]
fn a_dial_that_is_stuck_ends_at_the_rules_time_limit() {
    let (stuck, _full) = Upstream::stuck();
    let mut boss = Boss::greeted();
    let address = boss.listen();
    boss.serve(1, &[rule_with("r", address, &[stuck], r#""mode":"normal","timeout":300"#)]);
    assert_eq!(heard(address).unwrap_err().kind(), ErrorKind::ConnectionReset);
}
