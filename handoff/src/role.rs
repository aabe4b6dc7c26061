//! The typed ends of a control channel: who may say what, and what travels with it.
//!
//! A message that cannot be taken never reaches the caller half-checked and never ends the
//! process: [`End::recv`] answers the sender with a `Nak` (if the message was mandatory), closes
//! its descriptors and returns the [`Fault`]. The channel can be used on. An unknown optional
//! message is skipped without a word.

use crate::bundle::Bundle;
use crate::channel::{Channel, Raw};
use crate::fault::{Fault, RecvError, SendError};
use crate::faults::{self, Stage};
use crate::frame::{Header, Kind, MAX_BODY, MAX_FDS, MAX_INLINE, Place, Transaction};
use crate::memfd::seal;
use crate::message::{Message, Nak, Peer, ToSupervisor, ToWorker, name, since};
use crate::version::{Version, VersionRange, ours};
use nix::errno::Errno;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The supervisor's end: says [`ToWorker`], hears [`ToSupervisor`].
pub type SupervisorEnd = End<ToWorker, ToSupervisor>;
/// The worker's end: says [`ToSupervisor`], hears [`ToWorker`].
pub type WorkerEnd = End<ToSupervisor, ToWorker>;

/// One of two workers between which connections move.
pub type PeerEnd = End<Peer, Peer>;

/// One end of a control channel that says `Out` and hears `In`.
///
/// `send` and `recv` may be dropped at any await: a message is sent or taken completely or not at
/// all. Neither has a time limit of its own.
#[derive(Debug)]
pub struct End<Out, In> {
    channel: Channel,
    speaks: VersionRange,
    agreed: OnceLock<Version>,
    next: AtomicU64,
    /// A refusal that the peer and the caller do not know of yet.
    untold: Mutex<Option<Refused>>,
    roles: PhantomData<fn(Out) -> In>,
}

#[derive(Debug)]
struct Refused {
    transaction: Transaction,
    kind: Kind,
    fault: Fault,
}

/// A message with what travelled with it.
#[derive(Debug)]
pub struct Received<M> {
    /// What was said.
    pub message: M,
    /// Its descriptors, in the order of its manifest: number and kind are checked, all CLOEXEC.
    pub fds: Vec<OwnedFd>,
    /// The conversation it belongs to; an answer names it.
    pub transaction: Transaction,
}

impl SupervisorEnd {
    /// Sends a message with the descriptors its type asks for; the caller keeps its own.
    /// Returns the transaction that the worker's answer will name.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub async fn send(
        &self,
        message: &ToWorker,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Transaction, SendError> {
        let transaction = Transaction(self.next.fetch_add(1, Ordering::Relaxed));
        self.send_as(transaction, message, fds).await?;
        Ok(transaction)
    }
}

impl WorkerEnd {
    /// Says something that was not asked for.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub async fn send(&self, message: &ToSupervisor) -> Result<(), SendError> {
        self.reply(Transaction::NONE, message).await
    }

    /// Answers the message that came with `transaction`.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub async fn reply(
        &self,
        transaction: Transaction,
        message: &ToSupervisor,
    ) -> Result<(), SendError> {
        self.send_as(transaction, message, &[]).await
    }

    /// As [`reply`](Self::reply), with the descriptors the message's type asks for; the caller
    /// keeps its own.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub async fn hand(
        &self,
        transaction: Transaction,
        message: &ToSupervisor,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), SendError> {
        self.send_as(transaction, message, fds).await
    }
}

impl PeerEnd {
    /// Sends a message with the descriptors its type asks for; the caller keeps its own.
    /// Returns the transaction that an answer will name.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub async fn send(
        &self,
        message: &Peer,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Transaction, SendError> {
        let transaction = Transaction(self.next.fetch_add(1, Ordering::Relaxed));
        self.send_as(transaction, message, fds).await?;
        Ok(transaction)
    }

    /// Says something about `transaction`: an answer, or how an offer ends.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub async fn say(&self, transaction: Transaction, message: &Peer) -> Result<(), SendError> {
        self.send_as(transaction, message, &[]).await
    }
}

#[allow(private_bounds, reason = "the set of message enums is closed")]
impl<Out: Message, In: Message> End<Out, In> {
    /// Takes over one end of a pair. Must be called inside a tokio runtime (any flavour).
    ///
    /// # Errors
    /// When `fd` is not a SEQPACKET Unix socket, or cannot be registered.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Self::speaking(fd, ours())
    }

    /// As [`End::new`], on a channel whose two sides have greeted each other before: after the
    /// process replaced itself, or was adopted.
    ///
    /// # Errors
    /// As [`End::new`], and when this release does not speak `agreed`.
    pub fn resume(fd: OwnedFd, agreed: Version) -> io::Result<Self> {
        let ours = ours();
        if !ours.contains(agreed) {
            let text = format!("the channel uses protocol {agreed}, this release speaks {ours}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let end = Self::new(fd)?;
        end.agreed.get_or_init(|| agreed);
        Ok(end)
    }

    fn speaking(fd: OwnedFd, speaks: VersionRange) -> io::Result<Self> {
        Ok(Self {
            channel: Channel::new(fd)?,
            speaks,
            agreed: OnceLock::new(),
            next: AtomicU64::new(1),
            untold: Mutex::new(None),
            roles: PhantomData,
        })
    }

    /// The protocol agreed on, once the peer has greeted.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.agreed.get().copied()
    }

    async fn send_as(
        &self,
        transaction: Transaction,
        message: &Out,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), SendError> {
        let kind = message.kind();
        let versions = match self.version() {
            Some(agreed) => VersionRange::only(agreed),
            None if kind.is_hello() || kind.is_nak() => self.speaks,
            None => return Err(SendError::HelloExpected(kind)),
        };
        if let Some(agreed) = self.version().filter(|agreed| *agreed < message.since()) {
            return Err(SendError::NotInProtocol { kind, agreed });
        }
        let carries = message.carries();
        if !carries.allows(fds.len()) || fds.len() > MAX_FDS {
            let (least, most) = (carries.least, carries.most.min(MAX_FDS));
            return Err(SendError::Manifest { kind, least, most, given: fds.len() });
        }
        let body = message.encode().map_err(|source| SendError::Body { kind, source })?;
        if body.len() > MAX_BODY {
            return Err(SendError::TooLong { kind, len: body.len() });
        }
        let mut fds = fds.to_vec();
        let memfd = if body.len() > MAX_INLINE {
            Some(seal(&body).map_err(|source| SendError::Io { kind, source })?)
        } else {
            None
        };
        fds.extend(memfd.as_ref().map(|memfd| memfd.as_fd()));
        let header = Header {
            versions,
            kind,
            mandatory: message.mandatory(),
            place: if memfd.is_some() { Place::Memfd } else { Place::Inline },
            body_len: body.len(),
            transaction,
            fds: fds.len() + faults::message(kind, Stage::Due),
        };
        let mut packet = header.encode().to_vec();
        if memfd.is_none() {
            packet.extend_from_slice(&body);
        }
        drop(body);
        self.channel.send(&packet, &fds).await.map_err(|source| match source.raw_os_error() {
            Some(code) if code == Errno::EPIPE as i32 || code == Errno::ECONNRESET as i32 => {
                SendError::Closed(kind)
            }
            Some(code) if code == Errno::ETOOMANYREFS as i32 => SendError::TooManyInFlight(kind),
            _ => SendError::Io { kind, source },
        })?;
        faults::message(kind, Stage::Sent);
        Ok(())
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`RecvError::Closed`] when the peer is gone; [`RecvError::Refused`] when one message was
    /// not taken (see the module's head): call again.
    pub async fn recv(&self) -> Result<Received<In>, RecvError> {
        loop {
            if let Some(fault) = self.tell_refusal().await {
                return Err(RecvError::Refused(fault));
            }
            let raw = self.channel.recv().await?;
            let Header { kind, mandatory, transaction, .. } = raw.header;
            match self.take(raw) {
                Ok(received) => return Ok(received),
                Err(Fault::UnknownType(_)) if !mandatory => {}
                Err(fault) if !mandatory => return Err(RecvError::Refused(fault)),
                Err(fault) => {
                    // Kept until it is told: this future may be dropped while it waits for room.
                    let refused = Refused { transaction, kind, fault };
                    *self.untold.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
                }
            }
        }
    }

    /// The next message if one is there: for what a peer that is dead has said before.
    ///
    /// # Errors
    /// As [`End::recv`]; a refusal is not told to the peer.
    pub fn try_recv(&self) -> Result<Option<Received<In>>, RecvError> {
        while let Some(raw) = self.channel.try_recv()? {
            let mandatory = raw.header.mandatory;
            match self.take(raw) {
                Ok(received) => return Ok(Some(received)),
                Err(Fault::UnknownType(_)) if !mandatory => {}
                Err(fault) => return Err(RecvError::Refused(fault)),
            }
        }
        Ok(None)
    }

    /// Tells the peer about a message that was not taken.
    async fn tell_refusal(&self) -> Option<Fault> {
        let slot = || self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        let (transaction, nak) = {
            let slot = slot();
            let refused = slot.as_ref()?;
            let nak = Nak { kind: refused.kind.0, reason: refused.fault.to_string() };
            (refused.transaction, nak)
        };
        // A failure shows in the next `recv` too; what the caller needs to know now is the fault.
        let _ = self.send_as(transaction, &Out::nak(nak), &[]).await;
        slot().take().map(|refused| refused.fault)
    }

    /// Every check of one message, cheapest first; what fails drops the rest and so closes it.
    fn take(&self, raw: Raw) -> Result<Received<In>, Fault> {
        let Raw { header, inline, fds, fds_lost } = raw;
        let kind = header.kind;
        let agreed = match self.version() {
            Some(agreed) if header.versions.contains(agreed) => agreed,
            Some(agreed) => {
                return Err(Fault::OtherVersion { kind, agreed, found: header.versions });
            }
            None => self.speaks.negotiate(header.versions)?,
        };
        if !kind.belongs_to(In::DIRECTION) {
            return Err(Fault::Direction(kind));
        }
        if self.version().is_none() && !kind.is_hello() && !kind.is_nak() {
            return Err(Fault::HelloExpected(kind));
        }
        if name(kind).is_none() || since(kind) > agreed {
            return Err(Fault::UnknownType(kind));
        }
        let mut bundle = Bundle::pair(&header, fds, fds_lost)?;
        let body = bundle.take_body(&header)?.unwrap_or(inline);
        let message = match In::decode(kind, &body) {
            Some(decoded) => decoded.map_err(|source| Fault::Body { kind, source })?,
            None => return Err(Fault::UnknownType(kind)),
        };
        let fds = bundle.check(message.carries())?;
        if kind.is_hello() {
            self.agreed.get_or_init(|| agreed);
        }
        faults::message(kind, Stage::Heard);
        Ok(Received { message, fds, transaction: header.transaction })
    }
}

/// The socket, for whoever passes it on to the process's next image.
impl<Out, In> AsFd for End<Out, In> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

#[cfg(test)]
mod tests;
