//! The other side of a worker under test.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use baton_handoff::message::{
    Drain, Generation, HelloWorker, ListenerKey, Listeners, Plan, Prepare, Pulse, ToSupervisor,
    ToWorker, WorkerId,
};
use baton_handoff::{Received, RecvError, SupervisorEnd, Transaction, pair};
use baton_metrics::Region;
use tokio::runtime::Runtime;

use crate::boot::Early;
use crate::keeper::testing::{Line, Spawned};
use crate::net::testing::{PATIENCE, black_hole, own_address};

/// A supervisor.
pub(super) struct Boss {
    runtime: Runtime,
    end: SupervisorEnd,
    worker: Option<Running>,
    /// What the supervisor gives to others.
    pub(super) id: WorkerId,
    /// The table and the keeper's socket, once they have come.
    pub(super) lifeline: Option<[OwnedFd; 2]>,
    listeners: HashMap<String, TcpListener>,
    region: Region,
    dir: Option<TempDir>,
    fresh: bool,
}

static INSTANCES: AtomicU32 = AtomicU32::new(0);
static WORKERS: AtomicU32 = AtomicU32::new(1);

/// The worker itself.
enum Running {
    Thread(JoinHandle<ExitCode>),
    /// With a keeper, and to be killed.
    Process(Spawned),
}

impl Running {
    fn thread(control: OwnedFd) -> Self {
        Self::Thread(thread::spawn(move || crate::boot::run(control, None, None)))
    }

    fn process(control: &OwnedFd) -> Self {
        let process = Spawned::run("boot::tests::boss::process");
        process.line.say("control", &[control.as_fd()]);
        Self::Process(process)
    }

    /// Waits for its end; whether it was in order.
    fn ended(self) -> bool {
        match self {
            Self::Thread(thread) => thread.join().unwrap() == ExitCode::SUCCESS,
            Self::Process(process) => process.succeeded(),
        }
    }
}

/// The process: its line brings the control socket.
#[test]
#[ignore = "child process of other tests"]
fn process() {
    let early = Early::start();
    let (_, mut fds) = Line::to_parent().hear().unwrap();
    let code = crate::boot::run(fds.remove(0), None, Some(early));
    assert_eq!(code, ExitCode::SUCCESS);
}

/// A directory that is removed with its last user.
#[derive(Debug)]
struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

impl Boss {
    /// A worker that has said hello.
    pub(super) fn greeted() -> Self {
        let dir = std::env::temp_dir().join(format!(
            "baton-worker-{}-{}",
            std::process::id(),
            INSTANCES.fetch_add(1, Ordering::Relaxed)
        ));
        // Of a process that had this number before and was killed.
        let _former = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let region = Region::create(&dir, 4 << 20).unwrap();
        Self::with_region(region, Some(TempDir(dir)), false)
    }

    /// The next worker of the same instance, after this one has drained.
    pub(super) fn succeeded(mut self) -> Self {
        assert_eq!(self.drain(PATIENCE), 0);
        self.worker.take().unwrap().ended();
        let dir = self.dir.take();
        let listeners = std::mem::take(&mut self.listeners);
        Self { listeners, ..Self::with_region(self.same_region(), dir, false) }
    }

    /// Another worker of the same instance, as a process of its own or not.
    pub(super) fn beside(&self, process: bool) -> Self {
        let copy =
            |(key, listener): (&String, &TcpListener)| (key.clone(), listener.try_clone().unwrap());
        let listeners = self.listeners.iter().map(copy).collect();
        Self { listeners, ..Self::with_region(self.same_region(), None, process) }
    }

    /// A worker that is a process of its own.
    pub(super) fn process() -> Self {
        Self::greeted().beside(true)
    }

    fn same_region(&self) -> Region {
        Region::attach(self.region.as_fd().try_clone_to_owned().unwrap()).unwrap()
    }

    fn with_region(region: Region, dir: Option<TempDir>, process: bool) -> Self {
        let (ours, theirs) = pair().unwrap();
        let worker = if process { Running::process(&theirs) } else { Running::thread(theirs) };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .unwrap();
        let end = runtime.block_on(async { SupervisorEnd::new(ours).unwrap() });
        let mut boss = Self {
            runtime,
            end,
            worker: Some(worker),
            id: WorkerId(WORKERS.fetch_add(1, Ordering::Relaxed)),
            lifeline: None,
            listeners: HashMap::new(),
            region,
            dir,
            fresh: true,
        };
        boss.say(&ToWorker::Hello(HelloWorker { worker: boss.id, version: "t".to_owned() }), &[]);
        let hello = boss.hear();
        assert!(matches!(hello, ToSupervisor::Hello(_)), "{hello:?}");
        boss
    }

    /// Binds an address for a rule and keeps the socket.
    pub(super) fn listen(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        self.listeners.insert(address.to_string(), listener);
        address
    }

    pub(super) fn say(&mut self, message: &ToWorker, fds: &[BorrowedFd<'_>]) -> Transaction {
        self.runtime.block_on(self.end.send(message, fds)).unwrap()
    }

    /// The next message that is no sign of life.
    pub(super) fn hear(&mut self) -> ToSupervisor {
        loop {
            match self.hear_anything() {
                Some((ToSupervisor::Pong(_) | ToSupervisor::Lifeline, _)) => {}
                Some((message, _)) => return message,
                None => panic!("the worker has closed its end"),
            }
        }
    }

    /// The next message; `None` when the worker is gone.
    fn hear_anything(&mut self) -> Option<(ToSupervisor, Transaction)> {
        let received = self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, self.end.recv()).await.expect("an answer in time")
        });
        match received {
            Ok(Received { message, fds, transaction }) => {
                if message == ToSupervisor::Lifeline {
                    self.lifeline = Some(fds.try_into().unwrap());
                }
                Some((message, transaction))
            }
            Err(RecvError::Closed) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The region's text, which needs no word of the worker.
    pub(super) fn metrics(&self) -> String {
        self.region.encode_text().unwrap()
    }

    /// Waits until the region's text is as wanted; the worker is kept in conversation.
    pub(super) fn metrics_until(&mut self, wanted: impl Fn(&str) -> bool) {
        let begun = std::time::Instant::now();
        loop {
            self.ping();
            let text = self.metrics();
            if wanted(&text) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "still {text}");
        }
    }

    /// A sign of life, asked for.
    pub(super) fn ping(&mut self) -> Pulse {
        let asked = self.say(&ToWorker::Ping, &[]);
        loop {
            match self.hear_anything() {
                Some((ToSupervisor::Pong(pulse), answered)) if answered == asked => return pulse,
                // One that was sent unasked may be older than the question.
                Some((ToSupervisor::Pong(_), _)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until a pulse is as wanted.
    pub(super) fn pulse_until(&mut self, wanted: impl Fn(&Pulse) -> bool) -> Pulse {
        let begun = std::time::Instant::now();
        loop {
            let pulse = self.ping();
            if wanted(&pulse) {
                return pulse;
            }
            assert!(begun.elapsed() < PATIENCE, "still {pulse:?}");
        }
    }

    /// Offers a configuration; the plan or the problems.
    pub(super) fn prepare(&mut self, number: u64, config: &str) -> Result<Plan, Vec<String>> {
        let prepare = Prepare {
            generation: Generation(number),
            source: "test.json".to_owned(),
            config: config.as_bytes().to_vec(),
        };
        let region = self.region.as_fd().try_clone_to_owned().unwrap();
        let fds = if self.fresh { vec![region.as_fd()] } else { Vec::new() };
        self.fresh = false;
        self.say(&ToWorker::Prepare(prepare), &fds);
        match self.hear() {
            ToSupervisor::Plan(plan) => Ok(plan),
            ToSupervisor::Refused(refused) => Err(refused.problems),
            other => panic!("{other:?}"),
        }
    }

    /// Hands over the sockets of a plan and hears that the generation is ready.
    pub(super) fn hand_over(&mut self, plan: &Plan) {
        let keys: Vec<ListenerKey> =
            plan.listeners.iter().map(|wanted| wanted.key.clone()).collect();
        let message = ToWorker::Listeners(Listeners {
            generation: plan.generation,
            keys: keys.clone(),
            last: true,
        });
        let copies: Vec<OwnedFd> =
            keys.iter().map(|key| self.listeners[&key.0].try_clone().unwrap().into()).collect();
        let fds: Vec<BorrowedFd<'_>> = copies.iter().map(|copy| copy.as_fd()).collect();
        self.say(&message, &fds);
        assert_eq!(self.hear(), ToSupervisor::Ready(plan.generation));
    }

    /// Leads the worker to serve these rules.
    pub(super) fn serve(&mut self, number: u64, rules: &[String]) {
        self.serve_config(number, &config(rules));
    }

    /// Leads the worker to serve this configuration.
    pub(super) fn serve_config(&mut self, number: u64, config: &str) {
        let plan = self.prepare(number, config).unwrap();
        assert!(!plan.unchanged);
        self.hand_over(&plan);
        self.activate(number);
    }

    pub(super) fn activate(&mut self, number: u64) {
        self.say(&ToWorker::Activate(Generation(number)), &[]);
        assert_eq!(self.hear(), ToSupervisor::Active(Generation(number)));
    }

    pub(super) fn quiesce(&mut self) {
        self.say(&ToWorker::Quiesce, &[]);
        assert_eq!(self.hear(), ToSupervisor::Quiesced);
    }

    pub(super) fn begin_drain(&mut self, limit: Duration) {
        let timeout_ms = u64::try_from(limit.as_millis()).unwrap();
        self.say(&ToWorker::Drain(Drain { timeout_ms }), &[]);
    }

    /// Drains; how many connections were cut.
    pub(super) fn drain(&mut self, limit: Duration) -> u64 {
        self.begin_drain(limit);
        match self.hear() {
            ToSupervisor::Drained { cut } => cut,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the worker's end; whether its exit code was 0.
    pub(super) fn ended(mut self) -> bool {
        self.worker.take().unwrap().ended()
    }

    /// Kills a worker that is a process; what it left.
    pub(super) fn kill(mut self) -> (WorkerId, [OwnedFd; 2]) {
        match self.worker.take() {
            Some(Running::Process(mut process)) => process.kill(),
            Some(Running::Thread(_)) | None => panic!("no process"),
        }
        (self.id, self.lifeline.take().unwrap())
    }

    /// Stops a worker that is a process where it is.
    pub(super) fn freeze(&self) {
        match &self.worker {
            Some(Running::Process(process)) => process.stop(),
            Some(Running::Thread(_)) | None => panic!("no process"),
        }
    }

    /// Goes away without a word; the worker is left to itself.
    pub(super) fn vanish(mut self) -> JoinHandle<ExitCode> {
        match self.worker.take() {
            Some(Running::Thread(thread)) => thread,
            Some(Running::Process(_)) | None => panic!("no thread"),
        }
    }
}

/// A configuration of these rules.
pub(super) fn config(rules: &[String]) -> String {
    format!(r#"{{"supervisor":{{"workerThreads":2}},"rules":[{}]}}"#, rules.join(","))
}

/// A configuration of these rules with an admin listener.
pub(super) fn config_with_admin(admin: SocketAddr, rules: &[String]) -> String {
    config(rules).replacen(
        '{',
        &format!(r#"{{"metrics":{{"enabled":true,"listen":"{admin}"}},"#),
        1,
    )
}

/// The answer of the admin server to a GET.
pub(super) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A rule in mode `normal`.
pub(super) fn rule(name: &str, listen: SocketAddr, targets: &[SocketAddr]) -> String {
    rule_with(name, listen, targets, r#""mode":"normal""#)
}

/// A rule with these further fields.
pub(super) fn rule_with(
    name: &str,
    listen: SocketAddr,
    targets: &[SocketAddr],
    fields: &str,
) -> String {
    let targets: Vec<String> =
        targets.iter().map(|target| format!(r#"{{"address":"{target}"}}"#)).collect();
    let targets = targets.join(",");
    format!(r#"{{"name":"{name}","listen":"{listen}",{fields},"targets":[{targets}]}}"#)
}

/// A server that lives as long as its process.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
}

impl Upstream {
    /// Gives back what it gets, and its own FIN after the client's.
    pub(super) fn echo() -> Self {
        Self::with(|mut stream| {
            let mut writer = stream.try_clone()?;
            io::copy(&mut stream, &mut writer).map(drop)
        })
    }

    /// Says its name and closes.
    pub(super) fn named(name: &'static str) -> Self {
        Self::with(move |mut stream| {
            stream.write_all(name.as_bytes())?;
            stream.shutdown(std::net::Shutdown::Write)?;
            io::copy(&mut stream, &mut io::sink()).map(drop)
        })
    }

    /// An address whose accept queue is full, so that a connect is never answered, and what
    /// keeps it so.
    pub(super) fn stuck() -> (SocketAddr, (TcpListener, Vec<OwnedFd>)) {
        let (listener, fill, address) = black_hole();
        (address, (listener, fill))
    }

    /// Says what came first, and closes.
    pub(super) fn first_bytes() -> Self {
        Self::with(|mut stream| {
            let mut bytes = [0; 1024];
            let count = stream.read(&mut bytes)?;
            stream.write_all(bytes.get(..count).unwrap_or_default())
        })
    }

    /// Serves each connection so, on a thread of its own.
    pub(super) fn with(
        serve: impl Fn(TcpStream) -> io::Result<()> + Send + Clone + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serve = serve.clone();
                // A client that resets ends its own thread only.
                thread::spawn(move || serve(stream).ok());
            }
        });
        Self { address }
    }
}

/// An address where nobody listens.
pub(super) fn nobody() -> SocketAddr {
    own_address()
}

/// Everything a server says on a new connection.
pub(super) fn heard(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
