//! A small worker: relays what it is given, recovers what it is told to. Runs in processes of
//! its own.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use baton_handoff::keeper::KeeperError;
use baton_handoff::table::{Endpoint, Identity, Lane, RuleKey, State, Table, TargetKey};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::Pid;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::keeper::Keeper;
use crate::keeper::testing::{Line, Spawned};
use crate::migrate::{Loss, Offers, RecoverError, Report, Rescued, Source, recover};
use crate::net;
use crate::relay::{Control, Relay, RelayContext};

/// The process. Its line: `relay` with a client's and an upstream's socket, `recover` with a
/// table and a keeper, `limit` to let no further descriptor be opened, `census` for how many
/// there are.
#[test]
#[ignore = "child process of other tests"]
fn worker() {
    let (keeper, far) = Keeper::start().unwrap();
    let (table, mut lanes) = Table::create(1, 4096).unwrap();
    let line = Line::to_parent();
    line.say(&keeper.pid().to_string(), &[table.as_fd(), far.as_fd()]);
    drop(far);
    let (orders, inbox) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let line = Line::to_parent();
        while let Some(order) = line.hear() {
            if orders.send(order).is_err() {
                return;
            }
        }
    });
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default())
        .unwrap();
    let engine = Rc::new(Engine {
        lane: Rc::new(lanes.remove(0)),
        context: Rc::default(),
        owned: RefCell::default(),
    });
    runtime.block_on(engine.serve(&line, inbox));
    keeper.dismiss().unwrap();
}

struct Engine {
    lane: Rc<Lane>,
    context: Rc<RelayContext>,
    owned: RefCell<HashSet<u64>>,
}

impl Engine {
    async fn serve(
        self: &Rc<Self>,
        line: &Line,
        mut inbox: mpsc::UnboundedReceiver<(String, Vec<OwnedFd>)>,
    ) {
        while let Some((order, mut fds)) = inbox.recv().await {
            match order.as_str() {
                "relay" => {
                    let upstream = fds.pop().unwrap();
                    let client = fds.pop().unwrap();
                    let identity = identity(&client, &upstream);
                    let relay = Relay::new(
                        client.into(),
                        upstream.into(),
                        Vec::new(),
                        Rc::clone(&self.context),
                        Rc::new(Control::new(net::now())),
                        (),
                    );
                    self.begin(relay.unwrap(), &identity);
                    line.say("relaying", &[]);
                }
                "recover" => {
                    let mut sources = Vec::new();
                    while let (Some(keeper), Some(table)) = (fds.pop(), fds.pop()) {
                        let died_at = net::now();
                        sources.push(Source { table, keeper, died_at, offers: Offers::Taken });
                    }
                    let mut owned = self.owned.take();
                    let report = recover(sources, &mut owned, async |rescued| {
                        rescued.into_iter().for_each(|one| self.resume(one));
                    });
                    let report = report.await;
                    for failure in &report.failures {
                        // It was told to end by another successor, who took all.
                        let gone = RecoverError::Keeper(KeeperError::Closed).to_string();
                        assert_eq!(failure.to_string(), gone);
                    }
                    self.owned.replace(owned);
                    line.say(&written(&report), &[]);
                }
                "limit" => {
                    let (_, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE).unwrap();
                    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).unwrap();
                    line.say("limited", &[]);
                }
                "census" => {
                    // Pipes kept for the next are nobody's loss: both trims close them.
                    self.context.trim();
                    self.context.trim();
                    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
                    line.say(&format!("{open} {}", self.lane.in_use()), &[]);
                }
                other => panic!("{other}"),
            }
        }
    }

    fn resume(self: &Rc<Self>, Rescued { frozen, mut identity }: Rescued) {
        // Every worker of these tests dies young; that is not what they are about.
        identity.adopted_at = 0;
        let control = Rc::new(Control::new(net::now()));
        let relay = Relay::resume(frozen, Rc::clone(&self.context), control, ()).unwrap();
        self.begin(relay, &identity);
    }

    fn begin(self: &Rc<Self>, relay: Relay<()>, identity: &Identity) {
        let slot = self.lane.open(identity, State::Doomed).unwrap();
        spawn_local(relay.journaled(slot));
    }
}

fn identity(client: &OwnedFd, upstream: &OwnedFd) -> Identity {
    let end = |fd: &OwnedFd| Endpoint {
        number: fd.as_raw_fd(),
        cookie: net::cookie(fd.as_fd()).unwrap(),
    };
    Identity {
        client: end(client),
        upstream: end(upstream),
        rule: RuleKey::of("test"),
        target: TargetKey::of("test"),
        target_index: 0,
        generation: 1,
        opened_at: net::now().0,
        peer: "127.0.0.1:1".parse().unwrap(),
        idle: None,
        adoptions: 0,
        adopted_at: 0,
    }
}

fn written(report: &Report) -> String {
    let lost: Vec<String> = Loss::ALL
        .iter()
        .filter_map(|loss| report.lost.get(loss).map(|count| format!("{}={count}", loss.as_str())))
        .collect();
    format!("{} {} {}", report.resumed, report.finished, lost.join(","))
}

/// What a replacement said about a recovery.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) resumed: u64,
    pub(super) finished: u64,
    pub(super) lost: String,
}

/// A worker as its supervisor sees it.
pub(super) struct Worker {
    pub(super) process: Spawned,
    pub(super) keeper: Pid,
    table: OwnedFd,
    socket: OwnedFd,
}

impl Worker {
    pub(super) fn start() -> Self {
        let process = Spawned::run("migrate::tests::engine::worker");
        let (keeper, mut fds) = process.line.hear().unwrap();
        let socket = fds.pop().unwrap();
        let table = fds.pop().unwrap();
        Self { process, keeper: Pid::from_raw(keeper.parse().unwrap()), table, socket }
    }

    pub(super) fn relay(&self, client: OwnedFd, upstream: OwnedFd) {
        self.process.line.say("relay", &[client.as_fd(), upstream.as_fd()]);
        // The copies here must be gone before the connection can end.
        drop((client, upstream));
        assert_eq!(self.process.line.hear().unwrap().0, "relaying");
    }

    /// Lets this worker carry on the connections of one that has been killed.
    pub(super) fn recover(&self, dead: Self) -> Outcome {
        self.recover_all(vec![dead])
    }

    /// The same with several, the one that died first first.
    pub(super) fn recover_all(&self, dead: Vec<Self>) -> Outcome {
        self.begin_recovery(&dead.iter().collect::<Vec<_>>());
        let keepers: Vec<Pid> = dead.iter().map(|dead| dead.keeper).collect();
        drop(dead);
        let (said, _) = self.process.line.hear().unwrap();
        for keeper in keepers {
            nix::sys::wait::waitpid(keeper, None).unwrap();
        }
        let mut words = said.splitn(3, ' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (resumed, finished) = (number(), number());
        Outcome { resumed, finished, lost: words.next().unwrap().to_owned() }
    }

    /// Without waiting for the end.
    pub(super) fn begin_recovery(&self, dead: &[&Self]) {
        let fds: Vec<_> =
            dead.iter().flat_map(|dead| [dead.table.as_fd(), dead.socket.as_fd()]).collect();
        self.process.line.say("recover", &fds);
    }

    /// Descriptors and records in use.
    pub(super) fn census(&self) -> (u64, u64) {
        let said = self.process.line.ask("census");
        let (open, records) = said.split_once(' ').unwrap();
        (open.parse().unwrap(), records.parse().unwrap())
    }

    /// What a successor would find now.
    pub(super) fn records(&self) -> Vec<baton_handoff::table::Entry> {
        let copy = self.table.try_clone().unwrap();
        baton_handoff::table::Remains::open(copy).unwrap().entries().unwrap()
    }

    pub(super) fn table(&self) -> std::fs::File {
        self.table.try_clone().unwrap().into()
    }
}
