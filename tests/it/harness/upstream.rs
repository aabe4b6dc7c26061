//! Servers behind the gateway, each on threads of its own.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use socket2::SockRef;

/// A running server; dropping it stops accepting and waits for its connections to end.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicU64>,
    listener: TcpListener,
    acceptor: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Sends everything back, and the end too.
    pub(crate) fn echo(address: SocketAddr) -> Self {
        Self::serve(address, |mut stream| {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(size @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..size]).is_err() {
                    return;
                }
            }
            let _gone = stream.shutdown(Shutdown::Write);
        })
    }

    /// Says `name` at once and ends: tells which target a connection reached. Hears the client
    /// out all the same: to close with a byte unread is a reset, which may overtake the name.
    pub(crate) fn named(address: SocketAddr, name: &'static str) -> Self {
        Self::serve(address, move |mut stream| {
            let _gone = stream.write_all(name.as_bytes());
            let _gone = stream.shutdown(Shutdown::Write);
            let _gone = std::io::copy(&mut stream, &mut std::io::sink());
        })
    }

    /// Hears the client out, then says `name:` and all it has heard.
    pub(crate) fn reporting(address: SocketAddr, name: &'static str) -> Self {
        Self::serve(address, move |mut stream| {
            let mut heard = format!("{name}:").into_bytes();
            if stream.read_to_end(&mut heard).is_ok() {
                let _gone = stream.write_all(&heard);
            }
        })
    }

    /// Calls `conversation` on a thread of its own for every connection.
    pub(crate) fn serve(
        address: SocketAddr,
        conversation: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let accepted = Arc::new(AtomicU64::new(0));
        let waking = listener.try_clone().unwrap();
        let acceptor = std::thread::spawn({
            let (stop, accepted) = (Arc::clone(&stop), Arc::clone(&accepted));
            let conversation = Arc::new(conversation);
            move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(stream) = stream else { continue };
                    accepted.fetch_add(1, Ordering::SeqCst);
                    let conversation = Arc::clone(&conversation);
                    std::thread::spawn(move || conversation(stream));
                }
            }
        });
        Self { address, stop, accepted, listener: waking, acceptor: Some(acceptor) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the acceptor, in whatever network namespace it is.
        let _woken = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ended = acceptor.join();
        }
    }
}
