//! Connections of every kind through the gateway, played from both ends in one thread.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use super::part::{Account, End, Kind, Stage, play};
use super::verdict::{Verdict, verdict};
use crate::harness::{PATIENCE, Pattern, until};

/// What a connection says before its stream: which one it is.
const HEADER: usize = 8;

/// The server's side of connections that have not arrived yet.
type Expected = Arc<Mutex<HashMap<u64, Role>>>;

#[derive(Debug)]
struct Role {
    kind: Kind,
    stage: Stage,
    account: oneshot::Sender<Account>,
}

/// The server behind the gateway, and the thread on which everything is played.
#[derive(Debug)]
pub(crate) struct Theatre {
    address: SocketAddr,
    handle: Handle,
    expected: Expected,
    numbers: AtomicU64,
    close: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Connections that are played together.
#[derive(Debug)]
pub(crate) struct Act<'t> {
    theatre: &'t Theatre,
    curtain: watch::Sender<bool>,
    moved: Arc<AtomicU64>,
    players: Vec<Player>,
}

#[derive(Debug)]
struct Player {
    number: u64,
    kind: Kind,
    client: tokio::task::JoinHandle<Account>,
    server: oneshot::Receiver<Account>,
}

impl Theatre {
    /// Listens at `address`.
    pub(crate) fn open(address: SocketAddr) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let expected = Expected::default();
        let (close, closed) = oneshot::channel();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn({
            let expected = Arc::clone(&expected);
            move || {
                runtime.block_on(async move {
                    tokio::select! {
                        () = serve(listener, expected) => {}
                        _ = closed => {}
                    }
                });
            }
        });
        let numbers = AtomicU64::new(1);
        Self { address, handle, expected, numbers, close: Some(close), thread: Some(thread) }
    }

    /// Where the gateway finds it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a connection of each of these kinds and waits until all have said and heard
    /// something, or have ended.
    pub(crate) fn raise(&self, entry: SocketAddr, kinds: &[Kind]) -> Act<'_> {
        let (curtain, watched) = watch::channel(false);
        let (moved, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stage = Stage {
            curtain: watched,
            moved: Arc::clone(&moved),
            begun: Arc::clone(&begun),
            patience: PATIENCE,
        };
        let players: Vec<_> =
            kinds.iter().map(|&kind| self.player(entry, kind, stage.clone())).collect();
        until("every connection has begun", || {
            let ended = players.iter().filter(|player| player.client.is_finished()).count();
            let begun = begun.load(Ordering::SeqCst) as usize;
            (begun >= 2 * (players.len() - ended)).then_some(())
        });
        Act { theatre: self, curtain, moved, players }
    }

    fn player(&self, entry: SocketAddr, kind: Kind, stage: Stage) -> Player {
        let number = self.numbers.fetch_add(1, Ordering::SeqCst);
        let (account, server) = oneshot::channel();
        let role = Role { kind, stage: stage.clone(), account };
        self.expected.lock().unwrap().insert(number, role);
        let client = self.handle.spawn(async move {
            match call(entry, number).await {
                Ok(stream) => play(stream, kind.client(), patterns(number), stage).await,
                Err(error) => {
                    let end = End::Broken(format!("connect: {error}"));
                    Account { said: 0, finished: false, heard: 0, end }
                }
            }
        });
        Player { number, kind, client, server }
    }
}

impl Act<'_> {
    /// Waits until that many more bytes have arrived, at either side of any connection.
    pub(crate) fn wait_moved(&self, bytes: u64) {
        let start = self.moved.load(Ordering::SeqCst);
        until("bytes move", || {
            let over = self.players.iter().all(|player| player.client.is_finished());
            (over || self.moved.load(Ordering::SeqCst) >= start + bytes).then_some(())
        });
    }

    /// Lets every connection say its last and end; what became of each.
    pub(crate) fn curtain(self) -> Vec<(Kind, Verdict)> {
        let Self { theatre, curtain, players, .. } = self;
        curtain.send_replace(true);
        let (told, fates) = std::sync::mpsc::channel();
        theatre.handle.spawn({
            let expected = Arc::clone(&theatre.expected);
            async move {
                for Player { number, kind, client, server } in players {
                    let client = client.await.unwrap();
                    // One that did not arrive while its client lived does not arrive any more.
                    drop(expected.lock().unwrap().remove(&number));
                    let server = server.await.ok();
                    let _gone = told.send((kind, verdict(&client, server.as_ref())));
                }
            }
        });
        fates.iter().collect()
    }
}

impl Drop for Theatre {
    fn drop(&mut self) {
        drop(self.close.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

async fn call(entry: SocketAddr, number: u64) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(entry).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&number.to_le_bytes()).await?;
    Ok(stream)
}

async fn serve(listener: TcpListener, expected: Expected) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let expected = Arc::clone(&expected);
        tokio::spawn(async move {
            let mut header = [0; HEADER];
            if stream.set_nodelay(true).is_err() || stream.read_exact(&mut header).await.is_err() {
                return;
            }
            let number = u64::from_le_bytes(header);
            let role = expected.lock().unwrap().remove(&number);
            let Some(Role { kind, stage, account }) = role else { return };
            let [theirs, mine] = patterns(number);
            let seen = play(stream, kind.server(), [mine, theirs], stage).await;
            let _nobody_asks = account.send(seen);
        });
    }
}

/// What the client says and what it hears.
fn patterns(number: u64) -> [Pattern; 2] {
    [Pattern(number << 1), Pattern(number << 1 | 1)]
}
