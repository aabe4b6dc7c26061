//! Clients of the gateway that say something and listen.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::wait::PATIENCE;

/// Connects and listens to the end.
pub(crate) fn hear(entry: SocketAddr) -> std::io::Result<String> {
    let mut stream = connect(entry)?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard)?;
    Ok(heard)
}

/// Sends `bytes`, finishes, and listens to the end.
pub(crate) fn converse(entry: SocketAddr, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    deliver(entry, [bytes])
}

/// Sends every piece in a segment of its own, finishes, and listens to the end.
pub(crate) fn deliver<'a>(
    entry: SocketAddr,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> std::io::Result<Vec<u8>> {
    let mut stream = connect(entry)?;
    for piece in pieces {
        stream.write_all(piece)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard)?;
    Ok(heard)
}

fn connect(entry: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&entry, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
