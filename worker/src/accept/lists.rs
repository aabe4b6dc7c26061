//! Who may connect: address lists that stay cheap at their largest.
//!
//! Networks become sorted, disjoint ranges of one family each; a look-up is one binary search,
//! about a dozen comparisons at the configured maximum of 4096 entries. A trie would save none
//! of them at this size and cost memory. IPv4-mapped IPv6 addresses and networks count as IPv4
//! on both sides, so a client on a `[::]` listener meets the same lists as on an IPv4 one.
//! An IPv6 network that is wider than the mapped block, such as `::/0`, holds no IPv4 client.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ipnet::IpNet;

/// A set of networks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrefixSet {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// A set of single addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DenySet(PrefixSet);

/// What a rule says about an address: the denied ones first, then who is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessPolicy {
    deny: DenySet,
    allow: PrefixSet,
}

/// Inclusive ranges, sorted, with a gap between any two. Starts and ends are apart because a
/// search only touches starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Ranges<T> {
    starts: Box<[T]>,
    ends: Box<[T]>,
}

impl PrefixSet {
    /// Host bits of a network are ignored.
    #[must_use]
    pub fn new(networks: &[IpNet]) -> Self {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for network in networks {
            match (network.network().to_canonical(), network.broadcast().to_canonical()) {
                (IpAddr::V4(first), IpAddr::V4(last)) => v4.push((first.to_bits(), last.to_bits())),
                _ => {
                    if let IpNet::V6(network) = network {
                        v6.push((network.network().to_bits(), network.broadcast().to_bits()));
                    }
                }
            }
        }
        Self { v4: Ranges::new(v4), v6: Ranges::new(v6) }
    }

    /// Whether some network holds the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.contains(address.to_bits()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits()),
        }
    }

    /// Whether it holds no address at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.starts.is_empty() && self.v6.starts.is_empty()
    }
}

impl DenySet {
    /// The set of exactly these addresses.
    #[must_use]
    pub fn new(addresses: &[IpAddr]) -> Self {
        let single: Vec<IpNet> = addresses.iter().copied().map(IpNet::from).collect();
        Self(PrefixSet::new(&single))
    }

    /// Whether the address is one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }
}

impl AccessPolicy {
    /// An empty allow list admits everyone who is not denied.
    #[must_use]
    pub fn new(denied: &[IpAddr], allowed: &[IpNet]) -> Self {
        Self { deny: DenySet::new(denied), allow: PrefixSet::new(allowed) }
    }

    /// Whether a client with this address may connect.
    #[must_use]
    pub fn admits(&self, address: IpAddr) -> bool {
        !self.deny.contains(address) && (self.allow.is_empty() || self.allow.contains(address))
    }
}

trait Bits: Copy + Ord {
    /// The next address, if there is one.
    fn successor(self) -> Option<Self>;
}

impl Bits for u32 {
    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Bits for u128 {
    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl<T: Bits> Ranges<T> {
    fn new(mut ranges: Vec<(T, T)>) -> Self {
        ranges.sort_unstable();
        let mut starts: Vec<T> = Vec::with_capacity(ranges.len());
        let mut ends: Vec<T> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match ends.last_mut() {
                // No successor: the last range already reaches the end of all addresses.
                Some(last) if last.successor().is_none_or(|next| start <= next) => {
                    *last = end.max(*last);
                }
                _ => {
                    starts.push(start);
                    ends.push(end);
                }
            }
        }
        Self { starts: starts.into(), ends: ends.into() }
    }

    fn contains(&self, address: T) -> bool {
        let after = self.starts.partition_point(|start| *start <= address);
        after
            .checked_sub(1)
            .and_then(|index| self.ends.get(index))
            .is_some_and(|end| address <= *end)
    }
}
