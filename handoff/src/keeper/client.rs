//! Whoever asks a keeper.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;

use super::{Answer, EXIT, LIST, MAX_ANSWER, MAX_LISTED, MAX_NUMBERS, QuestionBuffer, RESET, SEND};
use crate::channel::Channel;

/// Most connections a keeper is believed to hold.
const MAX_HELD: usize = 1 << 20;

static NONCES: AtomicU64 = AtomicU64::new(1);

/// A TCP connection that a keeper holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Its number in the keeper's table.
    pub number: RawFd,
    /// Its `SO_COOKIE`.
    pub cookie: u64,
}

/// Why a keeper is of no help.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// It has ended.
    #[error("the keeper is gone")]
    Closed,
    /// It does as it should: its worker lives.
    #[error("the keeper's worker is alive")]
    WorkerAlive,
    /// A system call of the keeper failed.
    #[error("the keeper failed: {0}")]
    Keeper(#[source] io::Error),
    /// What it says is no answer.
    #[error("the keeper's answer makes no sense")]
    Malformed,
    /// Asking or hearing failed on this side.
    #[error("cannot talk to the keeper: {0}")]
    Io(#[source] io::Error),
}

/// Asks one keeper. Nobody else may ask it at the same time; questions of a process that died
/// while asking do no harm, since stale answers are told apart by their nonce.
///
/// No operation has a time limit of its own. One that is dropped half way leaves a stale answer,
/// which the next one skips.
#[derive(Debug)]
pub struct KeeperClient {
    channel: Channel,
}

impl KeeperClient {
    /// Takes over the other end of a keeper's socket. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When it is not a SEQPACKET Unix socket, or cannot be registered.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { channel: Channel::new(socket)? })
    }

    /// All TCP connections in the table, listeners not included.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub async fn list(&mut self) -> Result<Vec<Held>, KeeperError> {
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            let operand = RawFd::try_from(from).map_err(|_| KeeperError::Malformed)?;
            let (answer, _) = self.ask(LIST, &[operand]).await?;
            let Answer::Listed { next, held } = answer else { return Err(KeeperError::Malformed) };
            if held.len() > MAX_LISTED || all.len() + held.len() > MAX_HELD {
                return Err(KeeperError::Malformed);
            }
            all.extend(held);
            match next {
                0 => return Ok(all),
                next if next > from => from = next,
                _ => return Err(KeeperError::Malformed),
            }
        }
    }

    /// Copies of at most [`MAX_NUMBERS`] descriptors; of more, the rest is not asked for. Those
    /// that are not open there, or that this process's limit of descriptors does not allow, are
    /// missing from the answer.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub async fn fetch(&mut self, numbers: &[RawFd]) -> Result<Vec<(RawFd, OwnedFd)>, KeeperError> {
        let (answer, fds) = self.ask(SEND, numbers).await?;
        match answer {
            // When some were lost on the way, those that arrived are the first ones.
            Answer::Sent(sent) if sent.len() >= fds.len() => {
                Ok(sent.into_iter().zip(fds).collect())
            }
            Answer::Sent(_) | Answer::Listed { .. } | Answer::Reset(_) => {
                Err(KeeperError::Malformed)
            }
            Answer::Failed(_) | Answer::Alive => Err(KeeperError::Malformed),
        }
    }

    /// Resets connections, whoever else has copies of them; the answer is how many were.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub async fn reset(&mut self, numbers: &[RawFd]) -> Result<u32, KeeperError> {
        let mut done = 0;
        for batch in numbers.chunks(MAX_NUMBERS) {
            let (answer, _) = self.ask(RESET, batch).await?;
            let Answer::Reset(count) = answer else { return Err(KeeperError::Malformed) };
            done += count;
        }
        Ok(done)
    }

    /// Ends the keeper and waits until it has let go of its socket.
    ///
    /// # Errors
    /// [`KeeperError`]; that it had ended already is none.
    pub async fn exit(mut self) -> Result<(), KeeperError> {
        match self.ask(EXIT, &[]).await {
            Err(KeeperError::Closed) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(KeeperError::Malformed),
        }
    }

    async fn ask(
        &mut self,
        operation: u16,
        operands: &[RawFd],
    ) -> Result<(Answer, Vec<OwnedFd>), KeeperError> {
        // Never used before, in this process or by another that may have asked before it.
        let count = NONCES.fetch_add(1, Ordering::Relaxed);
        let nonce = u64::from(std::process::id()) << 32 | count & u64::from(u32::MAX);
        let mut question = QuestionBuffer::new();
        question.ask(nonce, operation, operands);
        self.channel.send(question.bytes(), &[]).await.map_err(failed)?;
        loop {
            let (bytes, packet) = self.channel.recv_packet(MAX_ANSWER).await.map_err(failed)?;
            if packet.len == 0 {
                return Err(KeeperError::Closed);
            }
            if packet.cut {
                return Err(KeeperError::Malformed);
            }
            match Answer::decode(&bytes) {
                Some((other, _)) if other != nonce => {}
                Some((_, Answer::Failed(errno))) => {
                    return Err(KeeperError::Keeper(io::Error::from_raw_os_error(errno)));
                }
                Some((_, Answer::Alive)) => return Err(KeeperError::WorkerAlive),
                Some((_, answer)) => return Ok((answer, packet.fds)),
                None => return Err(KeeperError::Malformed),
            }
        }
    }
}

impl AsFd for KeeperClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn failed(error: io::Error) -> KeeperError {
    match error.raw_os_error() {
        Some(code) if code == Errno::EPIPE as i32 || code == Errno::ECONNRESET as i32 => {
            KeeperError::Closed
        }
        _ => KeeperError::Io(error),
    }
}
