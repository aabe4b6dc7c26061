//! Clients that know every byte that an echoing upstream gives back.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};

use crate::net::testing::eventually;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Sends as fast as it goes, in chunks of this size, and reads as fast.
    Bulk(usize),
    /// Sends until nothing more is taken, and reads only in the end.
    Slow,
    /// Ends its stream at once, after this many bytes, and reads only in the end. More than all
    /// buffers on the way take, or the upstream ends it too.
    HalfClosed(usize),
    /// Says something now and then.
    Idle,
}

/// A connection in use.
pub(super) struct Stream {
    style: Style,
    writer: JoinHandle<io::Result<u64>>,
    reader: JoinHandle<io::Result<u64>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    sent: AtomicU64,
    got: AtomicU64,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// All that was sent has come back, and then the end.
    Exact,
    /// It broke, and all that came before was right.
    Reset,
}

/// Longer than any buffer that could be lost or come twice, and prime.
const PERIOD: usize = 65_521;

/// The stream's bytes from a position on.
fn chunk(from: u64, len: usize) -> Vec<u8> {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut random = fastrand::Rng::with_seed(1);
        std::iter::repeat_with(|| random.u8(..)).take(PERIOD).collect()
    });
    let at = usize::try_from(from % PERIOD as u64).unwrap();
    let mut bytes = BYTES[at..].to_vec();
    while bytes.len() < len {
        bytes.extend_from_slice(&BYTES);
    }
    bytes.truncate(len);
    bytes
}

impl Stream {
    pub(super) fn start(address: SocketAddr, style: Style) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        let shared = Arc::new(Shared::default());
        // One echo, so that it is known to be relayed.
        stream.write_all(&chunk(0, 1)).unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(first[..], chunk(0, 1));
        let (reading, ours, theirs) =
            (stream.try_clone().unwrap(), Arc::clone(&shared), Arc::clone(&shared));
        let writer = thread::spawn(move || write(&stream, style, &ours));
        let reader = thread::spawn(move || read(reading, style, &theirs));
        Self { style, writer, reader, shared }
    }

    /// Waits until something more has come back, if anything is sent, or it has broken.
    pub(super) fn advance(&self) {
        match self.style {
            Style::Bulk(_) | Style::Idle => {
                let before = self.shared.got.load(Ordering::SeqCst);
                let more = || self.shared.got.load(Ordering::SeqCst) > before;
                eventually("bytes come", || more() || self.has_ended());
            }
            Style::Slow | Style::HalfClosed(_) => {}
        }
    }

    /// Whether it has broken.
    fn has_ended(&self) -> bool {
        self.reader.is_finished()
    }

    /// Ends it; how it ended.
    pub(super) fn fate(self) -> Fate {
        self.shared.over.store(true, Ordering::SeqCst);
        let (sent, got) = (self.writer.join().unwrap(), self.reader.join().unwrap());
        match (sent, got) {
            (Ok(sent), Ok(got)) => {
                assert_eq!(sent, got, "{:?}: an end that nobody sent", self.style);
                Fate::Exact
            }
            // A reset is told once, to whoever asks first.
            (Ok(_) | Err(_), Err(_)) | (Err(_), Ok(_)) => Fate::Reset,
        }
    }
}

fn write(mut stream: &TcpStream, style: Style, shared: &Shared) -> io::Result<u64> {
    let over = || shared.over.load(Ordering::SeqCst);
    let mut sent = 1;
    let mut send = |len: usize| {
        stream.write_all(&chunk(sent, len))?;
        sent += len as u64;
        shared.sent.store(sent, Ordering::SeqCst);
        Ok::<_, io::Error>(sent)
    };
    match style {
        Style::Bulk(len) => {
            while !over() {
                send(len)?;
            }
        }
        Style::Slow => {
            stream.set_write_timeout(Some(std::time::Duration::from_millis(200)))?;
            sent = flood(stream, sent, over)?;
            stream.set_write_timeout(None)?;
        }
        Style::HalfClosed(len) => {
            send(len)?;
        }
        Style::Idle => {
            while !over() {
                let before = send(1)?;
                while shared.got.load(Ordering::SeqCst) < before && !over() {
                    thread::yield_now();
                }
            }
        }
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// Writes until the queue stays full, or it is over: from then on it is read, and never full.
fn flood(mut stream: &TcpStream, mut sent: u64, over: impl Fn() -> bool) -> io::Result<u64> {
    while !over() {
        match stream.write(&chunk(sent, 64 << 10)) {
            Ok(count) => sent += count as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(sent),
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

fn read(mut stream: TcpStream, style: Style, shared: &Shared) -> io::Result<u64> {
    let mut got = 1;
    let mut buffer = vec![0; 64 << 10];
    match style {
        Style::Slow | Style::HalfClosed(_) => {
            while !shared.over.load(Ordering::SeqCst) {
                thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }
        Style::Bulk(_) | Style::Idle => {}
    }
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(got);
        }
        assert!(buffer[..count] == chunk(got, count), "wrong bytes at {got}");
        got += count as u64;
        shared.got.store(got, Ordering::SeqCst);
    }
}
