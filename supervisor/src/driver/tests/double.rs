//! Workers inside the test's process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use baton_handoff::message::{
    Answer, Generation, HelloPeer, HelloSupervisor, ListenerKey, ListenerRole, ListenerWanted,
    Migrate, Migrated, Peer, Plan, Prepare, Pulse, Query, Recovered, Refused, Side, ToSupervisor,
    ToWorker,
};
use baton_handoff::{PeerEnd, Received, Transaction, WorkerEnd};
use nix::sys::socket::{MsgFlags, send};
use tokio::sync::mpsc;
use tokio::time::interval;

use super::super::launch::{Launch, Launched, Local};
use crate::event::Exit;
use crate::privilege::Identity;
use crate::program::{Program, SelfCheck};

/// What a double is like.
#[derive(Debug, Clone)]
pub(super) enum Script {
    Good,
    /// Refuses the configuration and exits in the same breath.
    Refuses(Vec<String>),
    /// Sends its lifeline; its connections move at once, and it carries on three of each dead one.
    Living,
    /// The same, but it dies as soon as it is to give or to carry on.
    Fragile,
}

/// What the test does to a double.
#[derive(Debug, Clone, Copy)]
pub(super) enum Push {
    Die,
    Garbage,
    Flood,
}

/// Beyond every real process number, so that nothing real is ever taken for a double.
pub(super) fn pid(index: u32) -> u32 {
    5_000_000 + index
}

/// Starts doubles instead of processes.
pub(super) struct Doubles {
    cast: RefCell<VecDeque<(Script, mpsc::UnboundedReceiver<Push>)>>,
    started: RefCell<u32>,
}

impl Doubles {
    pub(super) fn new(cast: Vec<(Script, mpsc::UnboundedReceiver<Push>)>) -> Self {
        Self { cast: RefCell::new(cast.into()), started: RefCell::new(0) }
    }
}

impl Launch for Doubles {
    fn self_check(&self, _: Rc<Program>, _: Duration) -> Local<Result<SelfCheck, String>> {
        let check = SelfCheck {
            version: "0.0.2".into(),
            protocol_min: 1,
            protocol_max: 1,
            state_formats: Vec::new(),
            rehearses: false,
        };
        Box::pin(async move { Ok(check) })
    }

    fn worker(&self, _: &Program, control: OwnedFd) -> io::Result<Launched> {
        let (script, pushes) = self
            .cast
            .borrow_mut()
            .pop_front()
            .ok_or_else(|| io::Error::other("no double is left"))?;
        let pid = pid(*self.started.borrow());
        *self.started.borrow_mut() += 1;
        let (signals, mut received) = mpsc::unbounded_channel();
        let exit = async move {
            tokio::select! {
                how = play(control, script, pushes, pid) => how,
                Some(force) = received.recv() => format!("{force:?}"),
            }
        };
        let exit = async move {
            let how = exit.await;
            Exit { orderly: how == "exit status: 0", how }
        };
        Ok(Launched { pid, exit: Box::pin(exit), signals })
    }

    fn adopt(&self, _: u32) -> io::Result<Launched> {
        Err(io::Error::other("doubles live and die with their test"))
    }

    fn identity(&self) -> Option<Identity> {
        None
    }

    fn reaps(&self) -> bool {
        false
    }

    fn replaces(&self) -> bool {
        false
    }
}

async fn play(
    control: OwnedFd,
    script: Script,
    mut pushes: mpsc::UnboundedReceiver<Push>,
    pid: u32,
) -> String {
    let raw = control.as_raw_fd();
    let end = WorkerEnd::new(control).unwrap();
    let mut double = Double {
        end,
        script,
        pid,
        generation: Generation(0),
        held: Vec::new(),
        held_for_adoption: Vec::new(),
        prepared: 0,
        worker: 0,
        handed: Vec::new(),
        keeper: None,
    };
    let mut pulse = interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            received = double.end.recv() => match received {
                Ok(received) => {
                    if let Some(how) = double.hear(received).await {
                        return how;
                    }
                }
                Err(error) => return format!("channel: {error}"),
            },
            _ = pulse.tick(), if double.generation != Generation(0) => double.pong().await,
            Some(push) = pushes.recv() => match push {
                Push::Die => return "signal: 9".into(),
                Push::Garbage => {
                    send(raw, b"this is no message of ours, is it?", MsgFlags::MSG_DONTWAIT).unwrap();
                }
                Push::Flood => {
                    for _ in 0..2000 {
                        double.pong().await;
                    }
                }
            },
        }
    }
}

struct Double {
    end: WorkerEnd,
    script: Script,
    pid: u32,
    generation: Generation,
    held: Vec<OwnedFd>,
    held_for_adoption: Vec<OwnedFd>,
    prepared: usize,
    worker: u32,
    handed: Vec<OwnedFd>,
    keeper: Option<OwnedFd>,
}

impl Double {
    async fn say(&self, message: ToSupervisor) {
        // The supervisor may have closed its end: it kills doubles too.
        let _killed = self.end.send(&message).await;
    }

    async fn pong(&self) {
        let generation = self.generation;
        self.say(ToSupervisor::Pong(Pulse { generation, connections: 3, retired_generations: 0 }))
            .await;
    }

    /// Answers; the exit status once it ends.
    async fn hear(&mut self, received: Received<ToWorker>) -> Option<String> {
        match received.message {
            ToWorker::Hello(hello) => {
                self.worker = hello.worker.0;
                let hello = HelloSupervisor { version: "0.0.1".into(), pid: self.pid };
                self.say(ToSupervisor::Hello(hello)).await;
            }
            ToWorker::Prepare(prepare) => return self.prepare(prepare).await,
            ToWorker::Listeners(listeners) => {
                assert_eq!(listeners.keys.len(), received.fds.len());
                self.held.extend(received.fds);
                if listeners.last {
                    assert_eq!(self.held.len(), self.prepared);
                    if matches!(self.script, Script::Living | Script::Fragile) {
                        self.hand_lifeline().await;
                    }
                    self.say(ToSupervisor::Ready(listeners.generation)).await;
                }
            }
            ToWorker::Activate(generation) => {
                self.generation = generation;
                self.say(ToSupervisor::Active(generation)).await;
            }
            ToWorker::Abort(_) => self.held.clear(),
            ToWorker::Quiesce => self.say(ToSupervisor::Quiesced).await,
            ToWorker::Drain(_) => {
                self.say(ToSupervisor::Drained { cut: 0 }).await;
                return Some("exit status: 0".into());
            }
            ToWorker::AdoptionSocket => self.held_for_adoption = received.fds,
            ToWorker::Adopt => return Some("adopted by its own supervisor".into()),
            ToWorker::Ping => self.pong().await,
            ToWorker::Query(Query { text, .. }) if text == "silence" => {}
            ToWorker::Query(Query { id, text }) => {
                self.say(ToSupervisor::Answer(Answer { id, text: format!("heard {text}") })).await;
            }
            ToWorker::Migrate(Migrate { side: Side::Take, .. }) => self.handed = received.fds,
            ToWorker::Migrate(Migrate { side: Side::Give, .. }) | ToWorker::Recover(_)
                if matches!(self.script, Script::Fragile) =>
            {
                return Some("signal: 11".into());
            }
            ToWorker::Migrate(Migrate { side: Side::Give, other, .. }) => {
                // The other end is with the other worker.
                let peer = PeerEnd::new(received.fds.into_iter().next().unwrap()).unwrap();
                let hello = HelloPeer { version: format!("given to {}", other.0) };
                peer.send(&Peer::Hello(hello), &[]).await.unwrap();
                let begun = Migrated { moved: 1, waiting: 1, ..Migrated::default() };
                self.say(ToSupervisor::Migrated(begun)).await;
                let over = Migrated { moved: 2, longest_pause_us: 250, over: true, ..begun };
                self.say(ToSupervisor::Migrated(Migrated { waiting: 0, ..over })).await;
            }
            ToWorker::Recover(recover) => {
                assert_eq!(received.fds.len(), 2 * recover.dead.len());
                for (pair, dead) in received.fds.chunks(2).zip(&recover.dead) {
                    let mut table = File::from(pair[0].try_clone().unwrap());
                    let mut text = String::new();
                    table.rewind().unwrap();
                    table.read_to_string(&mut text).unwrap();
                    assert_eq!(text, dead.worker.0.to_string(), "whose table it is");
                }
                let resumed = 3 * u64::try_from(recover.dead.len()).unwrap();
                self.say(ToSupervisor::Recovered(Recovered { resumed, lost: 1, failures: 0 }))
                    .await;
            }
            ToWorker::Nak(nak) => return Some(format!("was told {nak:?}")),
        }
        None
    }

    /// A memfd that has the worker's number in it, and one end of a pair.
    async fn hand_lifeline(&mut self) {
        let table = baton_handoff::seal(self.worker.to_string().as_bytes()).unwrap();
        let (near, far) = baton_handoff::pair().unwrap();
        let fds = [table.as_fd(), far.as_fd()];
        let _killed = self.end.hand(Transaction::NONE, &ToSupervisor::Lifeline, &fds).await;
        self.keeper = Some(near);
    }

    async fn prepare(&mut self, prepare: Prepare) -> Option<String> {
        let generation = prepare.generation;
        if let Script::Refuses(problems) = self.script.clone() {
            self.say(ToSupervisor::Refused(Refused { generation, problems })).await;
            return Some("exit status: 1".into());
        }
        self.held.clear();
        let text = String::from_utf8(prepare.config).unwrap();
        let listeners: Vec<_> = text.lines().enumerate().map(wanted).collect();
        self.prepared = listeners.len();
        self.say(ToSupervisor::Plan(Plan { generation, listeners, unchanged: false })).await;
        None
    }
}

/// The doubles' configuration: an address a line.
fn wanted((index, line): (usize, &str)) -> ListenerWanted {
    let address: SocketAddr = line.parse().unwrap();
    ListenerWanted {
        key: ListenerKey(line.into()),
        role: ListenerRole::Rule,
        rule: format!("rule {index}"),
        address,
        dual_stack: false,
    }
}
