//! The relay with its reactor, between Unix sockets: those hand bytes over within the call, so
//! the same instructions run each time. What the kernel does is not counted.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use baton_handoff::table::Lane;
use baton_worker::flow::Moment;
use baton_worker::relay::{Control, Relay, RelayContext};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::{JoinHandle, spawn_local, yield_now};

use super::{Path, books};

/// A large transfer: more than a turn, so that the direction splices.
const BULK: usize = 1 << 20;

/// All of them.
pub(crate) fn paths() -> Vec<Path> {
    let (short, long) = (Bed::new(), Bed::new());
    let connection = long.connect();
    let bulk = Bed::new();
    let stream = bulk.connect();
    vec![
        Path::new("relay: a connection with one message", move || {
            let connection = short.connect();
            short.carry(&connection, 64);
            short.end(connection);
        }),
        Path::new("relay: a message of 64 bytes", move || long.carry(&connection, 64)),
        Path::new("relay: 1 MiB in bulk", move || bulk.carry(&stream, BULK)),
    ]
}

/// A thread's part of a worker.
struct Bed {
    runtime: LocalRuntime,
    context: Rc<RelayContext>,
    lane: Rc<Lane>,
    /// The peers'; clearing one each time would be most of what is counted.
    buffer: RefCell<Box<[u8]>>,
}

/// The far ends of a relayed connection.
struct Connection {
    client: UnixStream,
    upstream: UnixStream,
    task: JoinHandle<()>,
}

impl Bed {
    fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build_local(LocalOptions::default())
            .unwrap_or_else(|error| panic!("a runtime: {error}"));
        let buffer = vec![0; 64 << 10].into();
        Self { runtime, context: Rc::default(), lane: books::lane(), buffer: RefCell::new(buffer) }
    }

    #[allow(clippy::async_yields_async, reason = "the task is to go on by itself")]
    fn connect(&self) -> Connection {
        let ((client, near), (upstream, far)) = (pair(), pair());
        let (context, control) = (Rc::clone(&self.context), Rc::new(Control::new(Moment(1))));
        let slot = books::slot(&self.lane);
        let task = self.runtime.block_on(async move {
            let (near, far) = (OwnedFd::from(near).into(), OwnedFd::from(far).into());
            let relay = Relay::new(near, far, Vec::new(), context, control, ())
                .unwrap_or_else(|outcome| panic!("{outcome:?}"))
                .journaled(slot);
            spawn_local(async move {
                relay.await;
            })
        });
        Connection { client, upstream, task }
    }

    /// From the client to the upstream.
    fn carry(&self, connection: &Connection, bytes: usize) {
        let buffer = &mut **self.buffer.borrow_mut();
        self.runtime.block_on(async {
            let (mut sent, mut received) = (0, 0);
            while received < bytes {
                if sent < bytes {
                    let chunk = buffer.len().min(bytes - sent);
                    sent += now((&connection.client).write(&buffer[..chunk]));
                }
                match now((&connection.upstream).read(buffer)) {
                    0 => yield_now().await,
                    count => received += count,
                }
            }
        });
    }

    fn end(&self, connection: Connection) {
        let Connection { client, upstream, task } = connection;
        drop((client, upstream));
        self.runtime.block_on(task).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// What an operation that does not wait has moved.
fn now(result: std::io::Result<usize>) -> usize {
    match result {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

fn pair() -> (UnixStream, UnixStream) {
    let ends = UnixStream::pair().and_then(|(near, far)| {
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok((near, far))
    });
    ends.unwrap_or_else(|error| panic!("a pair of sockets: {error}"))
}
