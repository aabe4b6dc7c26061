//! One connection of the upstream; see [`crate::wire`] for what is said on it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::load::bulk::BUFFER;
use crate::load::session::{Gaps, send_frame};
use crate::wire::{self, Checker, HELLO, Hello, Progress, Summary};

/// First read, and all that an idle connection holds.
const FIRST: usize = 2048;
/// Grown to when messages fill the first buffer.
const LARGE: usize = 64 * 1024;

pub(super) async fn run(mut socket: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; FIRST];
    let mut have = socket.read(&mut buffer).await?;
    if have == 0 {
        return Ok(());
    }
    let skip = loop {
        if let Some(length) = wire::proxy_header(&buffer[..have]) {
            break length;
        }
        have += more(&mut socket, &mut buffer, have).await?;
    };
    if have == skip {
        have += more(&mut socket, &mut buffer, have).await?;
    }
    match buffer[skip] {
        b'C' => echo_once(socket, buffer, skip, have).await,
        b'B' => {
            while have < skip + HELLO {
                have += more(&mut socket, &mut buffer, have).await?;
            }
            let mut head = [0; HELLO];
            head.copy_from_slice(&buffer[skip..skip + HELLO]);
            let hello = Hello::decode(&head).ok_or(io::ErrorKind::InvalidData)?;
            framed(socket, hello, &buffer[skip + HELLO..have]).await
        }
        _ => echo(socket, buffer, skip, have).await,
    }
}

/// Reads on behind `have` bytes; an end of the stream here is an error.
async fn more(socket: &mut TcpStream, buffer: &mut [u8], have: usize) -> io::Result<usize> {
    match socket.read(&mut buffer[have..]).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        n => Ok(n),
    }
}

/// Echoes as many bytes as the request says, then closes: TIME_WAIT stays here.
async fn echo_once(
    mut socket: TcpStream,
    mut buffer: Vec<u8>,
    skip: usize,
    mut have: usize,
) -> io::Result<()> {
    while have < skip + 5 {
        have += more(&mut socket, &mut buffer, have).await?;
    }
    let length = [1, 2, 3, 4].map(|i| buffer[skip + i]);
    let mut left = u64::from(u32::from_le_bytes(length));
    let mut piece = skip..have;
    loop {
        socket.write_all(&buffer[piece.clone()]).await?;
        left = left.saturating_sub(piece.len() as u64);
        if left == 0 {
            return Ok(());
        }
        let filled = piece.end == buffer.len();
        grow(&mut buffer, filled);
        piece = 0..more(&mut socket, &mut buffer, 0).await?;
    }
}

/// Echoes until the client has closed its half, then closes the other.
async fn echo(
    mut socket: TcpStream,
    mut buffer: Vec<u8>,
    skip: usize,
    have: usize,
) -> io::Result<()> {
    let mut piece = skip..have;
    loop {
        socket.write_all(&buffer[piece.clone()]).await?;
        let filled = piece.end == buffer.len();
        grow(&mut buffer, filled);
        match socket.read(&mut buffer).await? {
            0 => return socket.shutdown().await,
            n => piece = 0..n,
        }
    }
}

fn grow(buffer: &mut Vec<u8>, filled: bool) {
    if filled && buffer.len() < LARGE {
        buffer.resize(LARGE, 0);
    }
}

/// A session with frames: checks what comes, sends what is wanted until the client's `FIN`,
/// and reports both.
async fn framed(mut socket: TcpStream, hello: Hello, early: &[u8]) -> io::Result<()> {
    let (finished, wake) = (AtomicBool::new(false), Notify::new());
    let (mut from, mut to) = socket.split();
    let paced = hello.interval_us > 0;
    let mut checker = Checker::new(hello.up_pattern());
    let mut gaps = Gaps::new();

    let receiving = async {
        let small = paced || !hello.direction.up();
        let mut buffer = vec![0; if small { FIRST } else { BUFFER }];
        let mut progress = checker.feed(early);
        while progress == Progress::Open {
            let n = from.read(&mut buffer).await?;
            if n == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            if paced {
                gaps.arrived();
            }
            progress = checker.feed(&buffer[..n]);
        }
        finished.store(true, Relaxed);
        wake.notify_one();
        Ok(())
    };
    let sending = async {
        let step = Duration::from_micros(hello.interval_us.into());
        let (mut sent, mut next) = (0, Instant::now());
        if !hello.direction.down() {
            wake.notified().await;
            return Ok(sent);
        }
        for len in hello.writes.into_iter().cycle() {
            if finished.load(Relaxed) {
                break;
            }
            send_frame(&mut to, hello.down_pattern(), sent, len).await?;
            sent += u64::from(len);
            if paced {
                next = (next + step).max(Instant::now());
                tokio::select! {
                    () = wake.notified() => break,
                    () = tokio::time::sleep_until(next.into()) => {}
                }
            }
        }
        Ok::<u64, io::Error>(sent)
    };
    let ((), sent) = tokio::try_join!(receiving, sending)?;
    let summary = Summary {
        received: checker.received(),
        corrupt: checker.corrupt(),
        gap_us: if paced { gaps.longest_us() } else { 0 },
        sent,
    };
    to.write_all(&summary.encode()).await?;
    // The client closes when it has read it.
    match from.read(&mut [0; 8]).await? {
        0 => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
