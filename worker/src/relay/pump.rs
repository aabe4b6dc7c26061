//! One direction: moves what can be moved now.

use std::io;
use std::task::{Context, Poll};

use super::conduit::{Conduit, Spliced};
use super::context::{COPY_BUFFER, RelayContext};
use super::control::Control;
use super::journal::Journal;
use super::outcome::Operation;
use super::state::{Flow, HeldPipe, Mode, SourceEnd};
use super::{Direction, Tally};
use crate::net;

/// Bytes a direction may move before other connections get their turn. A larger one (1 MiB)
/// gained nothing.
pub const TURN: usize = 256 << 10;

/// Splice after so many reads in a row filled the buffer. In a steady stream 1, 4 and 16 cost
/// the same (0.26 to 0.30 CPU seconds a GiB); 4 keeps answers of up to 128 KiB out of pipes.
const FULL_READS: u8 = 4;

/// Copy again after so many splices in a row of less than [`SMALL_SPLICE`] bytes. Between 4 and
/// 64 KiB the cost is flat.
const SMALL_SPLICES: u8 = 4;
const SMALL_SPLICE: usize = 16 << 10;

/// Where a direction stands after its turn.
#[derive(Debug)]
pub(super) enum Progress {
    /// The reactor will wake us.
    Waiting,
    /// There is more to do, after others had their turn.
    Yielded,
    /// The source ended and everything it sent has been handed over.
    Over,
    /// The operation failed on the source (read) or the destination (write).
    Failed(Operation, io::Error),
}

/// What a direction needs besides its two sockets and its state.
pub(super) struct Surroundings<'a, T> {
    pub(super) context: &'a RelayContext,
    pub(super) control: &'a Control,
    pub(super) tally: &'a T,
    pub(super) journal: &'a Journal,
    pub(super) direction: Direction,
}

impl<T: Tally> Surroundings<'_, T> {
    fn count(&self, flow: &mut Flow, bytes: usize) {
        let bytes = bytes as u64;
        flow.total += bytes;
        self.journal.moved(self.direction, flow);
        self.control.mark();
        self.tally.moved(self.direction, bytes);
    }
}

/// Moves bytes until something must be waited for, the budget is spent or the source has ended.
pub(super) fn pump<T: Tally>(
    flow: &mut Flow,
    source: &mut Conduit,
    sink: &mut Conduit,
    around: &Surroundings<'_, T>,
    cx: &mut Context<'_>,
) -> Progress {
    let mut budget = TURN;
    loop {
        match drain(flow, sink, around, cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Progress::Failed(Operation::Write, error),
            Poll::Pending => return Progress::Waiting,
        }
        if flow.end.is_some() {
            return Progress::Over;
        }
        if budget == 0 {
            return Progress::Yielded;
        }
        // Reading for a destination that takes nothing would only move bytes into our memory.
        match sink.poll_unblocked(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Progress::Failed(Operation::Write, error),
            Poll::Pending => return Progress::Waiting,
        }
        let moved = match flow.mode {
            Mode::Copy { full } => copy(flow, full, source, sink, around, cx),
            Mode::Splice { small } => splice(flow, small, source, around, cx),
        };
        match moved {
            Poll::Ready(Ok(count)) => budget = budget.saturating_sub(count),
            Poll::Ready(Err((operation, error))) => return Progress::Failed(operation, error),
            Poll::Pending => return Progress::Waiting,
        }
    }
}

type Moved = Poll<Result<usize, (Operation, io::Error)>>;

/// Hands over what is held, oldest first.
fn drain<T: Tally>(
    flow: &mut Flow,
    sink: &mut Conduit,
    around: &Surroundings<'_, T>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let Surroundings { journal, direction, .. } = *around;
    while let Some(mut held) = flow.pipe.take() {
        journal.splicing(direction, flow);
        let outcome = sink.poll_splice_out(cx, &held.pipe, held.held);
        // After a failure the mark stays, until the connection is known to be broken.
        if !matches!(outcome, Poll::Ready(Err(_))) {
            journal.settled(direction, flow);
        }
        if let Poll::Ready(Ok(count)) = outcome {
            held.held = held.held.saturating_sub(count);
            around.count(flow, count);
            if held.held == 0 {
                journal.pipe(direction, None);
                around.context.pipes.borrow_mut().put(held.pipe);
                break;
            }
        }
        flow.pipe = Some(held);
        match outcome {
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
    while !flow.bytes().is_empty() {
        match sink.poll_send(cx, flow.bytes()) {
            Poll::Ready(Ok(count)) => {
                flow.take(count);
                around.count(flow, count);
                journal.settled(direction, flow);
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(()))
}

/// Reads once through the thread's buffer and writes it all, or keeps the rest.
fn copy<T: Tally>(
    flow: &mut Flow,
    full: u8,
    source: &mut Conduit,
    sink: &mut Conduit,
    around: &Surroundings<'_, T>,
    cx: &mut Context<'_>,
) -> Moved {
    let Surroundings { journal, direction, .. } = *around;
    around.context.with_buffer(|buffer| {
        journal.reading(direction);
        let count = match source.poll_recv(cx, buffer) {
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => return Poll::Ready(Err((Operation::Read, error))),
            Poll::Pending => {
                journal.settled(direction, flow);
                return Poll::Pending;
            }
        };
        if count == 0 {
            finish(flow, source, around);
            return Poll::Ready(Ok(0));
        }
        flow.mode = match full.saturating_add(1) {
            _ if count < COPY_BUFFER || source.is_urgent() => Mode::Copy { full: 0 },
            FULL_READS.. => Mode::Splice { small: 0 },
            full => Mode::Copy { full },
        };
        if let Mode::Splice { .. } = flow.mode {
            journal.mode(direction, flow);
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            match sink.poll_send(cx, rest) {
                Poll::Ready(Ok(written)) => {
                    around.count(flow, written);
                    rest = rest.get(written..).unwrap_or_default();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err((Operation::Write, error))),
                Poll::Pending => {
                    keep(flow, rest, around);
                    return Poll::Pending;
                }
            }
        }
        journal.settled(direction, flow);
        Poll::Ready(Ok(count))
    })
}

/// Keeps what the destination did not take: in memory, or, where somebody may have to go on
/// without our memory, in a pipe.
fn keep<T: Tally>(flow: &mut Flow, rest: &[u8], around: &Surroundings<'_, T>) {
    let Surroundings { context, journal, direction, .. } = *around;
    let mut stored = 0;
    if journal.is_kept() {
        let mut pipes = context.pipes.borrow_mut();
        if let Some(pipe) = pipes.take() {
            journal.pipe(direction, Some(&pipe));
            // An error is a pipe that takes nothing: memory is left.
            stored = net::fill(&pipe, rest).unwrap_or(0);
            if stored > 0 {
                flow.pipe = Some(HeldPipe { pipe, held: stored });
            } else {
                journal.pipe(direction, None);
                pipes.put(pipe);
            }
        }
    }
    let rest = rest.get(stored..).unwrap_or_default();
    if !rest.is_empty() {
        flow.keep(rest);
    }
    journal.settled(direction, flow);
}

/// Fills a borrowed pipe once; the next round drains it. A pipe that stays empty goes back.
fn splice<T: Tally>(
    flow: &mut Flow,
    small: u8,
    source: &mut Conduit,
    around: &Surroundings<'_, T>,
    cx: &mut Context<'_>,
) -> Moved {
    let Surroundings { context, journal, direction, .. } = *around;
    let mut pipes = context.pipes.borrow_mut();
    let Some(pipe) = pipes.take() else {
        flow.mode = Mode::Copy { full: 0 };
        journal.mode(direction, flow);
        return Poll::Ready(Ok(0));
    };
    journal.pipe(direction, Some(&pipe));
    journal.splicing(direction, flow);
    let moved = source.poll_splice_in(cx, &pipe, pipes.fill_limit(&pipe));
    let count = match moved {
        Poll::Ready(Ok(Spliced::Moved(count))) if count > 0 => count,
        nothing @ (Poll::Ready(_) | Poll::Pending) => {
            journal.pipe(direction, None);
            pipes.put(pipe);
            let moved = match nothing {
                Poll::Ready(Ok(Spliced::Moved(_))) => {
                    finish(flow, source, around);
                    return Poll::Ready(Ok(0));
                }
                Poll::Ready(Ok(Spliced::Unfit)) => {
                    flow.mode = Mode::Copy { full: 0 };
                    journal.mode(direction, flow);
                    Poll::Ready(Ok(0))
                }
                // The mark stays, until the connection is known to be broken.
                Poll::Ready(Err(error)) => return Poll::Ready(Err((Operation::Read, error))),
                Poll::Pending => Poll::Pending,
            };
            journal.settled(direction, flow);
            return moved;
        }
    };
    journal.settled(direction, flow);
    flow.mode = match small.saturating_add(1) {
        _ if count >= SMALL_SPLICE => Mode::Splice { small: 0 },
        SMALL_SPLICES.. => Mode::Copy { full: 0 },
        small => Mode::Splice { small },
    };
    if let Mode::Copy { .. } = flow.mode {
        journal.mode(direction, flow);
    }
    flow.pipe = Some(HeldPipe { pipe, held: count });
    Poll::Ready(Ok(count))
}

/// The source has no more bytes. If it broke earlier (a write to it failed), its reset was
/// reported then, and this end of stream is none that the peer sent.
fn finish<T: Tally>(flow: &mut Flow, source: &Conduit, around: &Surroundings<'_, T>) {
    flow.end = Some(if source.is_broken() { SourceEnd::Broken } else { SourceEnd::Fin });
    around.journal.eof_seen(around.direction);
    around.journal.settled(around.direction, flow);
}
