//! An upstream of the demo: sends everything back, and the end too.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

/// Starts one on a free loopback port; it lives as long as the demo's task set.
pub(crate) async fn start() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A broken connection is counted at the client's end.
            spawn_local(async move { drop(echo(stream).await) });
        }
    });
    Ok(address)
}

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 4096];
    loop {
        let size = stream.read(&mut buffer).await?;
        if size == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(buffer.get(..size).unwrap_or_default()).await?;
    }
}
