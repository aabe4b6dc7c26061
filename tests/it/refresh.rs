//! Background races of `boost`, in real time: a cached winner is looked at anew after 15 s.
//!
//! Clients come one after the other all the while, as steady traffic does; what is waited for is
//! what they and the counters see. Times are only bounds from below.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, SlowLines, Upstream, converse, until};

/// A winner is not doubted before it is this old.
const FRESH: Duration = Duration::from_secs(15);
/// A known line is not explored before it was left alone for this long.
const LEFT_ALONE: Duration = Duration::from_secs(30);

#[test]
fn b4_b5_a_background_race_finds_the_faster_line_and_then_the_one_left_alone() {
    // A machine so busy that the slower line wins a race has proved nothing.
    until("both races go to the faster line", || {
        let lines = ["refuse=1", "rtt=20", "refuse=1"];
        let rule = json!({ "mode": "boost", "timeout": 10_000 });
        let Some(setting) = SlowLines::start("b4_b5", &lines, rule) else { return Some(()) };
        let proved = two_races(&setting);
        setting.instance.stop();
        proved
    });
}

/// Nothing when a race did not end as the lines' delays have it.
fn two_races(setting: &SlowLines) -> Option<()> {
    let raced = |outcome: &str| {
        let outcome = format!("outcome=\"{outcome}\"");
        setting.instance.series("baton_boost_refreshes_total", &outcome)
    };
    // Each gets to be known by winning while the others refuse; the slowest comes last.
    setting.expect("b");
    setting.net.set("2 refuse=1");
    setting.net.set("1 refuse=0 rtt=600");
    setting.expect("a");
    setting.net.set("1 refuse=1");
    setting.net.set("3 refuse=0 rtt=1800");
    let alone = Instant::now();
    setting.expect("c");
    setting.net.set("1 refuse=0");
    setting.net.set("2 refuse=0");
    let (tried, failed) =
        (setting.attempts(1), setting.instance.metric("baton_dial_failures_total"));

    // `a` has failed once in a row and `b` twice, a second each: `a` and `c` are the best two.
    let served = |now: &str, next: &str| {
        until("another one has won", || {
            let heard = setting.hear().unwrap();
            if heard == next {
                return Some(Some(()));
            }
            // Late enough every line is explored in its turn.
            let late = alone.elapsed() >= 2 * LEFT_ALONE;
            if late && raced("kept") + raced("failed") > 0.0 {
                return Some(None);
            }
            if heard == "b" && alone.elapsed() >= LEFT_ALONE {
                return Some(None);
            }
            assert_eq!(heard, now, "and then {next}");
            None
        })
    };
    served("c", "a")?;
    assert!(alone.elapsed() >= FRESH, "after {:?}", alone.elapsed());
    until("it is counted", || (raced("replaced") == 1.0).then_some(()));

    // By its score nobody would try `b` as long as `c` is there; but nobody has for so long.
    served("a", "b")?;
    assert!(alone.elapsed() >= LEFT_ALONE, "after {:?}", alone.elapsed());
    until("it is counted", || (raced("replaced") == 2.0).then_some(()));
    assert_eq!(setting.attempts(1), tried + 1.0, "no client was its discoverer");
    assert_eq!(setting.instance.metric("baton_dial_failures_total"), failed);
    Some(())
}

/// What an upstream got of each of its connections, whole.
type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

/// Answers as soon as it has heard enough to know who it is, and hears on to the end.
fn listening(address: SocketAddr, heard: &Heard) -> Upstream {
    let heard = Arc::clone(heard);
    Upstream::serve(address, move |mut stream| {
        let mut all = Vec::new();
        let _reset = stream.read_to_end(&mut all);
        let _gone = stream.write_all(b".");
        heard.lock().unwrap().push(all);
    })
}

/// Where the header of a client's connection ends.
type HeaderEnd = fn(&[u8]) -> Option<usize>;

/// A connection that is nobody's: the header of a background race, and nothing after it.
const LOCAL_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";
const UNKNOWN_V1: &[u8] = b"PROXY UNKNOWN\r\n";

#[test]
fn a115_b5_a_background_race_says_in_its_header_that_it_is_no_client() {
    let loopback = Loopback::unique();
    let mut rules = Vec::new();
    let mut kept = Vec::new();
    let mut entries = Vec::new();
    for version in ["v1", "v2"] {
        let heard = Heard::default();
        let upstreams = [(); 2].map(|()| listening(loopback.next(), &heard));
        let entry = loopback.next();
        let targets: Vec<Value> = upstreams
            .iter()
            .map(|upstream| json!({ "address": upstream.address().to_string() }))
            .collect();
        rules.push(json!({ "name": version, "listen": entry.to_string(), "mode": "boost",
                           "proxyProtocol": { "send": version }, "targets": targets }));
        kept.push((heard, upstreams));
        entries.push(entry);
    }
    let instance = Instance::start(&json!({ "rules": rules }));
    let begun = Instant::now();
    let raced = |version: &str| {
        let text = instance.expect_ok(&["metrics"]);
        let series = format!("baton_boost_refreshes_total{{rule=\"{version}\"");
        let lines = text.lines().filter(|line| line.starts_with(&series));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    until("both have raced in the background", || {
        for &entry in &entries {
            assert_eq!(converse(entry, b"hello").unwrap(), b".");
        }
        (raced("v1") >= 1.0 && raced("v2") >= 1.0).then_some(())
    });
    assert!(begun.elapsed() >= FRESH, "after {:?}", begun.elapsed());
    let headers: [(_, &[u8], HeaderEnd); 2] = [
        (UNKNOWN_V1, b"PROXY TCP4 127.", |all| {
            all.windows(2).position(|end| end == b"\r\n").map(|end| end + 2)
        }),
        (LOCAL_V2, b"\r\n\r\n\0\r\nQUIT\n\x21\x11", |_| Some(LOCAL_V2.len() + 12)),
    ];
    for ((heard, _), (nobodys, clients, length)) in kept.iter().zip(headers) {
        until("the winner's header has arrived", || {
            heard.lock().unwrap().iter().any(|all| all == nobodys).then_some(())
        });
        for all in heard.lock().unwrap().iter() {
            // Whoever lost a race has heard a header at most.
            let said = length(all).and_then(|length| all.get(length..)).unwrap_or_default();
            let client = all.starts_with(clients) && (said.is_empty() || said == b"hello");
            assert!(all.is_empty() || all == nobodys || client, "{}", all.escape_ascii());
        }
    }
    instance.stop();
}
