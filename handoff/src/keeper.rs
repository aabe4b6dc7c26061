//! What a keeper is told and what it answers.
//!
//! A keeper is a tiny process that shares a worker's descriptor table and outlives it. It may
//! belong to an older release than whoever asks it, so its wire is frozen here. Why not the
//! protocol of `frame`: the keeper was copied out of a running process and may not allocate, so
//! every packet has to be read and written in place, in buffers of a fixed size.
//!
//! ```text
//!  0  4  magic "BKPR"     8  8  nonce: an answer carries its question's
//!  4  2  version         16     operands, 32-bit words, little endian
//!  6  2  operation
//! ```
//! One question at a time, one answer each. Descriptors ride on the answer to a send.
//!
//! | question | operands | answer |
//! |---|---|---|
//! | 1 list | first number | 0x81: next number (0: no more), then {number, cookie low, high} |
//! | 2 send | numbers | 0x82: those that are open, each with its descriptor |
//! | 3 reset | numbers | 0x83: how many were reset |
//! | 4 exit | | none: the end of the stream |
//!
//! 0x8e, errno: the system call failed. 0x8f: the worker lives, so nobody else may touch its
//! connections.

mod client;

pub use client::{Held, KeeperClient, KeeperError};

use std::os::fd::RawFd;

const MAGIC: [u8; 4] = *b"BKPR";
const VERSION: u16 = 1;
const HEADER: usize = 16;
const OPERAND: usize = 4;
const LISTED: usize = 3 * OPERAND;

/// Most numbers in one question.
pub const MAX_NUMBERS: usize = 200;
/// Most sockets in one answer to a list.
pub const MAX_LISTED: usize = 1024;
/// Longest question, in bytes.
pub const MAX_QUESTION: usize = HEADER + MAX_NUMBERS * OPERAND;
/// Longest answer, in bytes.
pub const MAX_ANSWER: usize = HEADER + OPERAND + MAX_LISTED * LISTED;

const LIST: u16 = 1;
const SEND: u16 = 2;
const RESET: u16 = 3;
const EXIT: u16 = 4;
const ANSWER_LISTED: u16 = 0x81;
const ANSWER_SENT: u16 = 0x82;
const ANSWER_RESET: u16 = 0x83;
const ANSWER_FAILED: u16 = 0x8e;
const ANSWER_ALIVE: u16 = 0x8f;

/// What a keeper is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question<'a> {
    /// Which TCP connections are there, from this number on?
    List(u32),
    /// Send these descriptors.
    Send(Numbers<'a>),
    /// Reset these TCP connections.
    Reset(Numbers<'a>),
    /// Let go of everything.
    Exit,
}

/// A question with what ties the answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Repeated by the answer.
    pub nonce: u64,
    /// What is asked.
    pub question: Question<'a>,
}

/// Descriptor numbers in the keeper's table, as they travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    /// The numbers in order; negative ones are what they are and name nothing.
    pub fn iter(&self) -> impl Iterator<Item = RawFd> {
        self.0.as_chunks::<OPERAND>().0.iter().map(|bytes| RawFd::from_le_bytes(*bytes))
    }
}

impl<'a> Asked<'a> {
    /// Reads a question. `None`: it is none that this release knows.
    #[must_use]
    pub fn decode(packet: &'a [u8]) -> Option<Self> {
        let (nonce, operation, operands) = split(packet)?;
        let numbers = || {
            let whole = operands.len().is_multiple_of(OPERAND);
            (whole && operands.len() <= MAX_NUMBERS * OPERAND).then_some(Numbers(operands))
        };
        let question = match operation {
            LIST => Question::List(u32::from_le_bytes(operands.try_into().ok()?)),
            SEND => Question::Send(numbers()?),
            RESET => Question::Reset(numbers()?),
            EXIT if operands.is_empty() => Question::Exit,
            _ => return None,
        };
        Some(Self { nonce, question })
    }
}

/// A packet being written in place; what does not fit is left out and told so.
#[derive(Debug)]
pub struct Buffer<const SIZE: usize> {
    bytes: [u8; SIZE],
    len: usize,
}

impl<const SIZE: usize> Buffer<SIZE> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: [0; SIZE], len: 0 }
    }

    /// What has been written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn begin(&mut self, operation: u16, nonce: u64) {
        self.len = 0;
        self.push(&MAGIC);
        self.push(&VERSION.to_le_bytes());
        self.push(&operation.to_le_bytes());
        self.push(&nonce.to_le_bytes());
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.len.saturating_add(bytes.len());
        match self.bytes.get_mut(self.len..end) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len = end;
                true
            }
            None => false,
        }
    }
}

impl<const SIZE: usize> Default for Buffer<SIZE> {
    fn default() -> Self {
        Self::new()
    }
}

/// An answer being written.
pub type AnswerBuffer = Buffer<MAX_ANSWER>;

impl AnswerBuffer {
    /// Begins the answer to a list, see [`AnswerBuffer::listed`].
    pub fn list(&mut self, nonce: u64) {
        self.begin(ANSWER_LISTED, nonce);
        self.push(&[0; OPERAND]);
    }

    /// Adds a connection; `false`: this answer is full, and the number is where to ask on.
    pub fn listed(&mut self, number: RawFd, cookie: u64) -> bool {
        let full = self.len + LISTED > MAX_ANSWER;
        if full {
            if let Some(next) = self.bytes.get_mut(HEADER..HEADER + OPERAND) {
                next.copy_from_slice(&number.to_le_bytes());
            }
            return false;
        }
        self.push(&number.to_le_bytes()) && self.push(&cookie.to_le_bytes())
    }

    /// Begins the answer to a send, see [`AnswerBuffer::number`].
    pub fn sent(&mut self, nonce: u64) {
        self.begin(ANSWER_SENT, nonce);
    }

    /// Adds the number of a descriptor that travels with the answer.
    pub fn number(&mut self, number: RawFd) {
        self.push(&number.to_le_bytes());
    }

    /// So many connections were reset.
    pub fn reset(&mut self, nonce: u64, count: u32) {
        self.begin(ANSWER_RESET, nonce);
        self.push(&count.to_le_bytes());
    }

    /// The system call failed with this code.
    pub fn failed(&mut self, nonce: u64, errno: i32) {
        self.begin(ANSWER_FAILED, nonce);
        self.push(&errno.to_le_bytes());
    }

    /// The worker is not dead.
    pub fn alive(&mut self, nonce: u64) {
        self.begin(ANSWER_ALIVE, nonce);
    }
}

type QuestionBuffer = Buffer<MAX_QUESTION>;

impl QuestionBuffer {
    fn ask(&mut self, nonce: u64, operation: u16, operands: &[RawFd]) {
        self.begin(operation, nonce);
        for operand in operands {
            self.push(&operand.to_le_bytes());
        }
    }
}

/// What a keeper answered.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Listed { next: u32, held: Vec<Held> },
    Sent(Vec<RawFd>),
    Reset(u32),
    Failed(i32),
    Alive,
}

impl Answer {
    /// The nonce and the answer; `None` when it is no answer.
    fn decode(packet: &[u8]) -> Option<(u64, Self)> {
        let (nonce, operation, operands) = split(packet)?;
        let one = || Some(i32::from_le_bytes(operands.try_into().ok()?));
        let answer = match operation {
            ANSWER_LISTED => {
                let (next, rest) = operands.split_first_chunk::<OPERAND>()?;
                let (entries, []) = rest.as_chunks::<LISTED>() else { return None };
                let held = entries.iter().map(|entry| {
                    let [n0, n1, n2, n3, cookie @ ..] = *entry;
                    let number = RawFd::from_le_bytes([n0, n1, n2, n3]);
                    Held { number, cookie: u64::from_le_bytes(cookie) }
                });
                Self::Listed { next: u32::from_le_bytes(*next), held: held.collect() }
            }
            ANSWER_SENT => {
                let (_, []) = operands.as_chunks::<OPERAND>() else { return None };
                Self::Sent(Numbers(operands).iter().collect())
            }
            ANSWER_RESET => Self::Reset(one()?.cast_unsigned()),
            ANSWER_FAILED => Self::Failed(one()?),
            ANSWER_ALIVE if operands.is_empty() => Self::Alive,
            _ => return None,
        };
        Some((nonce, answer))
    }
}

/// Nonce, operation and operands.
fn split(packet: &[u8]) -> Option<(u64, u16, &[u8])> {
    let ([m0, m1, m2, m3, v0, v1, o0, o1, nonce @ ..], operands) =
        packet.split_first_chunk::<HEADER>()?;
    let known = [*m0, *m1, *m2, *m3] == MAGIC && u16::from_le_bytes([*v0, *v1]) == VERSION;
    known.then(|| (u64::from_le_bytes(*nonce), u16::from_le_bytes([*o0, *o1]), operands))
}

#[cfg(test)]
mod tests;
