//! A small worker: relays what it is given, recovers what it is told to. Runs in processes of
//! its own.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use baton_handoff::keeper::KeeperError;
use baton_handoff::table::{Endpoint, Identity, Lane, RuleKey, Slot, State, Table, TargetKey};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use slab::Slab;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_local};

use crate::keeper::Keeper;
use crate::keeper::testing::{Line, Spawned};
use crate::migrate::{
    Arrival, Exporter, Importer, Loss, Newcomer, Offers, Parcel, RecoverError, Report, Rescued,
    Source, recover,
};
use crate::net;
use crate::relay::{Control, End, Frozen, Relay, RelayContext};

/// The process. Its line: `relay` with a client's and an upstream's socket; `recover` with tables
/// and keepers; `export` and `import` with a socket to another worker; `limit` to let no further
/// descriptor be opened; `census` for how many there are.
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
        line,
        lane: Rc::new(lanes.remove(0)),
        context: Rc::default(),
        connections: RefCell::default(),
        died: watch::channel(false).0,
    });
    runtime.block_on(engine.serve(inbox));
    keeper.dismiss().unwrap();
}

struct Engine {
    line: Line,
    lane: Rc<Lane>,
    context: Rc<RelayContext>,
    connections: RefCell<Slab<Entry>>,
    /// The worker at the other end of a move is dead.
    died: watch::Sender<bool>,
}

/// A connection that is relayed.
struct Entry {
    identity: Identity,
    control: Rc<Control>,
    /// Who wants it when it is frozen.
    wanted: Option<oneshot::Sender<Lifted>>,
}

/// A connection that is not.
type Lifted = (Parcel, Slot);

impl Engine {
    async fn serve(self: &Rc<Self>, mut inbox: mpsc::UnboundedReceiver<(String, Vec<OwnedFd>)>) {
        let mut moving: Option<JoinHandle<()>> = None;
        while let Some((order, mut fds)) = inbox.recv().await {
            match order.as_str() {
                "relay" => {
                    let upstream = fds.pop().unwrap();
                    let client = fds.pop().unwrap();
                    let identity = identity(&client, &upstream);
                    let (context, control) = self.parts();
                    let shared = Rc::clone(&control);
                    let relay =
                        Relay::new(client.into(), upstream.into(), vec![], context, shared, ());
                    let slot = self.lane.open(&identity, State::Doomed).unwrap();
                    self.begin(relay.unwrap().journaled(slot), control, identity);
                    self.line.say("relaying", &[]);
                }
                "recover" => {
                    self.died.send_replace(true);
                    if let Some(moving) = moving.take() {
                        moving.await.unwrap();
                    }
                    let mut sources = Vec::new();
                    while let (Some(keeper), Some(table)) = (fds.pop(), fds.pop()) {
                        let died_at = net::now();
                        sources.push(Source { table, keeper, died_at, offers: Offers::Taken });
                    }
                    let mut owned = self.owned();
                    let report = recover(sources, &mut owned, async |rescued| {
                        for Rescued { frozen, mut identity } in rescued {
                            // Every worker here dies young; that is not what these tests are about.
                            identity.adopted_at = 0;
                            let slot = self.lane.open(&identity, State::Offered).unwrap();
                            frozen.note(&slot);
                            self.resume(frozen, identity, slot);
                        }
                    });
                    let report = report.await;
                    for failure in &report.failures {
                        // It was told to end by another successor, who took all.
                        let gone = RecoverError::Keeper(KeeperError::Closed).to_string();
                        assert_eq!(failure.to_string(), gone);
                    }
                    self.line.say(&written(&report), &[]);
                }
                "export" => {
                    self.died.send_replace(false);
                    let engine = Rc::clone(self);
                    moving = Some(spawn_local(async move { engine.export(fds.remove(0)).await }));
                }
                "import" => {
                    self.died.send_replace(false);
                    let engine = Rc::clone(self);
                    moving = Some(spawn_local(async move { engine.import(fds.remove(0)).await }));
                }
                "limit" => {
                    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
                    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).unwrap();
                    self.line.say("limited", &[]);
                }
                "census" => {
                    // Pipes kept for the next are nobody's loss: both trims close them.
                    self.context.trim();
                    self.context.trim();
                    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
                    self.line.say(&format!("open {open} {}", self.lane.in_use()), &[]);
                }
                other => panic!("{other}"),
            }
        }
    }

    fn parts(&self) -> (Rc<RelayContext>, Rc<Control>) {
        (Rc::clone(&self.context), Rc::new(Control::new(net::now())))
    }

    /// The cookies of all that is served here, or frozen and not given away.
    fn owned(&self) -> HashSet<u64> {
        let connections = self.connections.borrow();
        let identities = connections.iter().map(|(_, entry)| entry.identity);
        identities.flat_map(|it| [it.client.cookie, it.upstream.cookie]).collect()
    }

    fn resume(self: &Rc<Self>, frozen: Frozen, identity: Identity, slot: Slot) {
        let (context, control) = self.parts();
        let relay = Relay::resume(frozen, context, Rc::clone(&control), ()).unwrap();
        self.begin(relay.journaled(slot), control, identity);
    }

    fn begin(self: &Rc<Self>, mut relay: Relay<()>, control: Rc<Control>, identity: Identity) {
        let entry = Entry { identity, control, wanted: None };
        let key = self.connections.borrow_mut().insert(entry);
        let engine = Rc::clone(self);
        spawn_local(async move {
            let end = (&mut relay).await;
            let wanted = engine.connections.borrow_mut().remove(key).wanted;
            if let (End::Frozen(frozen), Some(wanted)) = (end, wanted) {
                let slot = relay.into_slot().unwrap();
                slot.set_state(State::Leaving);
                let quiet = Duration::ZERO;
                assert!(wanted.send((Parcel { frozen, identity, quiet }, slot)).is_ok());
            }
        });
    }

    /// Moves everything to another worker, 64 at a time.
    async fn export(self: &Rc<Self>, socket: OwnedFd) {
        let died = self.died.subscribe();
        let Ok(mut exporter) = Exporter::start(socket, "test", died).await else { return };
        let (mut moved, mut kept) = (0, 0);
        loop {
            let mut lifting = Vec::new();
            for (_, entry) in self.connections.borrow_mut().iter_mut().take(64) {
                let (wanted, lifted) = oneshot::channel();
                entry.wanted = Some(wanted);
                entry.control.freeze();
                lifting.push(lifted);
            }
            if lifting.is_empty() {
                break;
            }
            let mut slots = Vec::new();
            let mut parcels = Vec::new();
            for lifted in lifting {
                // One that has just ended is not there any more.
                if let Ok((parcel, slot)) = lifted.await {
                    slots.push(slot);
                    parcels.push(parcel);
                }
            }
            let shipment = exporter.ship(parcels).await;
            for (parcel, slot) in shipment.kept.into_iter().zip(slots) {
                match parcel {
                    None => moved += 1,
                    Some(Parcel { frozen, identity, .. }) => {
                        kept += 1;
                        self.resume(*frozen, identity, slot);
                    }
                }
            }
            if shipment.failure.is_some() {
                break;
            }
        }
        // Whoever does not hear it is dead.
        exporter.finish().await.ok();
        self.line.say(&format!("moved {moved} {kept}"), &[]);
    }

    /// Takes whatever another worker offers.
    async fn import(self: &Rc<Self>, socket: OwnedFd) {
        let died = self.died.subscribe();
        let Ok(mut importer) = Importer::start(socket, "test", died).await else { return };
        while let Ok(Some(Arrival { transaction, connections })) = importer.next().await {
            let mut held = Vec::new();
            let mut accepted = Vec::new();
            for newcomer in connections {
                accepted.push(newcomer.is_ok());
                if let Ok(Newcomer { frozen, identity, .. }) = newcomer {
                    let slot = self.lane.open(&identity, State::Offered).unwrap();
                    frozen.note(&slot);
                    held.push((frozen, identity, slot));
                }
            }
            if importer.answer(transaction, accepted).await.unwrap_or(false) {
                for (frozen, identity, slot) in held {
                    self.resume(frozen, identity, slot);
                }
            }
        }
        self.line.say("imported", &[]);
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
    format!("recovered {} {} {}", report.resumed, report.finished, lost.join(","))
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
        let said = self.heard("recovered");
        for keeper in keepers {
            nix::sys::wait::waitpid(keeper, None).unwrap();
        }
        let mut words = said.splitn(3, ' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (resumed, finished) = (number(), number());
        Outcome { resumed, finished, lost: words.next().unwrap_or("").to_owned() }
    }

    /// Without waiting for the end.
    pub(super) fn begin_recovery(&self, dead: &[&Self]) {
        let fds: Vec<_> =
            dead.iter().flat_map(|dead| [dead.table.as_fd(), dead.socket.as_fd()]).collect();
        self.process.line.say("recover", &fds);
    }

    /// Moves all connections from here to `to`.
    pub(super) fn begin_move(&self, to: &Self) {
        let (near, far) = baton_handoff::pair().unwrap();
        self.process.line.say("export", &[near.as_fd()]);
        to.process.line.say("import", &[far.as_fd()]);
    }

    /// Waits for the end of a move: how many connections moved, how many stayed.
    pub(super) fn moved(&self, to: &Self) -> (u64, u64) {
        let said = self.heard("moved");
        assert_eq!(to.heard("imported"), "");
        let (moved, kept) = said.split_once(' ').unwrap();
        (moved.parse().unwrap(), kept.parse().unwrap())
    }

    /// What follows `verb`, when it is said.
    fn heard(&self, verb: &str) -> String {
        loop {
            let (said, _) = self.process.line.hear().unwrap();
            if let Some(rest) = said.strip_prefix(verb) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Descriptors and records in use.
    pub(super) fn census(&self) -> (u64, u64) {
        self.process.line.say("census", &[]);
        let said = self.heard("open");
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
