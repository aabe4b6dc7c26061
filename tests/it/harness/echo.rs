//! The setting most tests of the process life need: one rule in front of an echo server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::address::Loopback;
use super::instance::Instance;
use super::scratch::Scratch;
use super::upstream::Upstream;

/// A running instance, its entry, and the server behind it.
pub(crate) struct Echo {
    pub(crate) instance: Instance,
    pub(crate) entry: SocketAddr,
    pub(crate) _upstream: Upstream,
}

impl Echo {
    /// Starts with this `supervisor` section.
    pub(crate) fn start(mut supervisor: Value) -> Self {
        let ready = &mut supervisor["readyTimeout"];
        if ready.is_null() {
            // For a machine that is busy with something else.
            *ready = json!("3m");
        }
        let loopback = Loopback::unique();
        let upstream = Upstream::echo(loopback.next());
        let entry = loopback.next();
        let instance = Instance::start(&json!({
            "supervisor": supervisor,
            "rules": [{ "name": "echo", "listen": entry.to_string(), "mode": "normal",
                        "maxConnectionsPerIP": 4096,
                        "targets": [{ "address": upstream.address().to_string() }] }]
        }));
        Self { instance, entry, _upstream: upstream }
    }
}

/// Connections that have said nothing yet.
pub(crate) struct Parked(Vec<TcpStream>);

impl Parked {
    pub(crate) fn at(entry: SocketAddr, count: usize) -> Self {
        Self((0..count).map(|_| TcpStream::connect(entry).unwrap()).collect())
    }

    /// Every one of them is served by an echo server.
    pub(crate) fn expect_served(self) {
        assert_eq!(self.not_served(), 0);
    }

    /// How many are not served by an echo server, but reset.
    pub(crate) fn not_served(self) -> usize {
        let served = |mut stream: TcpStream| {
            let mut answer = [0; 4];
            stream.write_all(b"ping")?;
            stream.read_exact(&mut answer)?;
            assert_eq!(&answer, b"ping");
            std::io::Result::Ok(())
        };
        self.0.into_iter().map(served).filter(Result::is_err).count()
    }
}

/// A stand-in for a bad new version, under the name that tells it what to do.
pub(crate) fn faulty(scratch: &Scratch, manner: &str) -> String {
    let built = std::env::current_exe().unwrap();
    let source = built.parent().unwrap().parent().unwrap().join("examples/faulty_baton");
    assert!(source.exists(), "not built: run `cargo build --examples` (`cargo test` does)");
    let copy = scratch.path().join(manner);
    copy_program(&source, &copy);
    copy.display().to_string()
}

/// Copies a program that is to be run. By a process of its own: one that a neighbouring test is
/// just starting would hold a copy of our descriptor, and what is open for writing cannot be run.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "cannot copy {} to {}", from.display(), to.display());
}
