//! Rules that would call themselves.
#![allow(clippy::unwrap_used)]

fn problem(listen: &str, target: &str) -> Option<String> {
    let json = serde_json::json!({ "rules": [{ "name": "r", "listen": listen, "mode": "normal",
        "targets": [{ "address": target }] }] });
    baton_config::parse("f", json.to_string().as_bytes()).err().map(|problems| problems.to_string())
}

#[test]
fn a_target_that_is_certainly_the_rules_own_listener_is_refused() {
    for (listen, target) in [
        ("10.0.0.1:80", "10.0.0.1:80"),
        (":80", "127.0.0.1:80"),
        (":80", ":80"),
        (":80", "[::1]:80"),
        ("[::]:80", "127.9.9.9:80"),
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("0.0.0.0:80", "0.0.0.0:80"),
    ] {
        let problem = problem(listen, target).unwrap_or_default();
        assert!(problem.contains("forwards to itself"), "{listen} {target} {problem}");
        assert!(problem.contains("$.rules[0].targets[0].address"), "{problem}");
    }
}

#[test]
fn a_target_that_may_be_another_socket_is_not() {
    for (listen, target) in [
        ("127.0.0.1:80", "127.0.0.1:81"),
        ("127.0.0.1:80", "127.0.0.2:80"),
        ("0.0.0.0:80", "[::1]:80"),
        (":80", "localhost:80"),
        (":80", "10.0.0.1:80"),
    ] {
        assert_eq!(problem(listen, target), None, "{listen} {target}");
    }
}
