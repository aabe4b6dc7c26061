//! The server that stands behind every target.
//!
//! Threads share one listener. A connection is served by the thread that accepted it, unless
//! that thread has clearly more than another: bulk measurements with few connections would
//! otherwise depend on how the kernel dealt them out.

mod session;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

/// A thread hands a connection over only when it has this many more than the idlest.
const SLACK: usize = 4;

/// A running upstream; dropping it stops its threads and cuts what is open.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// What the threads know of one another.
#[derive(Debug)]
struct Peer {
    live: AtomicUsize,
    inbox: mpsc::UnboundedSender<std::net::TcpStream>,
}

impl Upstream {
    /// Listens on `address` (port 0 picks one) with so many threads.
    pub(crate) fn start(address: SocketAddr, threads: usize) -> io::Result<Self> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        let (stop, stopping) = watch::channel(false);
        let (senders, inboxes): (Vec<_>, Vec<_>) =
            (0..threads.max(1)).map(|_| mpsc::unbounded_channel()).unzip();
        let peers: Arc<[Peer]> =
            senders.into_iter().map(|inbox| Peer { live: AtomicUsize::new(0), inbox }).collect();
        let mut running = Vec::new();
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let (listener, peers, stopping) =
                (listener.try_clone()?, Arc::clone(&peers), stopping.clone());
            running.push(thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(serve(listener, index, &peers, inbox, stopping))
            }));
        }
        Ok(Self { address, stop, threads: running })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it ends, which by itself it does only when accepting fails for good.
    pub(crate) fn wait(mut self) -> io::Result<()> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| io::Error::other("a thread of the upstream panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            // It ends with us in any case; there is nobody left to tell about an error.
            let _ = thread.join();
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit it: one call for all of them.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

async fn serve(
    listener: TcpListener,
    index: usize,
    peers: &Arc<[Peer]>,
    mut inbox: mpsc::UnboundedReceiver<std::net::TcpStream>,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => place(socket, index, peers)?,
                Err(error) if out_of_descriptors(&error) => {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                // A client that left while it waited; the next one is not to blame.
                Err(_) => {}
            },
            handed = inbox.recv() => {
                if let Some(socket) = handed {
                    spawn(TcpStream::from_std(socket)?, index, peers);
                }
            }
            _ = stopping.changed() => return Ok(()),
        }
    }
}

fn out_of_descriptors(error: &io::Error) -> bool {
    use nix::errno::Errno;
    error
        .raw_os_error()
        .is_some_and(|raw| raw == Errno::EMFILE as i32 || raw == Errno::ENFILE as i32)
}

/// Serves a connection here, or sends it to a thread with less to do.
fn place(socket: TcpStream, index: usize, peers: &Arc<[Peer]>) -> io::Result<()> {
    let mine = peers[index].live.fetch_add(1, Relaxed);
    let idlest = (0..peers.len()).min_by_key(|i| peers[*i].live.load(Relaxed)).unwrap_or(index);
    let theirs = peers[idlest].live.load(Relaxed);
    if idlest == index || mine <= theirs + SLACK.max(theirs / 8) {
        spawn_counted(socket, index, peers);
        return Ok(());
    }
    peers[index].live.fetch_sub(1, Relaxed);
    let socket = socket.into_std()?;
    // A closed inbox means that we are stopping: the connection is dropped with everything.
    let _ = peers[idlest].inbox.send(socket);
    Ok(())
}

fn spawn(socket: TcpStream, index: usize, peers: &Arc<[Peer]>) {
    peers[index].live.fetch_add(1, Relaxed);
    spawn_counted(socket, index, peers);
}

fn spawn_counted(socket: TcpStream, index: usize, peers: &Arc<[Peer]>) {
    let peers = Arc::clone(peers);
    tokio::spawn(async move {
        // What went wrong on a connection is seen and reported by its client.
        let _ = session::run(socket).await;
        peers[index].live.fetch_sub(1, Relaxed);
    });
}
