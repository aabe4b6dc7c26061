//! What load generator and upstream say to each other; bytes only, no sockets.
//!
//! The first byte of a connection decides:
//!
//! | first byte | then | end |
//! |---|---|---|
//! | `E` | anything; all of it, the `E` too, is echoed | the client's FIN, answered by one |
//! | `C` | a length (u32, little endian), filling; echoed once | the upstream closes first |
//! | `B` | the rest of a [`Hello`], then frames in either direction | `FIN` up, `END` down |
//!
//! A PROXY header (version 1 or 2) before it is skipped. Frames carry their length, so that a
//! stream can end inside the protocol: closing one half is a test of its own, and some relays
//! fail it. A frame's payload is the stream's [`Pattern`] at the position where it lies, headers
//! not counted.

use crate::pattern::Pattern;

/// Bytes of a [`Hello`].
pub(crate) const HELLO: usize = 32;
/// Bytes of a frame header.
pub(crate) const HEADER: usize = 8;
/// The longest payload of one frame, and so the largest single write.
pub(crate) const MAX_FRAME: u32 = 1 << 20;
/// First bytes of a session with frames.
const MAGIC: [u8; 4] = *b"BTN1";
const MARK: [u8; 3] = [0xBA, 0x70, 0x0F];
/// Makes the two directions of a session differ.
const DOWN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Which way the payload flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Direction {
    /// From the upstream to the client.
    Down,
    /// From the client to the upstream.
    Up,
    /// Both at once.
    Both,
}

impl Direction {
    pub(crate) fn up(self) -> bool {
        self != Self::Down
    }
    pub(crate) fn down(self) -> bool {
        self != Self::Up
    }
}

/// What a session with frames will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) direction: Direction,
    /// Payload of the frames, taken in turn; each is one write.
    pub(crate) writes: [u32; 2],
    /// Pause between two frames; 0 sends as fast as it goes.
    pub(crate) interval_us: u32,
    pub(crate) seed: u64,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = u8::from(self.direction.up()) | u8::from(self.direction.down()) << 1;
        out[8..12].copy_from_slice(&self.writes[0].to_le_bytes());
        out[12..16].copy_from_slice(&self.writes[1].to_le_bytes());
        out[16..20].copy_from_slice(&self.interval_us.to_le_bytes());
        out[24..32].copy_from_slice(&self.seed.to_le_bytes());
        out
    }

    /// `None` when these are not the bytes of a hello, or it asks for impossible frames.
    pub(crate) fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let direction = match bytes[4] {
            1 => Direction::Up,
            2 => Direction::Down,
            3 => Direction::Both,
            _ => return None,
        };
        let writes = [word(8), word(12)];
        let fits = writes.iter().all(|w| (1..=MAX_FRAME).contains(w));
        (bytes[..4] == MAGIC && fits).then(|| Self {
            direction,
            writes,
            interval_us: word(16),
            seed: u64::from(word(24)) | u64::from(word(28)) << 32,
        })
    }

    /// The pattern of what the client sends.
    pub(crate) fn up_pattern(&self) -> Pattern {
        Pattern::new(self.seed)
    }

    /// The pattern of what the upstream sends.
    pub(crate) fn down_pattern(&self) -> Pattern {
        Pattern::new(self.seed ^ DOWN)
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    /// The client has sent everything.
    Fin,
    /// The upstream has sent everything; the payload is a [`Summary`].
    End,
}

/// A frame's header.
pub(crate) fn header(kind: Kind, len: u32) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..4].copy_from_slice(&len.to_le_bytes());
    out[4] = match kind {
        Kind::Data => 0,
        Kind::Fin => 1,
        Kind::End => 2,
    };
    out[5..].copy_from_slice(&MARK);
    out
}

fn parse(bytes: [u8; HEADER]) -> Option<(Kind, u32)> {
    let kind = match bytes[4] {
        0 => Kind::Data,
        1 => Kind::Fin,
        2 => Kind::End,
        _ => return None,
    };
    let len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (bytes[5..] == MARK && len <= MAX_FRAME).then_some((kind, len))
}

/// What the upstream saw of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Payload bytes received and found right.
    pub(crate) received: u64,
    /// Pieces that were not what they had to be.
    pub(crate) corrupt: u64,
    /// Longest time between two arrivals.
    pub(crate) gap_us: u64,
    /// Payload bytes sent.
    pub(crate) sent: u64,
}

const SUMMARY: u32 = 32;

impl Summary {
    /// The whole `END` frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = header(Kind::End, SUMMARY).to_vec();
        for word in [self.received, self.corrupt, self.gap_us, self.sent] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).map(|w| {
            let mut word = [0; 8];
            word.copy_from_slice(w);
            u64::from_le_bytes(word)
        });
        let mut next = || words.next();
        Some(Self { received: next()?, corrupt: next()?, gap_us: next()?, sent: next()? })
    }
}

/// Takes one direction of a session apart and checks every byte of it.
#[derive(Debug)]
pub(crate) struct Checker {
    pattern: Pattern,
    head: [u8; HEADER],
    have: usize,
    frame: Option<(Kind, usize)>,
    summary: Vec<u8>,
    position: u64,
    corrupt: u64,
    state: Progress,
}

/// How far a direction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More is to come.
    Open,
    /// `FIN` seen.
    Finished,
    /// `END` seen.
    Ended(Summary),
    /// A header made no sense: nothing after it can be told apart.
    Lost,
}

impl Checker {
    pub(crate) fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            head: [0; HEADER],
            have: 0,
            frame: None,
            summary: Vec::new(),
            position: 0,
            corrupt: 0,
            state: Progress::Open,
        }
    }

    /// Payload bytes so far.
    pub(crate) fn received(&self) -> u64 {
        self.position
    }

    /// Pieces found wrong so far, a lost stream included.
    pub(crate) fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Takes the next bytes of the stream, cut anywhere.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Progress {
        while !bytes.is_empty() && self.state == Progress::Open {
            bytes = match self.frame {
                None => self.feed_header(bytes),
                Some((kind, left)) => self.feed_payload(kind, left, bytes),
            };
        }
        if !bytes.is_empty() && self.state != Progress::Lost {
            self.corrupt += 1; // something after the end
        }
        self.state
    }

    fn feed_header<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let taken = (HEADER - self.have).min(bytes.len());
        self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
        self.have += taken;
        if self.have == HEADER {
            self.have = 0;
            match parse(self.head) {
                None => {
                    self.corrupt += 1;
                    self.state = Progress::Lost;
                }
                Some((Kind::Fin, _)) => self.state = Progress::Finished,
                Some((kind @ (Kind::Data | Kind::End), len)) => {
                    self.frame = (len > 0).then_some((kind, len as usize));
                }
            }
        }
        &bytes[taken..]
    }

    fn feed_payload<'a>(&mut self, kind: Kind, left: usize, bytes: &'a [u8]) -> &'a [u8] {
        let (piece, rest) = bytes.split_at(left.min(bytes.len()));
        if kind == Kind::End {
            self.summary.extend_from_slice(piece);
        } else {
            if !self.pattern.matches(self.position, piece) {
                self.corrupt += 1;
            }
            self.position += piece.len() as u64;
        }
        let left = left - piece.len();
        self.frame = (left > 0).then_some((kind, left));
        if left == 0 && kind == Kind::End {
            self.state = Summary::decode(&self.summary).map_or(Progress::Lost, Progress::Ended);
        }
        rest
    }
}

/// The length of the PROXY header at the start of `bytes`: `Some(0)` when there is none,
/// `None` when more bytes are needed to tell.
pub(crate) fn proxy_header(bytes: &[u8]) -> Option<usize> {
    const V1: &[u8] = b"PROXY ";
    const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let could_be = |sign: &[u8]| bytes.iter().zip(sign).all(|(a, b)| a == b);
    if could_be(V1) {
        let end = bytes.windows(2).position(|w| w == b"\r\n")?;
        Some(end + 2)
    } else if could_be(V2) {
        let length = bytes.get(14..16)?;
        let whole = 16 + usize::from(length[0]) * 256 + usize::from(length[1]);
        (bytes.len() >= whole).then_some(whole)
    } else {
        Some(0)
    }
}

#[cfg(test)]
mod tests;
