#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use baton_config::model::{
    Forward, HashKey, OnAllFailed, Selector, Strategy, Subset, SubsetFallback, Target,
};

use super::*;
use crate::flow::{Fault, Hello, TargetSet};
use crate::testkit::{rule, target};

const NOW: Moment = Moment(1_000_000_000);

fn named(port: u16, names: &[&str], alpn: &[&str]) -> Target {
    Target {
        server_names: names.iter().map(|&s| s.to_owned()).collect(),
        alpn: alpn.iter().map(|&s| s.to_owned()).collect(),
        ..target(port)
    }
}

fn hello(name: Option<&str>, alpn: &[&str]) -> Verdict {
    let alpn: Vec<u8> = alpn
        .iter()
        .flat_map(|p| std::iter::once(u8::try_from(p.len()).unwrap()).chain(p.bytes()))
        .collect();
    Verdict::Hello(Hello { server_name: name.map(Into::into), alpn: alpn.into() })
}

/// The candidates as positions; empty when there is no route.
fn route(rule: &Rule, verdict: &Verdict) -> Vec<u16> {
    let lines = LineSet::for_rule(rule, |_| None, None);
    let router = Router::for_rule(rule, &lines);
    match router.candidates(verdict, &lines, NOW) {
        Ok(candidates) => candidates.iter().map(|line| line.0).collect(),
        Err(NoRoute::NoMatch) => Vec::new(),
        Err(NoRoute::NoSubset) => panic!("no subset here"),
    }
}

#[test]
fn a70_exact_names_single_label_wildcards_and_the_fallback_after_every_match() {
    let rule = rule(
        Mode::Tls,
        vec![
            target(1),
            named(2, &["*.example.com"], &[]),
            named(3, &["a.example.com"], &[]),
            named(4, &["example.com"], &[]),
        ],
    );
    assert_eq!(route(&rule, &hello(Some("a.example.com"), &[])), [1, 2, 0]);
    assert_eq!(route(&rule, &hello(Some("b.example.com"), &[])), [1, 0]);
    assert_eq!(route(&rule, &hello(Some("b.a.example.com"), &[])), [0]);
    assert_eq!(route(&rule, &hello(Some("example.com"), &[])), [3, 0]);
    assert_eq!(route(&rule, &hello(None, &["h2"])), [0]);
}

#[test]
fn a70_a_target_with_names_and_protocols_needs_both_and_any_offered_protocol_will_do() {
    let rule = rule(
        Mode::Tls,
        vec![
            named(1, &["a.test"], &["h2"]),
            named(2, &[], &["h2", "acme-tls/1"]),
            named(3, &["a.test"], &[]),
        ],
    );
    assert_eq!(route(&rule, &hello(Some("a.test"), &["http/1.1", "h2"])), [0, 1, 2]);
    assert_eq!(route(&rule, &hello(Some("a.test"), &["http/1.1"])), [2]);
    assert_eq!(route(&rule, &hello(None, &["acme-tls/1"])), [1]);
    assert_eq!(route(&rule, &hello(Some("b.test"), &["H2"])), [0; 0], "protocols are exact");
}

#[test]
fn a70_an_unreadable_hello_goes_only_to_the_fallback_or_nowhere() {
    let with = rule(Mode::Tls, vec![named(1, &["a.test"], &[]), target(2)]);
    assert_eq!(route(&with, &Verdict::Opaque), [1]);
    let without = rule(Mode::Tls, vec![named(1, &["a.test"], &[])]);
    assert_eq!(route(&without, &Verdict::Opaque), [0; 0]);
}

#[test]
fn a66_all_matching_patterns_are_candidates_in_configured_order() {
    let with_pattern = |port| Target { regexp: Some("x".into()), ..target(port) };
    let rule = rule(Mode::Regex, vec![with_pattern(1), target(2), with_pattern(3)]);
    let matched: TargetSet = [2, 0].into_iter().collect();
    assert_eq!(route(&rule, &Verdict::Patterns(matched)), [0, 2]);
    assert_eq!(route(&rule, &Verdict::Patterns(TargetSet::default())), [1], "the fallback");
}

#[test]
fn b11_without_fallback_no_match_is_no_route() {
    let rule = rule(Mode::Regex, vec![Target { regexp: Some("x".into()), ..target(1) }]);
    assert_eq!(route(&rule, &Verdict::Patterns(TargetSet::default())), [0; 0]);
}

#[test]
fn expanded_targets_contribute_all_their_lines() {
    let mut rule = rule(Mode::Normal, vec![target(1), target(2), target(3)]);
    rule.targets[1].resolve = baton_config::model::Resolve::Expand;
    let lines =
        LineSet::for_rule(&rule, |_| Some(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]), None);
    let router = Router::for_rule(&rule, &lines);
    assert_eq!(router.lines_of([1]).as_slice(), [LineIndex(1), LineIndex(2)]);
    assert_eq!(router.candidates(&Verdict::Unread, &lines, NOW).unwrap().len(), 4);
}

fn zoned(port: u16, zone: &str) -> Target {
    Target { labels: BTreeMap::from([("zone".into(), zone.into())]), ..target(port) }
}

fn zones(targets: Vec<Target>, fallback: SubsetFallback) -> Rule {
    let selector = Selector {
        strategy: Strategy::Round,
        max_fails: 1,
        fail_timeout: Duration::from_secs(10),
        on_all_failed: OnAllFailed::LastResort,
    };
    let forward = Forward { selector, retries: 0, hash: HashKey::Client };
    let prefer = |zone: &str| BTreeMap::from([("zone".into(), zone.into())]);
    Rule {
        subset: Some(Subset { prefer: vec![prefer("eu"), prefer("us")], fallback }),
        ..rule(Mode::Forward(forward), targets)
    }
}

#[test]
fn the_first_label_set_with_a_usable_target_wins_then_the_fallback_speaks() {
    for fallback in [SubsetFallback::Any, SubsetFallback::None] {
        let rule = zones(vec![zoned(1, "us"), zoned(2, "eu"), zoned(3, "ap")], fallback);
        let lines = LineSet::for_rule(&rule, |_| None, None);
        let router = Router::for_rule(&rule, &lines);
        let now = || router.candidates(&Verdict::Unread, &lines, NOW);
        let fail = |line| lines.line(LineIndex(line)).admit(NOW).unwrap().failed(Fault::Dial, NOW);
        assert_eq!(now().unwrap().as_slice(), [LineIndex(1)]);
        assert!(fail(1));
        assert_eq!(now().unwrap().as_slice(), [LineIndex(0)]);
        assert!(fail(0));
        match fallback {
            SubsetFallback::Any => assert_eq!(now().unwrap().len(), 3),
            SubsetFallback::None => assert_eq!(now(), Err(NoRoute::NoSubset)),
        }
    }
}

#[test]
fn c33_a_primary_of_a_later_label_set_goes_before_a_backup_of_an_earlier_one() {
    let backup = Target { backup: true, ..zoned(1, "eu") };
    let rule = zones(vec![backup, zoned(2, "us")], SubsetFallback::None);
    let lines = LineSet::for_rule(&rule, |_| None, None);
    let router = Router::for_rule(&rule, &lines);
    let now = || router.candidates(&Verdict::Unread, &lines, NOW).unwrap();
    assert_eq!(now().as_slice(), [LineIndex(1)]);
    assert!(lines.line(LineIndex(1)).admit(NOW).unwrap().failed(Fault::Dial, NOW));
    assert_eq!(now().as_slice(), [LineIndex(0)]);
}
