//! HAProxy: `mode tcp`, two threads, master and worker.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::{capacity, find_program, text, version_line};

pub(super) fn version() -> Result<String, String> {
    let missing = || "haproxy is not installed (Debian: apt-get install haproxy)".to_owned();
    let program = find_program("haproxy").ok_or_else(missing)?;
    version_line(&program, "-v").ok_or_else(missing)
}

pub(super) fn command(
    directory: &Path,
    port: u16,
    upstream: SocketAddr,
    splice: bool,
) -> io::Result<Vec<String>> {
    // Pipes take one descriptor more for every two connections.
    let most = if splice { capacity() * 4 / 5 } else { capacity() };
    let splice =
        if splice { "    option splice-request\n    option splice-response\n" } else { "" };
    let socket = text(&directory.join("admin.sock"));
    let config = format!(
        "global
    nbthread 2
    maxconn {most}
    stats socket {socket} mode 600 level admin expose-fd listeners
    log stderr local0 warning
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
{splice}frontend relay
    bind 127.0.0.1:{port}
    default_backend up
backend up
    server s1 {upstream}
"
    );
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, config)?;
    let program = find_program("haproxy").ok_or(io::ErrorKind::NotFound)?;
    Ok(vec![text(&program), "-W".into(), "-f".into(), text(&file)])
}
