//! Workers inside the test's process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use baton_handoff::message::{
    Answer, Generation, HelloSupervisor, ListenerKey, ListenerRole, ListenerWanted, Plan, Prepare,
    Pulse, Query, Refused, ToSupervisor, ToWorker,
};
use baton_handoff::{Received, WorkerEnd};
use nix::sys::socket::{MsgFlags, send};
use tokio::sync::mpsc;
use tokio::time::interval;

use super::super::launch::{Launch, Launched, Local};
use crate::privilege::Identity;
use crate::program::{Program, SelfCheck};

/// What a double is like.
#[derive(Debug, Clone)]
pub(super) enum Script {
    Good,
    /// Refuses the configuration and exits in the same breath.
    Refuses(Vec<String>),
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
        Ok(Launched { pid, exit: Box::pin(exit), signals })
    }

    fn adopt(&self, _: u32) -> io::Result<Launched> {
        Err(io::Error::other("doubles live and die with their test"))
    }

    fn identity(&self) -> Option<Identity> {
        None
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
            ToWorker::Hello(_) => {
                let hello = HelloSupervisor { version: "0.0.1".into(), pid: self.pid };
                self.say(ToSupervisor::Hello(hello)).await;
            }
            ToWorker::Prepare(prepare) => return self.prepare(prepare).await,
            ToWorker::Listeners(listeners) => {
                assert_eq!(listeners.keys.len(), received.fds.len());
                self.held.extend(received.fds);
                if listeners.last {
                    assert_eq!(self.held.len(), self.prepared);
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
            ToWorker::Migrate(_) | ToWorker::Recover(_) => {}
            ToWorker::Nak(nak) => return Some(format!("was told {nak:?}")),
        }
        None
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
