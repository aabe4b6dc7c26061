//! What the two sides of one connection do, and what of it each of them saw.
//!
//! Every stream is a position pattern, so a lost, doubled or exchanged byte shows where it is.
//! One task drives a side, and it always reads before it writes: a write may swallow the news of
//! a reset, and a read after that would take the reset for an orderly end.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::harness::Pattern;

/// How a connection spends its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Said a little, and is silent until the end.
    Idle,
    /// The client has finished long before the server does, and nobody says anything.
    HalfByClient,
    /// The other way round.
    HalfByServer,
    /// Silent; the client resets it in the end.
    ResetByClient,
    /// Silent; the server resets it in the end.
    ResetByServer,
    /// Small pieces both ways.
    Chatty,
    /// Both ways as fast as it goes.
    Full,
    /// The client has finished, the server says as much as it can.
    HalfFull,
    /// The server says more than the client takes: every buffer between them is full.
    SlowClient,
    /// The other way round.
    SlowServer,
}

impl Kind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Idle,
        Self::HalfByClient,
        Self::HalfByServer,
        Self::ResetByClient,
        Self::ResetByServer,
        Self::Chatty,
        Self::Full,
        Self::HalfFull,
        Self::SlowClient,
        Self::SlowServer,
    ];

    /// Whether no byte of it can be in anybody's memory between the beginning and the end.
    pub(crate) fn is_quiet(self) -> bool {
        match self {
            Self::Idle
            | Self::HalfByClient
            | Self::HalfByServer
            | Self::ResetByClient
            | Self::ResetByServer => true,
            Self::Chatty | Self::Full | Self::HalfFull | Self::SlowClient | Self::SlowServer => {
                false
            }
        }
    }

    pub(super) fn client(self) -> Part {
        match self {
            Self::Idle | Self::ResetByServer | Self::HalfByServer => Part::QUIET,
            Self::HalfByClient | Self::HalfFull => Part { last: Last::FinishAtOnce, ..Part::QUIET },
            Self::ResetByClient => Part { last: Last::Reset, ..Part::QUIET },
            Self::Chatty => Part::CHATTY,
            Self::Full | Self::SlowServer => Part::FULL,
            Self::SlowClient => Part { hear: Pace::SLOW, ..Part::QUIET },
        }
    }

    pub(super) fn server(self) -> Part {
        match self {
            Self::Idle | Self::ResetByClient | Self::HalfByClient => Part::QUIET,
            Self::HalfByServer => Part { last: Last::FinishAtOnce, ..Part::QUIET },
            Self::ResetByServer => Part { last: Last::Reset, ..Part::QUIET },
            Self::Chatty => Part::CHATTY,
            Self::Full | Self::HalfFull | Self::SlowClient => Part::FULL,
            Self::SlowServer => Part { hear: Pace::SLOW, ..Part::QUIET },
        }
    }
}

/// At most so many bytes, then a pause.
#[derive(Debug, Clone, Copy)]
struct Pace {
    chunk: usize,
    pause: Duration,
}

impl Pace {
    /// Fills every buffer on the way, and leaves the machine some time for others.
    const FAST: Self = Self { chunk: 16 * 1024, pause: Duration::from_millis(1) };
    const ALL: Self = Self { chunk: 64 * 1024, pause: Duration::ZERO };
    const SMALL: Self = Self { chunk: 100, pause: Duration::from_millis(2) };
    const SLOW: Self = Self { chunk: 1024, pause: Duration::from_millis(10) };
}

/// How a side ends its half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    FinishAtOnce,
    Finish,
    Reset,
}

/// What one side does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    say: Pace,
    hear: Pace,
    /// Goes on to say something until the end, or is silent after [`SOME`].
    steady: bool,
    last: Last,
}

/// What everybody says first, and those that were silent once more in the end.
const SOME: u64 = 3000;

impl Part {
    const QUIET: Self =
        Self { say: Pace::FAST, hear: Pace::ALL, steady: false, last: Last::Finish };
    const CHATTY: Self = Self { say: Pace::SMALL, steady: true, ..Self::QUIET };
    const FULL: Self = Self { steady: true, ..Self::QUIET };

    /// How much may be said in all, as things are.
    fn length(self, ended_at: Option<u64>) -> Option<u64> {
        match (self.last, self.steady, ended_at) {
            (Last::FinishAtOnce, ..) => Some(SOME),
            (Last::Reset, _, Some(said)) => Some(said),
            (Last::Finish, _, Some(said)) => Some(said + SOME),
            (Last::Finish | Last::Reset, true, None) => None,
            (Last::Finish | Last::Reset, false, None) => Some(SOME),
        }
    }
}

/// How the other's half ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// In order.
    Clean,
    /// With an error.
    Broken(String),
    /// With a byte that should not be there, at this position.
    Wrong(u64),
    /// Not at all: nothing came for so long that nothing will.
    Silent,
    /// This side went first, on purpose.
    Left,
}

/// What one side did and saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) said: u64,
    pub(crate) finished: bool,
    pub(crate) heard: u64,
    pub(crate) end: End,
}

/// What the sides of a performance share.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    /// Turns true when it is time to end.
    pub(super) curtain: watch::Receiver<bool>,
    /// Bytes that arrived.
    pub(super) moved: Arc<AtomicU64>,
    /// Sides that have heard something.
    pub(super) begun: Arc<AtomicU64>,
    /// How long a side waits for the other after the curtain.
    pub(super) patience: Duration,
}

/// Plays a part over an established connection.
pub(super) async fn play(
    stream: TcpStream,
    part: Part,
    [mine, theirs]: [Pattern; 2],
    mut stage: Stage,
) -> Account {
    let mut account = Account { said: 0, finished: false, heard: 0, end: End::Left };
    let mut buffer = vec![0; Pace::ALL.chunk];
    // What is said next, and how much of it has gone.
    let (mut ahead, mut gone) = (Vec::new(), 0);
    let mut ended_at = None;
    let mut heard_all = false;
    let (mut say_at, mut hear_at) = (Instant::now(), Instant::now());
    let mut patience = Instant::now() + stage.patience;
    loop {
        if ended_at.is_none() && *stage.curtain.borrow() {
            ended_at = Some(account.said);
            patience = Instant::now() + stage.patience;
        }
        let ended = ended_at.is_some();
        let due = part.length(ended_at).map(|length| length.saturating_sub(account.said));
        if due == Some(0) && !account.finished && (ended || part.last == Last::FinishAtOnce) {
            if part.last == Last::Reset {
                let _gone = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                account.end = End::Left;
                return account;
            }
            // Fails when the connection is gone, which the read tells.
            let _gone = SockRef::from(&stream).shutdown(Shutdown::Write);
            account.finished = true;
        }
        if account.finished && heard_all {
            return account;
        }
        // A stream that never has to wait would keep the thread from all others.
        tokio::task::yield_now().await;
        let now = Instant::now();
        let (may_say, may_hear) = (say_at <= now, ended || hear_at <= now);
        let waiting = match (may_say, may_hear) {
            (false, false) => Some(say_at.min(hear_at)),
            (false, true) => Some(say_at),
            (true, false) => Some(hear_at),
            (true, true) => None,
        };
        tokio::select! {
            biased;
            _ = stream.readable(), if may_hear && !heard_all => {
                let room = if ended { buffer.len() } else { part.hear.chunk };
                match stream.try_read(&mut buffer[..room]) {
                    Ok(0) => {
                        heard_all = true;
                        account.end = End::Clean;
                    }
                    Ok(size) => {
                        if let Some(at) = theirs.mismatch(account.heard, &buffer[..size]) {
                            account.end = End::Wrong(at);
                            return account;
                        }
                        if account.heard == 0 {
                            stage.begun.fetch_add(1, Ordering::SeqCst);
                        }
                        account.heard += size as u64;
                        stage.moved.fetch_add(size as u64, Ordering::SeqCst);
                        hear_at = now + part.hear.pause;
                        patience = now + stage.patience;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return broken(account, &error),
                }
            }
            _ = stream.writable(), if may_say && due != Some(0) => {
                if gone == ahead.len() {
                    ahead.resize(due.map_or(part.say.chunk, |due| part.say.chunk.min(due as usize)), 0);
                    mine.fill(account.said, &mut ahead);
                    gone = 0;
                }
                match stream.try_write(&ahead[gone..]) {
                    Ok(size) => {
                        account.said += size as u64;
                        gone += size;
                        if gone == ahead.len() {
                            say_at = now + part.say.pause;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return broken(account, &error),
                }
            }
            _ = stage.curtain.changed(), if !ended => {}
            () = sleep_until(waiting.unwrap_or(now)), if waiting.is_some() => {}
            () = sleep_until(patience), if ended => {
                account.end = End::Silent;
                return account;
            }
        }
    }
}

fn broken(mut account: Account, error: &std::io::Error) -> Account {
    account.end = End::Broken(error.to_string());
    account
}
