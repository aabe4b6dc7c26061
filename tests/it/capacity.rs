//! What happens when the places to dial a target are all taken.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{DelayNet, SlowLines, hear, until};

/// Places to dial one target.
const PLACES: f64 = 64.0;

/// Rules beside `r`, one a line, whose clients wait as long as it takes.
fn beside(setting: &SlowLines, lines: u8) {
    let mut config = setting.instance.config();
    for number in 1..=lines {
        config["rules"].as_array_mut().unwrap().push(json!({
            "name": format!("fill-{number}"), "listen": filler(number).to_string(),
            "mode": "normal", "timeout": 300_000,
            "targets": [{ "address": DelayNet::line(number).to_string() }] }));
    }
    setting.instance.configure(&config);
    setting.instance.expect_ok(&["reload"]);
}

fn filler(line: u8) -> SocketAddr {
    ([127, 0, 0, 1], 11_000 + u16::from(line)).into()
}

fn taken(setting: &SlowLines, line: u8) -> f64 {
    let target = format!("target=\"{}\"", DelayNet::line(line));
    setting.instance.series("baton_dial_bulkhead_target_in_flight", &target)
}

/// Swallows what goes over the line and takes every place to dial it.
fn fill(setting: &SlowLines, line: u8) -> Vec<TcpStream> {
    setting.net.set(&format!("{line} blackhole=1"));
    let connect = || TcpStream::connect(filler(line)).unwrap();
    let clients = setting.net.near(|| (0..PLACES as u8).map(|_| connect()).collect());
    until("every place is taken", || (taken(setting, line) == PLACES).then_some(()));
    clients
}

fn release(setting: &SlowLines, line: u8, clients: Vec<TcpStream>) {
    drop(clients);
    until("every place is free", || (taken(setting, line) == 0.0).then_some(()));
}

fn refused(setting: &SlowLines) -> f64 {
    setting.instance.series("baton_dial_bulkhead_rejected_total", "reason=\"target_full\"")
}

#[test]
fn a16_a89_a96_a100_a101_a_full_target_is_waited_for_without_a_hedge_and_stays_the_winner() {
    let lines = ["rtt=10", "rtt=2000"];
    let rule = json!({ "mode": "boost", "timeout": 60_000,
                       "hedge": { "minDelay": 200, "maxDelay": 200 } });
    let Some(setting) = SlowLines::start("a16_a89_a96_a100_a101", &lines, rule) else { return };
    beside(&setting, 1);
    let raced = Instant::now();
    setting.expect("a");
    let clients = fill(&setting, 1);
    assert!(setting.net.near(|| hear(filler(1))).is_err(), "one more is refused");
    assert_eq!((refused(&setting), taken(&setting, 1)), (1.0, PLACES));

    // Places belong to the process: those who took them under earlier rules still have them.
    let mut config = setting.instance.config();
    config["rules"][1]["timeout"] = json!(299_000);
    setting.instance.configure(&config);
    setting.instance.expect_ok(&["reload"]);
    assert!(setting.net.near(|| hear(filler(1))).is_err(), "nor under new rules");
    assert_eq!((refused(&setting), taken(&setting, 1)), (2.0, PLACES));

    let tried = setting.attempts(0);
    setting.expect("b");
    assert_eq!(refused(&setting), 3.0, "it has waited for its place in vain");
    assert_eq!(setting.attempts(0), tried, "and nothing was dialled");
    assert_eq!(setting.hedges("scheduled"), 0.0, "a clock that waits for a place does not run");
    assert_eq!(setting.instance.metric("baton_route_consecutive_failures"), 0.0);

    release(&setting, 1, clients);
    setting.net.set("1 blackhole=0");
    setting.expect("a");
    if raced.elapsed() < Duration::from_secs(30) {
        let misses = setting.instance.metric("baton_boost_cache_misses_total");
        assert_eq!(misses, 1.0, "it has been the cached winner all the time");
    }
    setting.instance.stop();
}

#[test]
fn a90_a91_a_backup_without_a_place_is_left_out_until_the_primary_fails() {
    let lines = ["rtt=10", "rtt=2000"];
    let rule = json!({ "mode": "boost", "timeout": 300_000,
                       "hedge": { "minDelay": 25, "maxDelay": 100 } });
    let Some(setting) = SlowLines::start("a90_a91", &lines, rule) else { return };
    beside(&setting, 2);
    setting.expect("a");
    let clients = fill(&setting, 2);
    setting.net.set("1 blackhole=1");
    let before = [setting.attempts(0), setting.attempts(1)];
    let mut client = setting.net.near(|| TcpStream::connect(setting.entry)).unwrap();
    until("the backup was due and had no place", || (refused(&setting) == 1.0).then_some(()));
    assert_eq!(setting.attempts(0), before[0] + 1.0);
    assert_eq!(setting.attempts(1), before[1], "the primary goes on alone");

    // Now there are places, and the primary's next SYN is refused.
    release(&setting, 2, clients);
    setting.net.set("2 blackhole=0 rtt=10");
    setting.net.set("1 blackhole=0 refuse=1");
    let mut heard = String::new();
    client.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "b");
    assert_eq!(setting.attempts(1), before[1] + 1.0);
    let hedges = ["scheduled", "skipped_capacity", "launched", "won", "avoided"];
    assert_eq!(hedges.map(|outcome| setting.hedges(outcome)), [1.0, 1.0, 0.0, 0.0, 0.0]);
    setting.instance.stop();
}
