//! All or nothing.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use socket2::{Domain, SockRef, Socket, Type};

use crate::harness::{Instance, Loopback, Streams, Upstream, until};

fn rule(name: &str, listen: SocketAddr, target: SocketAddr) -> Value {
    json!({ "name": name, "listen": listen.to_string(), "mode": "normal",
            "targets": [{ "address": target.to_string() }] })
}

fn ask(entry: SocketAddr) -> String {
    let mut answer = String::new();
    TcpStream::connect(entry).unwrap().read_to_string(&mut answer).unwrap();
    answer
}

/// Whether nobody listens there. The socket is only bound: a copy of it in a process that a
/// neighbouring test is just starting hinders no listener.
fn bindable(address: SocketAddr) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).is_ok()
}

#[test]
fn new_connections_follow_the_new_rules_and_old_ones_the_old() {
    let loopback = Loopback::unique();
    let echo = Upstream::echo(loopback.next());
    let named = Upstream::named(loopback.next(), "new");
    let entry = loopback.next();
    let instance = Instance::start(&json!({ "rules": [rule("r", entry, echo.address())] }));
    let streams = Streams::open(entry, 2);

    instance.configure(&json!({ "rules": [rule("r", entry, named.address())] }));
    let said = instance.expect_ok(&["reload"]);

    assert!(said.contains("generation 2"), "{said}");
    assert_eq!(ask(entry), "new");
    streams.wait_frames(10);
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    instance.stop();
}

#[test]
fn a_busy_port_among_three_new_ones_changes_nothing() {
    let loopback = Loopback::unique();
    let named = Upstream::named(loopback.next(), "one");
    let [entry, first, busy, third] = std::array::from_fn(|_| loopback.next());
    let config = json!({ "rules": [rule("r", entry, named.address())] });
    let instance = Instance::start(&config);
    let taken = TcpListener::bind(busy).unwrap();

    let target = named.address();
    instance.configure(&json!({ "rules": [
        rule("a", first, target), rule("b", busy, target), rule("c", third, target)] }));
    let outcome = instance.run(&["reload"]);

    assert_eq!(outcome.code, 1, "{outcome:?}");
    let expected = format!("listen b at {busy}: Address already in use (os error 98)");
    assert!(outcome.stderr.contains(&expected), "{outcome:?}");
    assert_eq!(ask(entry), "one");
    until("nothing is left bound", || bindable(first).then_some(()));
    let last = instance.status()["last_transition"].clone();
    assert_eq!(last["result"], "failed");
    assert!(last["age_ms"].is_u64(), "{last}");
    let shown = instance.expect_ok(&["status"]);
    let line = shown.lines().find(|line| line.starts_with("last reload: failed")).unwrap();
    assert!(line.ends_with(" ago"), "{line}");
    // Closed at once, whoever has a copy.
    SockRef::from(&taken).shutdown(Shutdown::Both).unwrap();
    instance.expect_ok(&["reload"]);
    assert_eq!(ask(third), "one");
    until("the listener nobody wants any more is closed", || bindable(entry).then_some(()));
    instance.stop();
}

#[test]
fn every_problem_of_a_broken_file_is_told_and_nothing_changes() {
    let loopback = Loopback::unique();
    let named = Upstream::named(loopback.next(), "kept");
    let entry = loopback.next();
    let config = json!({ "rules": [rule("r", entry, named.address())] });
    let instance = Instance::start(&config);

    instance.configure(
        &json!({ "rules": [{ "name": "r", "listen": entry.to_string(), "mode": "normla",
                                            "target": [] }] }),
    );
    let outcome = instance.run(&["reload"]);

    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("did you mean \"normal\"?"), "{outcome:?}");
    assert!(outcome.stderr.contains("did you mean \"targets\"?"), "{outcome:?}");
    assert_eq!(ask(entry), "kept");
    assert_eq!(instance.status()["workers"][0]["generation"], 1);

    instance.scratch().file("setting.json", "{ not json");
    assert_eq!(instance.run(&["reload"]).code, 1);
    std::fs::remove_file(instance.scratch().path().join("setting.json")).unwrap();
    assert_eq!(instance.run(&["reload"]).code, 1);
    assert_eq!(ask(entry), "kept");
    instance.stop();
}

#[test]
fn equal_rules_are_no_change_and_a_section_of_the_process_needs_a_restart() {
    let loopback = Loopback::unique();
    let named = Upstream::named(loopback.next(), "x");
    let entry = loopback.next();
    let mut config = json!({ "rules": [rule("r", entry, named.address())] });
    let instance = Instance::start(&config);

    instance.expect_ok(&["reload"]);
    let status = instance.status();
    assert_eq!(status["workers"][0]["generation"], 1);
    assert_eq!(status["last_transition"]["result"], "unchanged");

    config["log"] = json!({ "level": "debug" });
    instance.configure(&config);
    let outcome = instance.run(&["reload"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("needs a restart: log.level"), "{outcome:?}");
    instance.stop();
}

#[test]
fn a_hundred_signals_at_once_coalesce() {
    let loopback = Loopback::unique();
    let named = Upstream::named(loopback.next(), "x");
    let entry = loopback.next();
    let mut config = json!({ "rules": [rule("r", entry, named.address())] });
    let instance = Instance::start(&config);
    config["rules"][0]["timeout"] = json!(1234);
    instance.configure(&config);
    for _ in 0..100 {
        instance.signal(Signal::SIGHUP);
    }
    until("the reload happened", || {
        (instance.status()["workers"][0]["generation"] == 2).then_some(())
    });
    instance.wait_for("it is quiet again", |status| status["transition"].is_null().then_some(()));
    assert_eq!(instance.status()["workers"][0]["generation"], 2);
    assert!(instance.metric("baton_reloads_total") < 100.0);
    instance.stop();
}

#[test]
fn a_ninth_draining_generation_is_refused() {
    let loopback = Loopback::unique();
    let echo = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let mut config = json!({ "rules": [rule("r", entry, echo.address())] });
    let instance = Instance::start(&config);
    let mut held = Vec::new();
    for round in 1..=8 {
        held.push(Streams::open(entry, 1));
        config["rules"][0]["timeout"] = json!(1000 + round);
        instance.configure(&config);
        instance.expect_ok(&["reload"]);
    }
    held.push(Streams::open(entry, 1));
    config["rules"][0]["timeout"] = json!(999);
    instance.configure(&config);
    let outcome = instance.run(&["reload"]);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.stderr.contains("reload refused: 8 generations are still draining"),
        "{outcome:?}"
    );
    for streams in held {
        for result in streams.finish() {
            result.unwrap();
        }
    }
    until("a place is free again", || (instance.run(&["reload"]).code == 0).then_some(()));
    instance.stop();
}

#[test]
fn b19_an_address_that_the_old_socket_still_holds_refuses_the_reload() {
    let loopback = Loopback::unique();
    let upstream = Upstream::named(loopback.next(), "here");
    let entry = loopback.next();
    let config = |listen: String| {
        json!({ "rules": [{ "name": "r", "listen": listen, "mode": "normal",
                            "targets": [{ "address": upstream.address().to_string() }] }]})
    };
    let instance = Instance::start(&config(entry.to_string()));
    instance.configure(&config(format!("0.0.0.0:{}", entry.port())));
    let outcome = instance.run(&["reload"]);
    assert_ne!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.stderr.contains("0.0.0.0"), "{outcome:?}");
    assert_eq!(ask(entry), "here", "what ran goes on");
    instance.stop();
}

#[test]
fn a_reload_that_needs_more_descriptors_than_there_are_hurts_nobody() {
    let loopback = Loopback::unique();
    let echo = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let mut config = json!({
        "supervisor": { "workerThreads": 2 },
        "rules": [rule("r", entry, echo.address())]
    });
    let mut limited = std::process::Command::new("prlimit");
    limited.args(["--nofile=64:64", "--"]).arg(crate::harness::baton().get_program());
    let instance = Instance::launch(&config, limited);
    instance.wait_for("a serving worker", |status| {
        (status["workers"][0]["role"] == "serving").then_some(())
    });
    let worker = instance.serving();
    let streams = Streams::open(entry, 1);
    for more in [12, 20, 40] {
        for number in 0..more {
            let extra = rule(&format!("r{more}-{number}"), loopback.next(), echo.address());
            config["rules"].as_array_mut().unwrap().push(extra);
        }
        instance.configure(&config);
        let outcome = instance.run(&["reload"]);
        assert!(outcome.code <= 1, "{outcome:?}");
        streams.wait_frames(10);
        assert_eq!(instance.serving(), worker, "{outcome:?}");
    }
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    instance.stop();
}

#[test]
fn a_client_that_never_stops_reloading_is_served_and_costs_nobody_a_connection() {
    use baton_supervisor::control::client::Conversation;
    use baton_supervisor::control::protocol::{Request, Response};

    let loopback = Loopback::unique();
    let echo = Upstream::echo(loopback.next());
    let entry = loopback.next();
    let instance = Instance::start(&json!({ "rules": [rule("r", entry, echo.address())] }));
    let worker = instance.serving();
    let streams = Streams::open(entry, 1);
    for _ in 0..1000 {
        let mut conversation =
            Conversation::start(&instance.runtime_dir(), &Request::Reload).unwrap();
        loop {
            match conversation.next_response().unwrap() {
                Response::Done(done) => {
                    assert!(done.ok, "{done:?}");
                    break;
                }
                Response::Progress { .. } => {}
                other @ (Response::Status(_) | Response::Answer { .. }) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(instance.serving(), worker);
    for result in streams.finish() {
        assert!(result.unwrap() > 0);
    }
    instance.stop();
}
