use std::time::Duration;

use baton_config::model::{Forward, HashKey, OnAllFailed, Selector as Spec, Strategy};

use super::*;
use crate::flow::Moment;
use crate::testkit::{rule, target};

fn forward() -> Mode {
    let selector = Spec {
        strategy: Strategy::Round,
        max_fails: 2,
        fail_timeout: Duration::from_secs(10),
        on_all_failed: OnAllFailed::LastResort,
    };
    Mode::Forward(Forward { selector, retries: 0, hash: HashKey::Client })
}

fn set(rule: &Rule) -> LineSet {
    LineSet::for_rule(rule, |_| None, None)
}

fn same(one: &LineSet, a: u16, other: &LineSet, b: u16) -> bool {
    Arc::ptr_eq(one.line(LineIndex(a)), other.line(LineIndex(b)))
}

#[test]
fn b1_an_address_written_twice_is_one_line_in_adaptive_modes() {
    let set = set(&rule(Mode::Normal, vec![target(1), target(2), target(1)]));
    assert_eq!(set.len(), 3);
    assert!(same(&set, 0, &set, 2) && !same(&set, 0, &set, 1));
    assert_eq!(set.node(LineIndex(2)).first(), LineIndex(0));
}

#[test]
fn c30_an_address_written_twice_shares_no_marks() {
    let set = set(&rule(forward(), vec![target(1), target(1)]));
    assert!(!same(&set, 0, &set, 1));
    assert_ne!(set.node(LineIndex(0)).hash(), set.node(LineIndex(1)).hash());
}

#[test]
fn a15_lines_of_the_same_rule_are_taken_over_with_what_they_know() {
    let mode_rule = rule(Mode::Normal, vec![target(1), target(2)]);
    let old = set(&mode_rule);
    old.line(LineIndex(1)).sampled(Duration::from_millis(3), Moment(1));
    let moved = rule(Mode::Normal, vec![target(2), target(3)]);
    let new = LineSet::for_rule(&moved, |_| None, Some(&old));
    assert!(same(&new, 0, &old, 1));
    assert_eq!(new.line(LineIndex(1)).ewma_nanos(), 0);
}

#[test]
fn lines_whose_gate_has_changed_start_fresh() {
    let old = set(&rule(Mode::Normal, vec![target(1)]));
    let new = LineSet::for_rule(&rule(forward(), vec![target(1)]), |_| None, Some(&old));
    assert!(!same(&new, 0, &old, 0));
}

#[test]
fn an_expanded_target_has_a_line_for_each_address_and_keeps_those_that_stay() {
    let mut rule = rule(Mode::Boost(None), vec![target(1), target(2)]);
    rule.targets[0].address = Address { host: Host::Name("a.test".into()), port: 80 };
    rule.targets[0].resolve = Resolve::Expand;
    let unknown = LineSet::for_rule(&rule, |_| None, None);
    assert_eq!(unknown.node(LineIndex(0)).address.to_string(), "a.test:80");
    let first = |_| Some(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]);
    let one = LineSet::for_rule(&rule, first, Some(&unknown));
    let addresses: Vec<_> = one.iter().map(|(_, node)| node.address.to_string()).collect();
    assert_eq!(addresses, ["10.0.0.1:80", "10.0.0.2:80", "127.0.0.1:2"]);
    let second = |_| Some(vec![[10, 0, 0, 2].into(), [10, 0, 0, 3].into()]);
    let two = LineSet::for_rule(&rule, second, Some(&one));
    assert!(same(&two, 0, &one, 1) && same(&two, 2, &one, 2));
    assert_eq!(one.position(two.line(LineIndex(0))), Some(LineIndex(1)));
    assert_eq!(one.position(two.line(LineIndex(1))), None);
}
