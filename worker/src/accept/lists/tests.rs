#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a51_an_empty_allow_list_admits_every_address_and_another_only_its_own() {
    assert!(AccessPolicy::default().admits(ip("203.0.113.9")));
    assert!(AccessPolicy::default().admits(ip("2001:db8::1")));
    let policy = AccessPolicy::new(&[], &networks(&["10.0.0.0/8", "2001:db8::/32"]));
    for (address, admitted) in [
        ("10.0.0.0", true),
        ("10.255.255.255", true),
        ("9.255.255.255", false),
        ("11.0.0.0", false),
        ("2001:db8:ffff::1", true),
        ("2001:db9::", false),
    ] {
        assert_eq!(policy.admits(ip(address)), admitted, "{address}");
    }
}

#[test]
fn a52_a58_a_denied_address_stays_out_although_its_network_is_allowed() {
    let policy = AccessPolicy::new(
        &[ip("10.0.0.7"), ip("2001:db8::7")],
        &networks(&["10.0.0.0/8", "2001:db8::/32"]),
    );
    assert!(!policy.admits(ip("10.0.0.7")) && !policy.admits(ip("2001:db8::7")));
    assert!(policy.admits(ip("10.0.0.6")) && policy.admits(ip("10.0.0.8")));
    assert!(policy.admits(ip("2001:db8::6")) && policy.admits(ip("2001:db8::8")));
}

#[test]
fn a59_a_mapped_address_and_a_mapped_network_count_as_ipv4() {
    let set = PrefixSet::new(&networks(&["192.0.2.0/24", "::ffff:198.51.100.0/120"]));
    for inside in ["192.0.2.1", "::ffff:192.0.2.1", "198.51.100.1", "::ffff:198.51.100.1"] {
        assert!(set.contains(ip(inside)), "{inside}");
    }
    assert!(!set.contains(ip("::ffff:203.0.113.1")));
    assert!(DenySet::new(&[ip("::ffff:192.0.2.1")]).contains(ip("192.0.2.1")));
    assert!(DenySet::new(&[ip("192.0.2.1")]).contains(ip("::ffff:192.0.2.1")));
}

#[test]
fn everything_of_one_family_is_nothing_of_the_other() {
    let v4 = PrefixSet::new(&networks(&["0.0.0.0/0"]));
    assert!(v4.contains(ip("255.255.255.255")) && v4.contains(ip("::ffff:1.2.3.4")));
    assert!(!v4.contains(ip("::1")));
    let v6 = PrefixSet::new(&networks(&["::/0"]));
    assert!(v6.contains(ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")) && v6.contains(ip("::")));
    assert!(!v6.contains(ip("1.2.3.4")) && !v6.contains(ip("::ffff:1.2.3.4")));
}

#[test]
fn overlapping_and_touching_networks_become_one_range_up_to_the_last_address() {
    let set = PrefixSet::new(&networks(&[
        "10.0.1.0/24",
        "10.0.0.0/24",
        "10.0.0.128/25",
        "255.255.255.255/32",
        "255.255.255.254/32",
        "255.255.255.0/24",
    ]));
    assert_eq!(set.v4.starts.len(), 2);
    assert!(set.contains(ip("10.0.1.255")) && set.contains(ip("255.255.255.255")));
    assert!(!set.contains(ip("10.0.2.0")));
}

#[test]
fn an_empty_set_holds_nothing() {
    assert!(PrefixSet::default().is_empty() && PrefixSet::new(&[]).is_empty());
    assert!(
        !PrefixSet::default().contains(ip("0.0.0.0")) && !DenySet::default().contains(ip("::"))
    );
}

#[test]
fn a_full_list_of_separate_networks_keeps_their_edges() {
    let list: Vec<IpNet> = (0..4096u32)
        .map(|n| IpNet::new(Ipv4Addr::from_bits(n << 12).into(), 24).unwrap())
        .collect();
    let set = PrefixSet::new(&list);
    assert_eq!(set.v4.starts.len(), 4096);
    assert!(set.contains(Ipv4Addr::from_bits((4095 << 12) + 255).into()));
    assert!(!set.contains(Ipv4Addr::from_bits((4095 << 12) + 256).into()));
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    // A small space, so that lists and questions meet.
    prop_oneof![
        (0u32..1024).prop_map(|n| IpAddr::V4(Ipv4Addr::from_bits(n))),
        (0u32..1024).prop_map(|n| IpAddr::V6(Ipv4Addr::from_bits(n).to_ipv6_mapped())),
        (0u128..1024).prop_map(|n| IpAddr::V6(Ipv6Addr::from_bits(n | 1 << 64))),
        (0u32..4).prop_map(|n| IpAddr::V4(Ipv4Addr::from_bits(u32::MAX - n))),
    ]
}

proptest! {
    #[test]
    fn a_set_says_what_a_scan_of_its_networks_says(
        list in proptest::collection::vec((any_address(), 0u8..12), 0..40),
        asked in any_address(),
    ) {
        let list: Vec<IpNet> = list
            .into_iter()
            .map(|(address, host_bits)| {
                let width = if address.is_ipv4() { 32 } else { 128 };
                IpNet::new(address, width - host_bits).unwrap()
            })
            .collect();
        let fold = |network: &IpNet| match network {
            IpNet::V6(v6) => match v6.addr().to_ipv4_mapped() {
                Some(v4) => IpNet::new(v4.into(), v6.prefix_len() - 96).unwrap(),
                None => *network,
            },
            IpNet::V4(_) => *network,
        };
        let scanned = list.iter().any(|network| fold(network).contains(&asked.to_canonical()));
        prop_assert_eq!(PrefixSet::new(&list).contains(asked), scanned);
        let addresses: Vec<IpAddr> = list.iter().map(IpNet::addr).collect();
        let exact = addresses.iter().any(|a| a.to_canonical() == asked.to_canonical());
        prop_assert_eq!(DenySet::new(&addresses).contains(asked), exact);
    }
}
