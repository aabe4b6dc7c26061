//! Peers that know every byte: what arrives is exact, or the connection ends in a reset.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use crate::net::testing::accepted_pair;
use crate::net::{TcpState, tcp_state};

/// How a connection is used.
#[derive(Debug, Clone, Copy)]
pub(super) enum Style {
    /// Both directions as fast as they go, in chunks of up to so many bytes.
    Bulk(usize),
    /// One message, one answer.
    PingPong,
    /// The client ends its direction at once; the other goes on.
    HalfClosed,
    /// The client reads little at a time.
    SlowReader,
}

/// How a connection ended, as its peers saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Every byte arrived, and then the end.
    Exact,
    /// At least one peer saw a reset.
    Reset,
}

/// What all connections of a test share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    allowance: Mutex<Allowance>,
    changed: Condvar,
    /// Bytes read by all peers.
    pub(super) moved: AtomicU64,
}

/// What may still be sent: streams run only while the test wants them to.
#[derive(Debug, Default)]
struct Allowance {
    bytes: u64,
    over: bool,
}

impl Shared {
    /// Lets the streams send so many more bytes.
    pub(super) fn allow(&self, bytes: u64) {
        self.allowance.lock().unwrap().bytes += bytes;
        self.changed.notify_all();
    }

    /// Lets the streams end.
    pub(super) fn stop(&self) {
        self.allowance.lock().unwrap().over = true;
        self.changed.notify_all();
    }

    /// Waits for leave to send; `false`: it is time to end.
    fn may_send(&self, bytes: u64) -> bool {
        let waits = |allowance: &mut Allowance| allowance.bytes == 0 && !allowance.over;
        let mut allowance = self.changed.wait_while(self.allowance.lock().unwrap(), waits).unwrap();
        allowance.bytes = allowance.bytes.saturating_sub(bytes);
        !allowance.over
    }
}

/// The byte at a position of a stream.
fn pattern(seed: u64, position: u64) -> u8 {
    let mixed = (position ^ seed.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

pub(super) fn bytes(seed: u64, positions: std::ops::Range<u64>) -> Vec<u8> {
    positions.map(|position| pattern(seed, position)).collect()
}

/// A running connection: both peers on threads of their own.
pub(super) struct Running {
    halves: [JoinHandle<Half>; 2],
    seed: u64,
    style: Style,
}

/// What one peer saw: how much it sent before it ended its stream, how much it got before the
/// end of the other's. `None`: a reset came first.
struct Half {
    sent: Option<u64>,
    got: Option<u64>,
}

impl Running {
    /// Starts the peers; returns the gateway's two sockets.
    pub(super) fn start(seed: u64, style: Style, shared: &Arc<Shared>) -> (Self, OwnedFd, OwnedFd) {
        let (client, near) = accepted_pair();
        let (upstream, far) = accepted_pair();
        let (up, down) = (seed * 2, seed * 2 + 1);
        let halves = match style {
            Style::PingPong => {
                let (one, two) = (Arc::clone(shared), Arc::clone(shared));
                [
                    std::thread::spawn(move || asker(&client, up, down, &one)),
                    std::thread::spawn(move || answerer(&upstream, down, up, &two)),
                ]
            }
            Style::Bulk(_) | Style::HalfClosed | Style::SlowReader => {
                let chunk = match style {
                    Style::Bulk(chunk) => chunk,
                    Style::HalfClosed | Style::PingPong | Style::SlowReader => 100_000,
                };
                let read = if matches!(style, Style::SlowReader) { 1500 } else { 64 << 10 };
                let early = matches!(style, Style::HalfClosed);
                let (one, two) = (Arc::clone(shared), Arc::clone(shared));
                [
                    std::thread::spawn(move || both(&client, up, down, chunk, read, early, &one)),
                    std::thread::spawn(move || {
                        both(&upstream, down, up, chunk, 64 << 10, false, &two)
                    }),
                ]
            }
        };
        (Self { halves, seed, style }, near, far)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.halves.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end and checks that no peer took a broken stream for a whole one.
    pub(super) fn fate(self) -> Fate {
        let [client, upstream] = self.halves.map(|half| half.join().unwrap());
        for (sent, got) in [(client.sent, upstream.got), (upstream.sent, client.got)] {
            if let Some(got) = got {
                assert_eq!(sent, Some(got), "a false end: {} {:?}", self.seed, self.style);
            }
        }
        if client.got.is_some() && upstream.got.is_some() { Fate::Exact } else { Fate::Reset }
    }
}

fn both(
    stream: &TcpStream,
    out: u64,
    into: u64,
    chunk: usize,
    read: usize,
    early: bool,
    shared: &Shared,
) -> Half {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let position = write_all(stream, out, chunk, early, shared)?;
            // Noted first, for the other thread may see what comes of it at once.
            ended.store(true, Ordering::SeqCst);
            stream.shutdown(Shutdown::Write).ok().map(|()| position)
        });
        let got = read_all(stream, into, read, shared, &ended);
        Half { sent: sent.join().unwrap(), got }
    })
}

/// What looks like the end of the stream is a reset if the socket is closed without our doing:
/// the other thread's write was told then, and each error is told once.
fn is_end(stream: &TcpStream, ended: &AtomicBool) -> bool {
    let ended = ended.load(Ordering::SeqCst);
    ended || tcp_state(stream.as_fd()).unwrap() != TcpState::Closed
}

fn write_all(
    mut stream: &TcpStream,
    seed: u64,
    chunk: usize,
    early: bool,
    shared: &Shared,
) -> Option<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut position = 0;
    while !(early && position > 10_000) {
        let end = position + random.u64(1..=chunk as u64);
        if !shared.may_send(end - position) {
            break;
        }
        if let Err(error) = stream.write_all(&bytes(seed, position..end)) {
            return broken(&error);
        }
        position = end;
    }
    Some(position)
}

fn read_all(
    mut stream: &TcpStream,
    seed: u64,
    most: usize,
    shared: &Shared,
    ended: &AtomicBool,
) -> Option<u64> {
    let mut buffer = vec![0; most];
    let mut position = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return is_end(stream, ended).then_some(position),
            Ok(count) => {
                check(seed, &mut position, &buffer[..count]);
                shared.moved.fetch_add(count as u64, Ordering::Relaxed);
            }
            Err(error) => return broken(&error),
        }
    }
}

fn check(seed: u64, position: &mut u64, bytes: &[u8]) {
    for byte in bytes {
        assert_eq!(*byte, pattern(seed, *position), "wrong byte at {position} of {seed}");
        *position += 1;
    }
}

fn broken<T>(error: &std::io::Error) -> Option<T> {
    let expected = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(expected.contains(&error.kind()), "{error}");
    None
}

/// Reads exactly `length` bytes, `Some(false)` if the stream ends before the first.
fn exactly(mut stream: &TcpStream, seed: u64, position: &mut u64, length: u64) -> Option<bool> {
    let mut buffer = vec![0; usize::try_from(length).unwrap()];
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => {
                assert_eq!(filled, 0, "the stream ends inside a message");
                return Some(false);
            }
            Ok(count) => filled += count,
            Err(error) => return broken(&error),
        }
    }
    check(seed, position, &buffer);
    Some(true)
}

const MESSAGE: u64 = 300;

fn asker(mut stream: &TcpStream, out: u64, into: u64, shared: &Shared) -> Half {
    let (mut position, mut answered) = (0, 0);
    while shared.may_send(2 * MESSAGE) {
        let question = bytes(out, position..position + MESSAGE);
        if stream.write_all(&question).is_err() {
            return Half { sent: None, got: None };
        }
        position += MESSAGE;
        match exactly(stream, into, &mut answered, MESSAGE) {
            Some(true) => {}
            // An end here is a false one: the other side ends last.
            Some(false) => return Half { sent: None, got: Some(answered) },
            None => return Half { sent: None, got: None },
        }
        shared.moved.fetch_add(MESSAGE, Ordering::Relaxed);
    }
    let sent = stream.shutdown(Shutdown::Write).ok().map(|()| position);
    let got = read_all(stream, into, 64, shared, &AtomicBool::new(sent.is_some()));
    Half { sent, got: got.map(|more| answered + more) }
}

fn answerer(mut stream: &TcpStream, out: u64, into: u64, _: &Shared) -> Half {
    let (mut position, mut asked) = (0, 0);
    loop {
        match exactly(stream, into, &mut asked, MESSAGE) {
            Some(true) => {}
            Some(false) => break,
            None => return Half { sent: None, got: None },
        }
        if stream.write_all(&bytes(out, position..position + MESSAGE)).is_err() {
            return Half { sent: None, got: None };
        }
        position += MESSAGE;
    }
    let sent = stream.shutdown(Shutdown::Write).ok().map(|()| position);
    Half { sent, got: Some(asked) }
}
