//! A network with delay: `tests/tools/delaynet`, entered thread by thread.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use nix::sched::{CloneFlags, setns};

use super::scratch::Scratch;

const TOOL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/delaynet");

/// Two network namespaces with lines of given behaviour between them; gone on drop.
#[derive(Debug)]
pub(crate) struct DelayNet {
    host: Child,
    near: String,
    far: String,
    control: PathBuf,
    _scratch: Scratch,
}

impl DelayNet {
    /// A network with so many lines, all without delay. Nothing where this machine has none: then
    /// the reason why `test` is skipped is on the terminal.
    pub(crate) fn start(test: &str, lines: u8) -> Option<Self> {
        // Once, and before any other: the first namespace of a machine sets up where they live.
        static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
        let obstacle = OBSTACLE.get_or_init(|| {
            let probe = Command::new(TOOL).arg("probe").output().unwrap();
            let said = || String::from_utf8_lossy(&probe.stdout).trim().to_owned();
            (!probe.status.success()).then(said)
        });
        if let Some(obstacle) = obstacle {
            eprintln!("SKIPPED {test}: {obstacle}");
            return None;
        }
        let scratch = Scratch::new();
        let control = scratch.path().join("delaynet");
        let mut host = Command::new(TOOL)
            .args(["--lines", &lines.to_string(), "--socket"])
            .arg(&control)
            .args(["--", "sh", "-c", "echo $DELAYNET_NEAR $DELAYNET_FAR; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut names = String::new();
        BufReader::new(host.stdout.take().unwrap()).read_line(&mut names).unwrap();
        let (near, far) = names.trim().split_once(' ').expect("both namespaces");
        let (near, far) = (near.to_owned(), far.to_owned());
        Some(Self { host, near, far, control, _scratch: scratch })
    }

    /// Where the far end of a line listens; lines count from 1.
    pub(crate) fn line(number: u8) -> SocketAddr {
        (Ipv4Addr::new(10, 88, number, 1), 7000).into()
    }

    /// Changes lines, in the tool's words: `1 rtt=40`.
    pub(crate) fn set(&self, change: &str) {
        let mut stream = UnixStream::connect(&self.control).unwrap();
        stream.write_all(format!("{change}\n").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "ok\n", "{change}");
    }

    /// Does something where the clients and the gateway are. Sockets made there stay there.
    pub(crate) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.near, work)
    }

    /// Does something where the lines end.
    pub(crate) fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.far, work)
    }
}

/// A thread's namespace is its own, and what it starts inherits it.
fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let namespace = File::open(Path::new("/var/run/netns").join(namespace)).unwrap();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Drop for DelayNet {
    fn drop(&mut self) {
        // The command inside ends with its input, and the tool takes everything down after it.
        drop(self.host.stdin.take());
        let _reaped = self.host.wait();
    }
}
