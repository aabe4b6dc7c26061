//! One direction: moves what can be moved now.

use std::io;
use std::task::{Context, Poll};

use super::conduit::{Conduit, Spliced};
use super::context::{COPY_BUFFER, RelayContext};
use super::control::Control;
use super::outcome::Operation;
use super::state::{Flow, HeldPipe, Mode, SourceEnd};
use super::{Direction, Tally};

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
    pub(super) direction: Direction,
}

impl<T: Tally> Surroundings<'_, T> {
    fn count(&self, flow: &mut Flow, bytes: usize) {
        let bytes = bytes as u64;
        flow.total += bytes;
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
            Mode::Splice { small } => splice(flow, small, source, around.context, cx),
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
    while let Some(mut held) = flow.pipe.take() {
        let outcome = sink.poll_splice_out(cx, &held.pipe, held.held);
        if let Poll::Ready(Ok(count)) = outcome {
            held.held = held.held.saturating_sub(count);
            around.count(flow, count);
            if held.held == 0 {
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
    around.context.with_buffer(|buffer| {
        let count = match source.poll_recv(cx, buffer) {
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => return Poll::Ready(Err((Operation::Read, error))),
            Poll::Pending => return Poll::Pending,
        };
        if count == 0 {
            finish(flow, source);
            return Poll::Ready(Ok(0));
        }
        flow.mode = match full.saturating_add(1) {
            _ if count < COPY_BUFFER || source.is_urgent() => Mode::Copy { full: 0 },
            FULL_READS.. => Mode::Splice { small: 0 },
            full => Mode::Copy { full },
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            match sink.poll_send(cx, rest) {
                Poll::Ready(Ok(written)) => {
                    around.count(flow, written);
                    rest = rest.get(written..).unwrap_or_default();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err((Operation::Write, error))),
                Poll::Pending => {
                    flow.keep(rest);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(count))
    })
}

/// Fills a borrowed pipe once; the next round drains it. A pipe that stays empty goes back.
fn splice(
    flow: &mut Flow,
    small: u8,
    source: &mut Conduit,
    context: &RelayContext,
    cx: &mut Context<'_>,
) -> Moved {
    let mut pipes = context.pipes.borrow_mut();
    let Some(pipe) = pipes.take() else {
        flow.mode = Mode::Copy { full: 0 };
        return Poll::Ready(Ok(0));
    };
    let moved = source.poll_splice_in(cx, &pipe, pipes.fill_limit(&pipe));
    let count = match moved {
        Poll::Ready(Ok(Spliced::Moved(count))) if count > 0 => count,
        nothing @ (Poll::Ready(_) | Poll::Pending) => {
            pipes.put(pipe);
            return match nothing {
                Poll::Ready(Ok(Spliced::Moved(_))) => {
                    finish(flow, source);
                    Poll::Ready(Ok(0))
                }
                Poll::Ready(Ok(Spliced::Unfit)) => {
                    flow.mode = Mode::Copy { full: 0 };
                    Poll::Ready(Ok(0))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err((Operation::Read, error))),
                Poll::Pending => Poll::Pending,
            };
        }
    };
    flow.mode = match small.saturating_add(1) {
        _ if count >= SMALL_SPLICE => Mode::Splice { small: 0 },
        SMALL_SPLICES.. => Mode::Copy { full: 0 },
        small => Mode::Splice { small },
    };
    flow.pipe = Some(HeldPipe { pipe, held: count });
    Poll::Ready(Ok(count))
}

/// The source has no more bytes. If it broke earlier (a write to it failed), its reset was
/// reported then, and this end of stream is none that the peer sent.
fn finish(flow: &mut Flow, source: &Conduit) {
    flow.end = Some(if source.is_broken() { SourceEnd::Broken } else { SourceEnd::Fin });
}
