//! A relay on a thread of its own, with both peers in the test's hands.

use std::cell::Cell;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use baton_handoff::table::{
    Endpoint, Entry, Identity, Lane, Remains, RuleKey, State, Table, TargetKey,
};
use tokio::sync::mpsc;

use crate::flow::Moment;
use crate::net::testing::accepted_pair;
use crate::relay::{
    Control, CutReason, Direction, End, Frozen, Outcome, Relay, RelayContext, Tally,
};

/// What a test may order about a running relay.
pub(super) enum Order {
    Cut,
    /// Freeze, then resume as if in another process.
    Move,
    /// Drop the future.
    Abandon,
    /// Sweep as if this much time had passed since the start.
    Sweep(Duration, Duration),
    /// Sweep as for the first time.
    Last,
}

/// What is left when a relay has ended.
#[derive(Debug)]
pub(super) struct Report {
    /// `None` when it was abandoned.
    pub(super) outcome: Option<Outcome>,
    /// Pipes (lent, idle) on the thread.
    pub(super) pipes: (usize, usize),
    /// Bytes told to the tally, to the upstream and to the client.
    pub(super) tallied: (u64, u64),
    pub(super) moves: u64,
}

pub(super) struct Running {
    orders: mpsc::UnboundedSender<Order>,
    polls: Arc<AtomicU64>,
    moves: Arc<AtomicU64>,
    thread: JoinHandle<Report>,
    table: Table,
}

#[derive(Default)]
struct Counts {
    to_upstream: Cell<u64>,
    to_client: Cell<u64>,
}

impl Tally for Counts {
    fn moved(&self, direction: Direction, bytes: u64) {
        assert!(bytes > 0);
        let cell = match direction {
            Direction::ToUpstream => &self.to_upstream,
            Direction::ToClient => &self.to_client,
        };
        cell.set(cell.get() + bytes);
    }
}

/// A client, an upstream and the relay between them.
pub(super) fn connection() -> (TcpStream, TcpStream, Running) {
    connection_with(Vec::new(), |_| {})
}

/// With bytes the client has already sent, and a thread context prepared by `prepare`.
pub(super) fn connection_with(
    preface: Vec<u8>,
    prepare: impl FnOnce(&RelayContext) + Send + 'static,
) -> (TcpStream, TcpStream, Running) {
    let (client, near) = accepted_pair();
    let (upstream, far) = accepted_pair();
    let relay = relay_between(near, far, preface, prepare);
    (client, upstream, relay)
}

pub(super) fn relay_between(
    near: OwnedFd,
    far: OwnedFd,
    preface: Vec<u8>,
    prepare: impl FnOnce(&RelayContext) + Send + 'static,
) -> Running {
    let (orders, inbox) = mpsc::unbounded_channel();
    let polls = Arc::new(AtomicU64::new(0));
    let moves = Arc::new(AtomicU64::new(0));
    let counters = (Arc::clone(&polls), Arc::clone(&moves));
    let (table, mut lanes) = Table::create(1, 2).unwrap();
    let lane = lanes.remove(0);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .unwrap();
        let context = Rc::new(RelayContext::new());
        prepare(&context);
        let lane = Rc::new(lane);
        let report =
            runtime.block_on(run(near, far, preface, context, Rc::clone(&lane), inbox, counters));
        assert_eq!(lane.in_use(), 0, "a record is left");
        report
    });
    Running { orders, polls, moves, thread, table }
}

impl Running {
    /// Gives an order, unless the relay has ended meanwhile.
    pub(super) fn order(&self, order: Order) -> bool {
        self.orders.send(order).is_ok()
    }

    /// How often the relay was polled.
    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::SeqCst)
    }

    /// How often it has been frozen and resumed.
    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// What a successor would find now.
    pub(super) fn records(&self) -> Vec<Entry> {
        let copy = self.table.as_fd().try_clone_to_owned().unwrap();
        Remains::open(copy).unwrap().entries().unwrap()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the relay's end; the peers live on.
    pub(super) fn end(self) -> Report {
        self.thread.join().unwrap()
    }
}

async fn run(
    near: OwnedFd,
    far: OwnedFd,
    preface: Vec<u8>,
    context: Rc<RelayContext>,
    lane: Rc<Lane>,
    mut inbox: mpsc::UnboundedReceiver<Order>,
    (polls, moves): (Arc<AtomicU64>, Arc<AtomicU64>),
) -> Report {
    let start = Moment(1);
    let control = Rc::new(Control::new(start));
    let tally = Rc::new(Counts::default());
    let parts = || (Rc::clone(&context), Rc::clone(&control), Rc::clone(&tally));
    let (shared, handle, counts) = parts();
    let slot = lane.open(&identity(&near, &far), State::Doomed).unwrap();
    let relay = Relay::new(near.into(), far.into(), preface, shared, handle, counts).unwrap();
    let mut relay = Box::pin(relay.journaled(slot));
    let outcome = loop {
        let step = std::future::poll_fn(|cx| {
            if let Poll::Ready(Some(order)) = inbox.poll_recv(cx) {
                match order {
                    Order::Cut => control.cut(CutReason::Stopping),
                    Order::Move => control.freeze(),
                    Order::Abandon => return Poll::Ready(None),
                    Order::Last => control.last(),
                    Order::Sweep(passed, limit) => control.cut_idle(start.after(passed), limit),
                }
                cx.waker().wake_by_ref();
            }
            polls.fetch_add(1, Ordering::SeqCst);
            relay.as_mut().poll(cx).map(Some)
        })
        .await;
        match step {
            None => break None,
            Some(End::Closed(outcome)) => break Some(outcome),
            Some(End::Frozen(frozen)) => {
                let (shared, handle, counts) = parts();
                let moved = carried_over(*frozen);
                let slot = std::pin::Pin::into_inner(relay).into_slot().unwrap();
                let resumed = Relay::resume(moved, shared, handle, counts).unwrap();
                relay = Box::pin(resumed.journaled(slot));
                moves.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    drop(relay);
    Report {
        outcome,
        pipes: context.pipes_open(),
        tallied: (tally.to_upstream.get(), tally.to_client.get()),
        moves: moves.load(Ordering::SeqCst),
    }
}

fn identity(client: &OwnedFd, upstream: &OwnedFd) -> Identity {
    let endpoint = |fd: &OwnedFd| Endpoint {
        number: fd.as_raw_fd(),
        cookie: crate::net::cookie(fd.as_fd()).unwrap(),
    };
    Identity {
        client: endpoint(client),
        upstream: endpoint(upstream),
        rule: RuleKey::of("rule"),
        target: TargetKey::of("target"),
        target_index: 0,
        generation: 1,
        opened_at: 1,
        peer: "127.0.0.1:1".parse().unwrap(),
        idle: None,
        adoptions: 0,
        adopted_at: 0,
    }
}

/// The frozen connection as it would arrive in another process: rebuilt from public facts.
fn carried_over(frozen: Frozen) -> Frozen {
    use crate::relay::Flow;
    let again = |flow: Flow| {
        let (bytes, eof, fin, total) =
            (flow.bytes().to_vec(), flow.eof_seen(), flow.fin_sent(), flow.total());
        Flow::resumed(flow.into_pipe(), bytes, eof, fin, total)
    };
    Frozen {
        client: frozen.client,
        upstream: frozen.upstream,
        to_upstream: again(frozen.to_upstream),
        to_client: again(frozen.to_client),
    }
}

/// The byte at `position` of a stream: every place has its own, so that loss, repetition and
/// disorder show at the byte.
pub(super) fn pattern(seed: u64, position: u64) -> u8 {
    let mixed = (position ^ seed.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

pub(super) fn pattern_bytes(seed: u64, positions: std::ops::Range<u64>) -> Vec<u8> {
    positions.map(|position| pattern(seed, position)).collect()
}

/// Writes `positions` of a stream in chunks as `chunk` says.
pub(super) fn write_pattern(
    mut to: &TcpStream,
    seed: u64,
    positions: std::ops::Range<u64>,
    mut chunk: impl FnMut() -> usize,
) {
    let all = pattern_bytes(seed, positions);
    let mut rest = &all[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(chunk().clamp(1, rest.len()));
        to.write_all(now).unwrap();
        rest = later;
    }
}

/// Reads and checks exactly these positions of a stream.
pub(super) fn read_pattern(mut from: &TcpStream, seed: u64, positions: std::ops::Range<u64>) {
    let mut position = positions.start;
    let mut buffer = vec![0; 64 << 10];
    while position < positions.end {
        let wanted = usize::try_from(positions.end - position).unwrap().min(buffer.len());
        let count = from.read(&mut buffer[..wanted]).unwrap();
        assert!(count > 0, "the stream ended at {position} of {positions:?}");
        for &byte in &buffer[..count] {
            assert_eq!(byte, pattern(seed, position), "wrong byte at {position}");
            position += 1;
        }
    }
}

/// The next read must be the end of the stream.
pub(super) fn read_end(mut from: &TcpStream) {
    assert_eq!(from.read(&mut [0; 16]).unwrap(), 0, "bytes after the end");
}

/// The next read must be a reset, never an end of stream.
pub(super) fn read_reset(mut from: &TcpStream) {
    let error = from.read(&mut [0; 16]).expect_err("a reset, not an end or bytes");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Closes a peer with a reset.
pub(super) fn abort(peer: TcpStream) {
    crate::net::reset(peer.into());
}

pub(super) fn finish(peer: &TcpStream) {
    peer.shutdown(Shutdown::Write).unwrap();
}
