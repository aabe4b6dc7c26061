//! One instance on its own thread, and the test as its control client.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::mpsc as sync;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use baton_config::model::{Level, Supervisor};
use baton_metrics::Reader;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;

use super::super::Driver;
use super::double::{Doubles, Push, Script};
use crate::control::client::Conversation;
use crate::control::protocol::{Done, Request, Response, Status};
use crate::control::server::ControlSocket;
use crate::event::Event;
use crate::options::{ConfigSource, Options, StartError};
use crate::runtime_dir::{CONTROL_SOCKET, RuntimeDir};

/// A machine that builds eight things at once must not fail a test that is right.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for what needs nobody's help any more.
pub(super) fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "never came: {what}");
        std::thread::yield_now();
    }
}

static COUNT: AtomicU32 = AtomicU32::new(0);

pub(super) struct Instance {
    dir: PathBuf,
    addresses: Vec<SocketAddr>,
    pushes: Vec<mpsc::UnboundedSender<Push>>,
    thread: JoinHandle<Result<ExitCode, StartError>>,
    /// A port that is taken, as long as it is wanted.
    _busy: Option<TcpListener>,
}

impl Instance {
    /// Started and serving.
    pub(super) fn start(scripts: &[Script]) -> Self {
        let instance = Self::launch(scripts);
        instance.status_when(|status| status.supervisor.state == "running");
        instance
    }

    /// Started, for better or worse.
    pub(super) fn launch(scripts: &[Script]) -> Self {
        Self::launch_at(scripts, vec![free_address()], None)
    }

    pub(super) fn launch_with_busy_port() -> Self {
        let address = free_address();
        let busy = TcpListener::bind(address).unwrap();
        Self::launch_at(&[Script::Good], vec![address], Some(busy))
    }

    fn launch_at(
        scripts: &[Script],
        addresses: Vec<SocketAddr>,
        busy: Option<TcpListener>,
    ) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("baton-drv-{}-{number}", std::process::id()));
        let _former = std::fs::remove_dir_all(&dir);
        let (cast, pushes) = scripts
            .iter()
            .map(|script| {
                let (push, pushed) = mpsc::unbounded_channel();
                ((script.clone(), pushed), push)
            })
            .unzip();
        std::fs::create_dir(&dir).unwrap();
        write_config(&dir, &addresses);
        let (bound, is_bound) = sync::channel();
        let runtime_dir = dir.clone();
        let thread = std::thread::spawn(move || serve(&runtime_dir, cast, &bound));
        is_bound.recv().unwrap();
        Self { dir, addresses, pushes, thread, _busy: busy }
    }

    pub(super) fn address(&self, index: usize) -> SocketAddr {
        self.addresses[index]
    }

    pub(super) fn control_socket(&self) -> PathBuf {
        self.dir.join("run").join(CONTROL_SOCKET)
    }

    /// Writes a configuration with this many listeners; those it had before stay.
    pub(super) fn configure(&mut self, listeners: usize) {
        while self.addresses.len() < listeners {
            self.addresses.push(free_address());
        }
        write_config(&self.dir, &self.addresses);
    }

    pub(super) fn status(&self) -> Status {
        let mut conversation = self.conversation(&Request::Status);
        match conversation.next_response().unwrap() {
            Response::Status(status) => *status,
            other @ (Response::Progress { .. } | Response::Answer { .. } | Response::Done(_)) => {
                panic!("{other:?}")
            }
        }
    }

    /// The first status that fits.
    pub(super) fn status_when(&self, fits: impl Fn(&Status) -> bool) -> Status {
        let begin = Instant::now();
        loop {
            let status = self.status();
            if fits(&status) {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "it stays at {status:?}");
            std::thread::yield_now();
        }
    }

    pub(super) fn ask(&self, request: &Request) -> (Vec<String>, Done) {
        let mut conversation = self.conversation(request);
        let mut phases = Vec::new();
        loop {
            match conversation.next_response().unwrap() {
                Response::Progress { phase, .. } => phases.push(phase),
                Response::Done(done) => return (phases, done),
                other @ (Response::Status(_) | Response::Answer { .. }) => panic!("{other:?}"),
            }
        }
    }

    pub(super) fn conversation(&self, request: &Request) -> Conversation {
        let conversation = Conversation::start(&self.dir.join("run"), request).unwrap();
        conversation.set_patience(PATIENCE).unwrap();
        conversation
    }

    pub(super) fn kill(&self, double: usize) {
        self.pushes[double].send(Push::Die).unwrap();
    }

    pub(super) fn garbage(&self, double: usize) {
        self.pushes[double].send(Push::Garbage).unwrap();
    }

    pub(super) fn flood(&self, double: usize) {
        self.pushes[double].send(Push::Flood).unwrap();
    }

    /// The value of a series, as a scrape shows it.
    pub(super) fn metric(&self, series: &str) -> Option<String> {
        let text = Reader::open(&self.dir.join("run")).unwrap().encode_text().unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{series} ")))?;
        line.rsplit(' ').next().map(str::to_owned)
    }

    /// Stopped, and clean.
    pub(super) fn stop(self) {
        let (_, done) = self.ask(&Request::Stop);
        assert!(done.ok, "{done:?}");
        self.finish().unwrap();
    }

    /// Waits for its end.
    pub(super) fn finish(self) -> Result<ExitCode, StartError> {
        let result = self.thread.join().unwrap();
        std::fs::remove_dir_all(&self.dir).unwrap();
        result
    }
}

fn serve(
    dir: &Path,
    cast: Vec<(Script, mpsc::UnboundedReceiver<Push>)>,
    bound: &sync::Sender<()>,
) -> Result<ExitCode, StartError> {
    let runtime_dir = Rc::new(RuntimeDir::open(&dir.join("run")).unwrap());
    let options = Options {
        binary: std::fs::canonicalize("/bin/sh").unwrap(),
        source: ConfigSource::File(dir.join("a.json")),
        process: settings(),
        runtime_dir: runtime_dir.path().into(),
        version: "0.0.0".into(),
        log: Level::Info,
    };
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let driver = Driver::new(options, Rc::clone(&runtime_dir), Doubles::new(cast))?;
        let control = ControlSocket::bind(&runtime_dir.control_socket()).unwrap();
        bound.send(()).unwrap();
        driver.run(Event::Start, control, None).await
    })
}

/// Every default, but no watch: the tests are about the driver.
fn settings() -> Supervisor {
    let mut settings = baton_config::process::read("test", b"{}").unwrap();
    settings.watch = Duration::ZERO;
    settings.region_size = 64 * 1024;
    settings
}

fn write_config(dir: &Path, addresses: &[SocketAddr]) {
    let lines: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    std::fs::write(dir.join("a.json"), lines.join("\n")).unwrap();
}

/// An address nobody else uses: a loopback address of this process's own, and a port that was not
/// given out before.
fn free_address() -> SocketAddr {
    // Below those that the kernel gives out by itself.
    static PORT: AtomicU16 = AtomicU16::new(10_000);
    let [a, b, ..] = std::process::id().to_le_bytes();
    let own = std::net::Ipv4Addr::new(127, 77, a, b.max(1));
    (own, PORT.fetch_add(1, Ordering::Relaxed)).into()
}
