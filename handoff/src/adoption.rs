//! The socket at which a worker waits for another supervisor, should its own die.
//!
//! The supervisor binds it in its runtime directory, which only it can write to, and hands it over
//! in a message; the worker accepts there only while it has no supervisor. So nobody has to find
//! anything but a file, and a worker that runs as another user needs no place of its own.
//!
//! `std` and tokio know Unix sockets as streams only; what they do with one that listens is the
//! same for SEQPACKET, and they are used for nothing else.

use nix::unistd::Uid;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::net::UnixListener;

/// Binds the socket, mode 0600, CLOEXEC set. A file that is in the way is removed: the caller
/// holds the directory's lock, so it belongs to a worker that is gone.
///
/// # Errors
/// What the system said.
pub fn bind(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    socket.listen(1)?;
    Ok(socket.into())
}

/// Calls a worker; the supervisor's end of a fresh channel. Never blocks.
///
/// # Errors
/// `ECONNREFUSED`: nobody holds the socket any more. `EAGAIN`: somebody else is calling.
pub fn call(path: &Path) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
}

/// The worker's side.
#[derive(Debug)]
pub struct Waiting {
    listener: UnixListener,
}

impl Waiting {
    /// Takes the socket over. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When it cannot be registered.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        SockRef::from(&socket).set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(socket.into())? })
    }

    /// Waits for a supervisor: root, or a process of our own user. The worker's end of a fresh
    /// channel. May be dropped at any await.
    ///
    /// # Errors
    /// When no connection can be accepted, for want of a descriptor.
    pub async fn supervisor(&self) -> io::Result<OwnedFd> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let caller = stream.peer_cred()?.uid();
            if caller == 0 || caller == Uid::effective().as_raw() {
                return Ok(stream.into_std()?.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{HelloSupervisor, HelloWorker, ToSupervisor, ToWorker, WorkerId};
    use crate::{SupervisorEnd, WorkerEnd};

    #[tokio::test]
    async fn a_worker_that_waits_is_found_by_its_file() {
        let path = std::env::temp_dir().join(format!("baton-adopt-{}", std::process::id()));
        let waiting = Waiting::new(bind(&path).unwrap()).unwrap();
        let supervisor = SupervisorEnd::new(call(&path).unwrap()).unwrap();
        let hello = HelloWorker { worker: WorkerId(1), version: "1.0.0".into() };
        supervisor.send(&ToWorker::Hello(hello.clone()), &[]).await.unwrap();
        let worker = WorkerEnd::new(waiting.supervisor().await.unwrap()).unwrap();
        let received = worker.recv().await.unwrap();
        assert_eq!(received.message, ToWorker::Hello(hello));
        let hello = ToSupervisor::Hello(HelloSupervisor { version: "1.0.0".into(), pid: 1 });
        worker.reply(received.transaction, &hello).await.unwrap();
        assert_eq!(supervisor.recv().await.unwrap().message, hello);
        drop(waiting);
        let refused = call(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        drop(bind(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(call(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
