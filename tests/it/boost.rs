//! Races, the winner cache, hedges and budgets, over lines with real delay and real silence.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::harness::{SlowLines, Upstream, until};

/// A line that loses to any other, by more than a busy machine may be late.
const SLOW: &str = "rtt=4000";
/// The time limit of rules whose dials are not meant to reach it.
const LONG: u64 = 60_000;

#[test]
fn a85_a86_a_cold_race_takes_the_faster_line_and_a_warm_cache_dials_it_alone() {
    let lines = [SLOW, "rtt=20", SLOW];
    let rule = json!({ "mode": "boost", "timeout": LONG });
    let Some(setting) = SlowLines::start("a85_a86", &lines, rule) else { return };
    // In a row: the cache asks for another race when it is fifteen seconds old.
    for _ in 0..6 {
        setting.expect("b");
    }
    let attempts = [0, 1, 2].map(|number| setting.attempts(number));
    assert_eq!(attempts, [1.0, 6.0, 0.0], "two race, never more, and then the winner alone");
    assert_eq!(setting.instance.metric("baton_boost_decision_duration_seconds_count"), 6.0);
    assert_eq!(setting.instance.metric("baton_dial_canceled_total"), 1.0);
    assert_eq!(setting.instance.metric("baton_boost_cache_hits_total"), 5.0);
    assert_eq!(setting.instance.metric("baton_boost_cache_misses_total"), 1.0);
    assert_eq!(
        setting.instance.metric("baton_route_consecutive_failures"),
        0.0,
        "a loser is neutral"
    );
    setting.instance.stop();
}

#[test]
fn a88_b7_a_cached_line_that_refuses_is_replaced_within_the_connection() {
    let lines = ["rtt=10", SLOW];
    let rule = json!({ "mode": "boost", "timeout": LONG });
    let Some(setting) = SlowLines::start("a88_b7", &lines, rule) else { return };
    setting.expect("a");
    setting.net.set("1 refuse=1");
    setting.net.set("2 rtt=60");
    // Half of the time is what a silent one would get.
    assert!(setting.expect("b") < Duration::from_millis(LONG / 2), "no limit was waited for");
    assert_eq!(setting.attempts(0), 2.0);
    setting.expect("b");
    assert_eq!(setting.attempts(0), 2.0, "the new winner is cached");
    setting.instance.stop();
}

#[test]
fn b9_a_cached_line_that_falls_silent_leaves_time_for_the_others() {
    let lines = ["rtt=10", SLOW];
    let rule = json!({ "mode": "boost", "timeout": 16_000 });
    let Some(setting) = SlowLines::start("b9_a_cached_line", &lines, rule) else { return };
    setting.expect("a");
    setting.net.set("1 blackhole=1");
    setting.net.set("2 rtt=60");
    assert!(setting.expect("b") < Duration::from_secs(16), "served within the rule's time limit");
    setting.expect("b");
    assert_eq!(setting.attempts(0), 2.0, "and cached");
    setting.instance.stop();
}

#[test]
fn b9_a_silent_first_target_leaves_time_for_the_second() {
    let lines = ["blackhole=1", "blackhole=1", "rtt=5"];
    let rule = json!({ "mode": "normal", "timeout": 15_000 });
    let Some(setting) = SlowLines::start("b9_a_silent_first", &lines, rule) else { return };
    assert!(setting.expect("c") < Duration::from_secs(15));
    let failures = setting.instance.metric("baton_dial_failures_total");
    assert_eq!(failures, 2.0, "a silent line has failed");
    setting.instance.stop();
}

#[test]
fn a87_a94_a_hedge_wins_over_a_line_that_has_slowed_down() {
    let lines = ["rtt=10", SLOW];
    let hedge = json!({ "minDelay": 25, "maxDelay": 100 });
    let rule = json!({ "mode": "boost", "timeout": LONG, "hedge": hedge });
    let Some(setting) = SlowLines::start("a87_a94", &lines, rule) else { return };
    setting.expect("a");
    setting.net.set("1 rtt=30000");
    setting.net.set("2 rtt=40");
    assert!(setting.expect("b") < Duration::from_secs(30), "long before the primary");
    assert_eq!((setting.hedges("launched"), setting.hedges("won")), (1.0, 1.0));
    setting.expect("b");
    // On a busy machine there may be another backup, which does not win.
    assert_eq!(setting.hedges("won"), 1.0, "the winner has taken its place");
    assert_eq!(setting.instance.metric("baton_route_consecutive_failures"), 0.0);
    setting.instance.stop();
}

#[test]
fn a87_a92_a_primary_that_connects_in_time_needs_no_backup_however_silent_it_is() {
    let lines = ["rtt=10", SLOW];
    let hedge = json!({ "minDelay": 4500, "maxDelay": 5000 });
    let rule = json!({ "mode": "boost", "timeout": LONG, "hedge": hedge });
    let silent = |address, _| Upstream::echo(address);
    let Some(setting) = SlowLines::with("a87_a92", &lines, rule, silent) else { return };
    let connect = || setting.net.near(|| TcpStream::connect(setting.entry)).unwrap();
    let mut held = Vec::new();
    for number in 0..4_u8 {
        held.push(connect());
        until("it has its upstream", || {
            let begun = setting.instance.metric("baton_dial_success_total");
            (begun == f64::from(number) + 1.0).then_some(())
        });
    }
    assert_eq!(setting.attempts(1), 1.0, "only in the first race");
    assert_eq!((setting.hedges("scheduled"), setting.hedges("avoided")), (3.0, 3.0));
    drop(held);
    setting.instance.stop();
}

#[test]
fn a85_a_lossy_line_loses_to_a_clean_one() {
    let lines = ["rtt=10 loss=100", "rtt=50"];
    let rule = json!({ "mode": "boost", "timeout": LONG });
    let Some(setting) = SlowLines::start("a85_a_lossy_line", &lines, rule) else { return };
    assert!(setting.expect("b") < Duration::from_millis(LONG));
    setting.net.set("1 loss=30");
    for _ in 0..5 {
        setting.expect("b");
    }
    setting.instance.stop();
}

#[test]
fn b16_a_client_that_leaves_during_a_stuck_dial_takes_it_along() {
    for mode in ["normal", "boost", "forward"] {
        let lines = ["blackhole=1", "blackhole=1"];
        let rule = json!({ "mode": mode, "timeout": 300_000 });
        let Some(setting) = SlowLines::start("b16_a_client_that_leaves", &lines, rule) else {
            return;
        };
        let worker = setting.instance.serving();
        let descriptors = || std::fs::read_dir(format!("/proc/{worker}/fd")).unwrap().count();
        let before = descriptors();
        for reset in [false, true] {
            let client = setting.net.near(|| TcpStream::connect(setting.entry)).unwrap();
            until("it is dialled for", || {
                let begun = setting.instance.metric("baton_dial_attempts_total");
                let ended = setting.instance.metric("baton_dial_canceled_total");
                (begun > ended).then_some(())
            });
            if reset {
                let socket = socket2::Socket::from(client);
                socket.set_linger(Some(Duration::ZERO)).unwrap();
            } else {
                drop(client);
            }
            until("nothing of it is left", || {
                let begun = setting.instance.metric("baton_dial_attempts_total");
                let ended = setting.instance.metric("baton_dial_canceled_total");
                let active = setting.instance.metric("baton_connections_active");
                (begun == ended && active == 0.0 && descriptors() == before).then_some(())
            });
        }
        assert_eq!(setting.instance.metric("baton_dial_failures_total"), 0.0);
        assert_eq!(setting.instance.metric("baton_route_consecutive_failures"), 0.0, "neutral");
        setting.instance.stop();
    }
}

#[test]
fn c11_parallel_takes_whoever_connects_first_and_tells_the_others_nothing() {
    let lines = [SLOW, "rtt=20", SLOW];
    let rule =
        json!({ "mode": "forward", "timeout": LONG, "selector": { "strategy": "parallel" } });
    let losers = Arc::new(AtomicU64::new(0));
    let heard = Arc::clone(&losers);
    let upstream = move |address, name: &'static str| {
        let heard = Arc::clone(&heard);
        Upstream::serve(address, move |mut stream| {
            let mut request = [0; 5];
            match stream.read_exact(&mut request) {
                Ok(()) => drop(stream.write_all(name.as_bytes())),
                // A loser: its connection ends without a byte.
                Err(_) => drop(heard.fetch_add(1, Ordering::SeqCst)),
            }
        })
    };
    let Some(setting) = SlowLines::with("c11_parallel", &lines, rule, upstream) else { return };
    for _ in 0..4 {
        let mut client = setting.net.near(|| TcpStream::connect(setting.entry)).unwrap();
        client.write_all(b"hello").unwrap();
        let mut name = String::new();
        client.read_to_string(&mut name).unwrap();
        assert_eq!(name, "b");
    }
    for number in 0..3 {
        assert_eq!(setting.attempts(number), 4.0, "all are dialled");
    }
    assert_eq!(setting.instance.metric("baton_dial_canceled_total"), 8.0);
    assert_eq!(setting.instance.metric("baton_dial_failures_total"), 0.0);
    setting.instance.stop();
}

#[test]
fn c12_c13_parallel_contacts_as_many_as_it_may_in_turn() {
    let lines = ["rtt=20", SLOW, "rtt=20", SLOW];
    let rule = json!({ "mode": "forward", "timeout": LONG,
        "selector": { "strategy": "parallel", "maxParallel": 2, "parallelMode": "round" } });
    let Some(setting) = SlowLines::start("c12_c13_parallel", &lines, rule) else { return };
    let attempts = || [0, 1, 2, 3].map(|number| setting.attempts(number));
    setting.expect("a");
    assert_eq!(attempts(), [1.0, 1.0, 0.0, 0.0]);
    setting.expect("c");
    assert_eq!(attempts(), [1.0, 1.0, 1.0, 1.0]);
    setting.expect("a");
    assert_eq!(attempts(), [2.0, 2.0, 1.0, 1.0]);
    setting.instance.stop();
}

#[test]
fn latency_turns_away_from_a_slow_line_and_from_one_that_fails_fast() {
    for bad in ["rtt=2000", "refuse=1"] {
        let lines = [bad, "rtt=5", "rtt=5"];
        // No marks: the score alone keeps clients away.
        let rule = json!({ "mode": "forward", "timeout": LONG,
                    "selector": { "strategy": "latency", "maxFails": 1000 } });
        let Some(setting) = SlowLines::start("latency_turns_away", &lines, rule) else { return };
        let count: u8 = 50;
        let mut shares = BTreeMap::new();
        for _ in 0..count {
            *shares.entry(setting.hear().unwrap()).or_insert(0) += 1;
        }
        // By turns it would have a third. Of two drawn at random it loses to any other.
        assert!(setting.attempts(0) <= f64::from(count / 8), "{bad}: {shares:?}");
        setting.instance.stop();
    }
}

#[test]
fn a80_two_thousand_races_with_clients_that_leave_give_everything_back() {
    let lines = ["rtt=6 jitter=4", "rtt=6 jitter=4"];
    let rule = json!({ "mode": "forward", "selector": { "strategy": "parallel" } });
    let strangers = Arc::new(AtomicU64::new(0));
    let heard = Arc::clone(&strangers);
    let upstream = move |address, _| {
        let heard = Arc::clone(&heard);
        Upstream::serve(address, move |mut stream| {
            let mut all = Vec::new();
            let _reset = stream.read_to_end(&mut all);
            if !b"payload".starts_with(&all) {
                heard.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let Some(setting) = SlowLines::with("a80_two_thousand", &lines, rule, upstream) else { return };
    let worker = setting.instance.serving();
    let descriptors = || std::fs::read_dir(format!("/proc/{worker}/fd")).unwrap().count();
    let before = descriptors();
    let clients = 8;
    let count: u64 = 2000;
    let leave = |number: u64| {
        let mut client = TcpStream::connect(setting.entry).unwrap();
        if number.is_multiple_of(2) {
            let _gone = client.write_all(b"payload");
        }
        // Some leave before the dial, some during it, some after it.
        std::thread::park_timeout(Duration::from_millis(number % 12));
        if number.is_multiple_of(3) {
            let socket = socket2::Socket::from(client);
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        }
    };
    setting.net.near(|| {
        std::thread::scope(|scope| {
            for client in 0..clients {
                scope.spawn(move || (client..count).step_by(8).for_each(leave));
            }
        });
    });
    until("everything is given back", || {
        let active = setting.instance.metric("baton_connections_active");
        let total = setting.instance.metric("baton_connections_accepted_total");
        // A pipe pool keeps some of what it has.
        (active == 0.0 && total == count as f64 && descriptors() <= before + 8).then_some(())
    });
    let [begun, won, failed, canceled] = ["attempts", "success", "failures", "canceled"]
        .map(|what| setting.instance.metric(&format!("baton_dial_{what}_total")));
    assert_eq!(begun, won + failed + canceled, "every dial has one end");
    assert_eq!(strangers.load(Ordering::SeqCst), 0, "nobody gets another one's bytes");
    setting.instance.stop();
}

#[test]
fn b6_a_reload_keeps_the_cached_winner_of_a_rule_that_did_not_change() {
    let lines = [SLOW, "rtt=10"];
    let rule = json!({ "mode": "boost", "timeout": LONG });
    let Some(setting) = SlowLines::start("b6", &lines, rule) else { return };
    setting.expect("b");
    let mut config = setting.instance.config();
    config["rules"].as_array_mut().unwrap().push(json!({ "name": "other", "mode": "normal",
        "listen": "127.0.0.1:10001", "targets": [{ "address": "127.0.0.1:1" }] }));
    setting.instance.configure(&config);
    setting.instance.expect_ok(&["reload"]);
    setting.expect("b");
    assert_eq!(setting.attempts(0), 1.0, "no race");

    config["rules"][0]["timeout"] = json!(LONG + 1);
    setting.instance.configure(&config);
    setting.instance.expect_ok(&["reload"]);
    setting.expect("b");
    assert_eq!(setting.attempts(0), 2.0, "a changed rule starts anew");
    setting.instance.stop();
}
