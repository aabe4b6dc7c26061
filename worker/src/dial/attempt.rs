//! One attempt: place, addresses, connect, preparation.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use crate::flow::{Fault, LineIndex, Moment, Quota};
use crate::net::{self, Socket};

use super::bulkhead::{Full, Permit};
use super::connect::{Connected, DialError, Race, Started};
use super::{Addresses, Lines};

/// A connected and prepared socket.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) socket: Socket,
    pub(super) address: Option<SocketAddr>,
    /// The connect alone; `None` for a prewarmed socket.
    pub(super) connect: Option<Duration>,
}

pub(super) type Waiting<T> = Pin<Box<dyn Future<Output = T>>>;

/// Something that may be known at once.
pub(super) enum Soon<T> {
    Now(T),
    Later(Waiting<T>),
}

/// Takes a place for a foreground or background dial.
pub(super) fn place<L: Lines>(
    lines: &L,
    line: LineIndex,
    quota: Quota,
    deadline: Instant,
) -> Soon<Result<Permit, Full>> {
    let slots = lines.slots(line);
    match quota {
        Quota::Background => Soon::Now(slots.bulkhead().try_background().ok_or(Full::Process)),
        Quota::Immediate => Soon::Now(slots.try_acquire()),
        Quota::Wait => match slots.try_acquire() {
            Ok(permit) => Soon::Now(Ok(permit)),
            Err(_) => {
                let slots = Arc::clone(slots);
                Soon::Later(Box::pin(async move { slots.acquire(deadline).await }))
            }
        },
    }
}

/// Connects and prepares, holding `permit` until connected.
pub(super) fn dial<L: Lines>(
    lines: &L,
    line: LineIndex,
    deadline: Instant,
    permit: Permit,
) -> Soon<Result<Prepared, Fault>> {
    let addresses = match lines.addresses(line) {
        Addresses::Known(addresses) => addresses,
        Addresses::Pending(resolving) => {
            let (preparation, write) = preparation(lines, line);
            return Soon::Later(Box::pin(async move {
                let resolved = match timeout_at(deadline, resolving).await {
                    Ok(Ok(addresses)) => addresses,
                    Ok(Err(error)) => return Err(failed(&DialError::NoAddress(Some(error)))),
                    Err(_) => return Err(failed(&DialError::Deadline)),
                };
                let started = Race::start(&resolved, deadline);
                finish(started, permit, &preparation, write, deadline).await
            }));
        }
    };
    let race = match Race::start(&addresses, deadline) {
        Started::Over(Err(error)) => return Soon::Now(Err(failed(&error))),
        Started::Over(Ok(connected)) => {
            drop(permit);
            return prepare(lines, line, connected.into(), deadline);
        }
        running @ Started::Running(_) => running,
    };
    let (preparation, write) = preparation(lines, line);
    Soon::Later(Box::pin(async move { finish(race, permit, &preparation, write, deadline).await }))
}

/// How a preparation is sent.
type Write = fn(BorrowedFd<'_>, &[u8]) -> io::Result<usize>;

/// In one segment with what follows, if that is certain to come at once: held back for a client
/// that has still to speak, a header would wait for it in vain.
fn write_of<L: Lines>(lines: &L) -> Write {
    if lines.followed() { net::send_more } else { net::send }
}

fn preparation<L: Lines>(lines: &L, line: LineIndex) -> (Box<[u8]>, Write) {
    (lines.preparation(line).into(), write_of(lines))
}

/// Writes the preparation to a socket that is connected.
pub(super) fn prepare<L: Lines>(
    lines: &L,
    line: LineIndex,
    prepared: Prepared,
    deadline: Instant,
) -> Soon<Result<Prepared, Fault>> {
    let bytes = lines.preparation(line);
    if bytes.is_empty() {
        return Soon::Now(Ok(prepared));
    }
    // The send queue of a fresh socket takes far more than a header.
    let write = write_of(lines);
    match write(prepared.socket.as_fd(), bytes) {
        Ok(count) if count == bytes.len() => Soon::Now(Ok(prepared)),
        Ok(count) => {
            let rest: Box<[u8]> = bytes.get(count..).unwrap_or_default().into();
            Soon::Later(Box::pin(async move { write_rest(prepared, &rest, write, deadline).await }))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let rest: Box<[u8]> = bytes.into();
            Soon::Later(Box::pin(async move { write_rest(prepared, &rest, write, deadline).await }))
        }
        Err(error) => Soon::Now(Err(unprepared(&error))),
    }
}

async fn finish(
    started: Started,
    permit: Permit,
    preparation: &[u8],
    write: Write,
    deadline: Instant,
) -> Result<Prepared, Fault> {
    let result = match started {
        Started::Over(result) => result,
        Started::Running(mut race) => std::future::poll_fn(|cx| race.poll(cx)).await,
    };
    drop(permit);
    let connected = result.map_err(|error| failed(&error))?;
    write_rest(connected.into(), preparation, write, deadline).await
}

async fn write_rest(
    prepared: Prepared,
    mut bytes: &[u8],
    write: Write,
    deadline: Instant,
) -> Result<Prepared, Fault> {
    if bytes.is_empty() {
        return Ok(prepared);
    }
    let Prepared { socket, address, connect } = prepared;
    let socket = socket.register().map_err(|error| {
        tracing::debug!(%error, "cannot register an upstream socket");
        Fault::Local
    })?;
    while !bytes.is_empty() {
        let writable = timeout_at(deadline, socket.writable()).await;
        let mut guard = match writable {
            Ok(Ok(guard)) => guard,
            Ok(Err(error)) => return Err(unprepared(&error)),
            Err(_) => return Err(unprepared(&io::ErrorKind::TimedOut.into())),
        };
        match guard.try_io(|socket| write(socket.get_ref().as_fd(), bytes)) {
            Ok(Ok(count)) => bytes = bytes.get(count..).unwrap_or_default(),
            Ok(Err(error)) => return Err(unprepared(&error)),
            Err(_) => {}
        }
    }
    Ok(Prepared { socket: socket.into(), address, connect })
}

fn failed(error: &DialError) -> Fault {
    let fault = error.fault();
    tracing::debug!(error = %Chain(error), ?fault, "dial failed");
    fault
}

fn unprepared(error: &io::Error) -> Fault {
    tracing::debug!(%error, "writing to a fresh upstream connection failed");
    Fault::Preparation
}

/// An error with what caused it, on one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl From<Connected> for Prepared {
    fn from(Connected { socket, address, took }: Connected) -> Self {
        Self { socket, address: Some(address), connect: Some(took) }
    }
}

/// The instant of tokio's clock that stands for `deadline`, given the time now.
pub(super) fn instant(deadline: Moment, now: Moment) -> Instant {
    Instant::now() + deadline.since(now)
}

/// Attempts of one connection that are under way; two are the rule in a race.
pub(super) type Few<T> = SmallVec<[T; 2]>;
