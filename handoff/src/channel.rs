//! One end of a SEQPACKET pair: whole messages with their descriptors, nothing about their meaning.
//!
//! SEQPACKET and not STREAM, because a stream merges messages around descriptors. Neither `std`
//! nor tokio has a type for it; tokio's datagram socket does the same `sendmsg` and `recvmsg`, and
//! it is used for nothing else (`AsyncFd` would need `unsafe`).
//!
//! Both operations can be dropped at any await without loss: a packet is taken or sent by one
//! system call, in the poll that completes.

use crate::fault::{Fault, RecvError};
use crate::frame::{HEADER_LEN, Header, MAX_PACKET};
use crate::inherit::{self, Packet};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use sendfd::SendWithFd as _;
use socket2::{Domain, SockRef, Type};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// A fresh control pair, both ends CLOEXEC: the supervisor's and the worker's.
///
/// # Errors
/// When the process has no free descriptor.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
    )?)
}

/// A message as it came: its header checked, its body and descriptors not looked at yet.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) header: Header,
    /// What is behind the header in the packet.
    pub(crate) inline: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    pub(crate) fds_lost: bool,
}

#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixDatagram,
}

impl Channel {
    /// Takes over an end. Must be called inside a tokio runtime.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let socket = SockRef::from(&fd);
        if socket.r#type()? != Type::SEQPACKET || socket.domain()? != Domain::UNIX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a SEQPACKET Unix socket"));
        }
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixDatagram::from_std(fd.into())? })
    }

    /// Sends one packet; waits while the peer's queue is full.
    pub(crate) async fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let numbers: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        loop {
            self.socket.writable().await?;
            match self.socket.send_with_fd(packet, &numbers) {
                // A packet socket sends all or nothing, so the count says nothing new.
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the next packet and checks its header.
    pub(crate) async fn recv(&self) -> Result<Raw, RecvError> {
        match self.recv_packet(MAX_PACKET).await {
            Ok((buffer, packet)) => check(buffer, packet),
            // The peer closed its end with messages of this side unread.
            Err(error) if error.raw_os_error() == Some(Errno::ECONNRESET as i32) => {
                Err(RecvError::Closed)
            }
            Err(error) => Err(RecvError::Io(error)),
        }
    }

    /// The next packet, if one is there.
    pub(crate) fn try_recv(&self) -> Result<Option<Raw>, RecvError> {
        let mut buffer = vec![0; MAX_PACKET];
        match inherit::receive(self.socket.as_fd(), &mut buffer) {
            Ok(packet) => {
                buffer.truncate(packet.len);
                check(buffer, packet).map(Some)
            }
            Err(Errno::EAGAIN) => Ok(None),
            Err(Errno::ECONNRESET) => Err(RecvError::Closed),
            Err(error) => Err(RecvError::Io(error.into())),
        }
    }

    /// Waits for the next packet of at most `longest` bytes, whatever is in it.
    pub(crate) async fn recv_packet(&self, longest: usize) -> io::Result<(Vec<u8>, Packet)> {
        let received = self.socket.async_io(Interest::READABLE, || {
            let mut buffer = vec![0; longest];
            let packet = inherit::receive(self.socket.as_fd(), &mut buffer)?;
            buffer.truncate(packet.len);
            Ok((buffer, packet))
        });
        received.await
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn check(mut buffer: Vec<u8>, packet: Packet) -> Result<Raw, RecvError> {
    let Packet { len, fds, fds_lost, cut } = packet;
    // An empty packet reads like the end. No side sends one; a peer that does is given up.
    if len == 0 && fds.is_empty() && !fds_lost {
        return Err(RecvError::Closed);
    }
    if cut {
        return Err(Fault::Oversized.into());
    }
    let (header, _) = Header::decode(&buffer).map_err(Fault::Frame)?;
    buffer.drain(..HEADER_LEN);
    Ok(Raw { header, inline: buffer, fds, fds_lost })
}
