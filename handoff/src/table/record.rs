//! One record: plain values, and the words they are stored as.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use super::layout::{
    ATTEMPTS, BUSY, CHECKSUM, FLAGS, HEAD, Header, IDENTITY, IDENTITY_WORDS, PIPE, RECORD_WORDS,
    TOTAL, checksum, halves,
};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the upstream.
    ToUpstream = 0,
    /// From the upstream to the client.
    ToClient = 1,
}

impl Way {
    /// Both, in the order of the record's pairs.
    pub const BOTH: [Self; 2] = [Self::ToUpstream, Self::ToClient];
}

/// What a record says about its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is relayed (or frozen) by the table's owner.
    Open,
    /// Both streams were passed on in full; only the two closes are due.
    Finishing,
    /// It is being reset: a side broke, or it was cut.
    Doomed,
    /// Another process has offered it and may still own it.
    Offered,
    /// It is being offered to another process, which may own it already. Nothing moves.
    Leaving,
}

impl State {
    const FREE: u64 = 0;

    pub(super) fn word(self) -> u64 {
        match self {
            Self::Open => 1,
            Self::Finishing => 2,
            Self::Doomed => 3,
            Self::Offered => 4,
            Self::Leaving => 5,
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        match word {
            1 => Some(Self::Open),
            2 => Some(Self::Finishing),
            3 => Some(Self::Doomed),
            4 => Some(Self::Offered),
            5 => Some(Self::Leaving),
            _ => None,
        }
    }
}

/// What a direction is doing at this very moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Nothing: all its bytes are in the kernel.
    No,
    /// Bytes may be in user memory: a kill loses them, so the connection cannot go on.
    Memory,
    /// Inside a system call that moves bytes within the kernel. A kill loses none, but the call
    /// may have taken a socket's pending error, which then nobody else sees.
    Kernel,
}

impl Busy {
    pub(super) fn word(self) -> u64 {
        match self {
            Self::No => 0,
            Self::Memory => 1,
            Self::Kernel => 2,
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        match word {
            0 => Some(Self::No),
            1 => Some(Self::Memory),
            2 => Some(Self::Kernel),
            _ => None,
        }
    }
}

/// A rule (or listener) as later generations and other releases find it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RuleKey(pub u64);

/// A target as later generations and other releases find it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TargetKey(pub u64);

impl RuleKey {
    /// The key of a rule known by `text`, for example its literal `listen` text. XXH3, whose
    /// output is frozen, so every release gives the same.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
    }
}

impl TargetKey {
    /// The key of a target known by `text`, for example its configured address.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
    }
}

/// A socket: its number in the owner's table, and the kernel's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The descriptor's number.
    pub number: RawFd,
    /// `SO_COOKIE`: proves that the number still means this socket.
    pub cookie: u64,
}

/// The two ends of a pipe, as numbers in the owner's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeNumbers {
    /// The end read from.
    pub read: RawFd,
    /// The end written to.
    pub write: RawFd,
}

/// What does not change while a connection is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The client's socket.
    pub client: Endpoint,
    /// The upstream's socket.
    pub upstream: Endpoint,
    /// The rule it belongs to.
    pub rule: RuleKey,
    /// The target that serves it.
    pub target: TargetKey,
    /// The target's position in its rule, when it was chosen.
    pub target_index: u16,
    /// The configuration generation it was accepted under.
    pub generation: u64,
    /// When it was accepted, in nanoseconds of the monotonic clock.
    pub opened_at: u64,
    /// The client as policy sees it. Its IPv6 scope is not kept.
    pub peer: SocketAddr,
    /// How long both directions may be silent; kept in milliseconds.
    pub idle: Option<Duration>,
    /// How often it was adopted, counting only owners that died young.
    pub adoptions: u8,
    /// When its owner adopted it, in nanoseconds of the monotonic clock; 0 if it never was.
    pub adopted_at: u64,
}

/// What is known of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Track {
    /// What it is doing.
    pub busy: Busy,
    /// It moves bytes through a pipe.
    pub splices: bool,
    /// The source's FIN has been read.
    pub eof_seen: bool,
    /// The FIN has been passed on.
    pub fin_sent: bool,
    /// The pipe it holds; how much is in it, the kernel knows.
    pub pipe: Option<PipeNumbers>,
    /// Bytes handed to the destination. May be behind by the last write.
    pub total: u64,
}

/// A whole record, every value within its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What it says about the connection.
    pub state: State,
    /// Who and what it is.
    pub identity: Identity,
    /// From the client to the upstream.
    pub to_upstream: Track,
    /// From the upstream to the client.
    pub to_client: Track,
    /// How often a successor began to adopt it out of this table and did not say how it ended.
    pub attempts: u16,
    /// When the last one began, in milliseconds of the monotonic clock.
    pub attempted_at_ms: u64,
}

/// Why a record cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its owner died while filling it in.
    #[error("the record is half written")]
    Torn,
    /// Its identity does not have its checksum.
    #[error("the record's checksum is wrong")]
    Checksum,
    /// A value that no release writes.
    #[error("the record's {0} makes no sense")]
    Value(&'static str),
}

pub(super) const FLAG_SPLICES: u64 = 1;
pub(super) const FLAG_EOF_SEEN: u64 = 1 << 1;
pub(super) const FLAG_FIN_SENT: u64 = 1 << 2;

/// Beyond what the kernel gives out (`fs.nr_open` is at most 2^30 or so).
const MAX_NUMBER: u64 = 1 << 30;

const STATE_BITS: u32 = 8;

/// Sequence and state in one word: both are published by one store. An odd sequence means that
/// the identity is being written.
pub(super) fn head(sequence: u64, state: Option<State>) -> u64 {
    sequence << STATE_BITS | state.map_or(State::FREE, State::word)
}

pub(super) fn sequence(head: u64) -> u64 {
    head >> STATE_BITS
}

/// 0 is "none"; numbers are kept one higher.
pub(super) fn pipe_word(pipe: Option<PipeNumbers>) -> u64 {
    let half = |number: RawFd| u64::try_from(number).map_or(0, |number| number + 1);
    pipe.map_or(0, |pipe| half(pipe.read) << 32 | half(pipe.write))
}

fn number(word: u64) -> Option<RawFd> {
    if word < MAX_NUMBER { RawFd::try_from(word).ok() } else { None }
}

pub(super) fn attempts_word(count: u16, at_ms: u64) -> u64 {
    at_ms << 16 | u64::from(count)
}

impl Identity {
    /// The words `IDENTITY` of a record.
    pub(super) fn encode(&self) -> [u64; IDENTITY_WORDS] {
        let half = |number: RawFd| u64::from(number.cast_unsigned());
        let (family, address) = match self.peer.ip() {
            IpAddr::V4(address) => (4, u128::from(address.to_bits())),
            IpAddr::V6(address) => (6, address.to_bits()),
        };
        let [address_high, address_low] = halves(address);
        let idle = self.idle.map_or(0, |idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
        [
            half(self.client.number) << 32 | half(self.upstream.number),
            self.client.cookie,
            self.upstream.cookie,
            self.rule.0,
            self.target.0,
            self.generation,
            self.opened_at,
            address_high,
            address_low,
            u64::from(self.peer.port())
                | u64::from(self.target_index) << 16
                | u64::from(self.adoptions) << 32
                | family << 40,
            idle,
            self.adopted_at,
            0,
        ]
    }

    fn decode(words: &[u64; IDENTITY_WORDS]) -> Result<Self, Damage> {
        let [
            numbers,
            client,
            upstream,
            rule,
            target,
            generation,
            opened_at,
            high,
            low,
            packed,
            idle,
            adopted_at,
            _,
        ] = *words;
        let endpoint = |word: u64, cookie: u64| match number(word & u64::from(u32::MAX)) {
            Some(number) => Ok(Endpoint { number, cookie }),
            None => Err(Damage::Value("descriptor number")),
        };
        let [port_low, port_high, index_low, index_high, adoptions, family, 0, 0] =
            packed.to_le_bytes()
        else {
            return Err(Damage::Value("address"));
        };
        let bits = u128::from(high) << 64 | u128::from(low);
        let address = match family {
            4 => u32::try_from(bits).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))).ok(),
            6 => Some(IpAddr::V6(Ipv6Addr::from_bits(bits))),
            _ => None,
        };
        let Some(address) = address else { return Err(Damage::Value("address")) };
        let (client, upstream) = (endpoint(numbers >> 32, client)?, endpoint(numbers, upstream)?);
        if client.number == upstream.number || client.cookie == upstream.cookie {
            return Err(Damage::Value("pair of sockets"));
        }
        Ok(Self {
            client,
            upstream,
            rule: RuleKey(rule),
            target: TargetKey(target),
            target_index: u16::from_le_bytes([index_low, index_high]),
            generation,
            opened_at,
            peer: SocketAddr::new(address, u16::from_le_bytes([port_low, port_high])),
            idle: (idle != 0).then(|| Duration::from_millis(idle)),
            adoptions,
            adopted_at,
        })
    }
}

impl Track {
    fn decode(busy: u64, flags: u64, pipe: u64, total: u64) -> Result<Self, Damage> {
        if flags & !(FLAG_SPLICES | FLAG_EOF_SEEN | FLAG_FIN_SENT) != 0 {
            return Err(Damage::Value("flags"));
        }
        let pipe = match pipe {
            0 => None,
            word => {
                let half = |half: u64| half.checked_sub(1).and_then(number);
                match (half(word >> 32), half(word & u64::from(u32::MAX))) {
                    (Some(read), Some(write)) if read != write => Some(PipeNumbers { read, write }),
                    _ => return Err(Damage::Value("pipe")),
                }
            }
        };
        Ok(Self {
            busy: Busy::from_word(busy).ok_or(Damage::Value("busy mark"))?,
            splices: flags & FLAG_SPLICES != 0,
            eof_seen: flags & FLAG_EOF_SEEN != 0,
            fin_sent: flags & FLAG_FIN_SENT != 0,
            pipe,
            total,
        })
    }
}

impl Record {
    /// Reads a record out of its words. `None`: the record is free.
    pub(super) fn decode(
        words: &[u64; RECORD_WORDS],
        header: &Header,
        slot: u32,
    ) -> Result<Option<Self>, Damage> {
        let head = words[HEAD];
        if !sequence(head).is_multiple_of(2) {
            return Err(Damage::Torn);
        }
        let state = match head & ((1 << STATE_BITS) - 1) {
            State::FREE => return Ok(None),
            word => State::from_word(word).ok_or(Damage::Value("state"))?,
        };
        let mut identity = [0; IDENTITY_WORDS];
        identity.copy_from_slice(&words[IDENTITY]);
        if checksum(&identity, header.seed(slot)) != words[CHECKSUM] {
            return Err(Damage::Checksum);
        }
        let track = |way: Way| {
            let way = way as usize;
            Track::decode(
                words[BUSY + way],
                words[FLAGS + way],
                words[PIPE + way],
                words[TOTAL + way],
            )
        };
        let attempts = words[ATTEMPTS];
        Ok(Some(Self {
            state,
            identity: Identity::decode(&identity)?,
            to_upstream: track(Way::ToUpstream)?,
            to_client: track(Way::ToClient)?,
            attempts: u16::try_from(attempts & 0xffff).unwrap_or(u16::MAX),
            attempted_at_ms: attempts >> 16,
        }))
    }

    /// What is known of a direction.
    #[must_use]
    pub fn track(&self, way: Way) -> &Track {
        match way {
            Way::ToUpstream => &self.to_upstream,
            Way::ToClient => &self.to_client,
        }
    }
}
