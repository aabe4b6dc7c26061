//! A world for the machine: executes actions, answers as told, and checks every invariant after
//! every event.

mod check;
mod habits;
mod hands;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_handoff::message::{
    Generation, ListenerKey, ListenerRole, ListenerWanted, Pulse, ToSupervisor, WorkerId,
};

use super::super::{Machine, Settings, State};
use crate::action::{Action, Kind, Notify, Order, Outcome, Report};
use crate::event::{Binary, BinaryId, ConfigText, Event, Exit, Millis, Request, RequestId, Signal};
use crate::program::BuildId;
use check::Ledger;
pub(super) use habits::{Habit, Habits, Opinion};

pub(super) const READY: Duration = Duration::from_secs(30);
pub(super) const WATCH: Duration = Duration::from_secs(10);
pub(super) const MIGRATE: Duration = Duration::from_secs(60);
pub(super) const DRAIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Process {
    pub(super) habits: Habits,
    pub(super) alive: bool,
    /// Was told to accept and not told to stop since.
    pub(super) accepting: bool,
    pub(super) said_active: bool,
}

/// Everything around the machine.
#[derive(Debug)]
pub(super) struct World {
    pub(super) state: State,
    pub(super) now: Millis,
    /// Events on their way to the machine.
    pub(super) pending: VecDeque<Event>,
    pub(super) processes: BTreeMap<WorkerId, Process>,
    /// The characters of the next workers; good ones after that.
    pub(super) next: VecDeque<Habits>,
    /// The keys the configuration file asks for at present.
    pub(super) config: BTreeSet<&'static str>,
    pub(super) config_error: Option<String>,
    pub(super) bind_error: Option<String>,
    pub(super) open_error: Option<String>,
    pub(super) check_error: Option<String>,
    pub(super) check_hangs: bool,
    pub(super) spawn_error: Option<String>,
    pub(super) replace_error: Option<String>,
    /// The test says itself how a replacement ends.
    pub(super) hold_replacement: bool,
    pub(super) pair_error: Option<String>,
    ledger: Ledger,
    pub(super) build: u64,
    pub(super) open: BTreeSet<ListenerKey>,
    kept: BTreeSet<ListenerKey>,
    binaries: BTreeSet<BinaryId>,
    next_binary: u32,
    next_request: u64,
    asked: BTreeSet<RequestId>,
    pub(super) replies: BTreeMap<RequestId, Report>,
    pub(super) actions: Vec<Action>,
    pub(super) exit: Option<(u8, Vec<String>)>,
    stopping: bool,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with_watch(WATCH)
    }

    pub(super) fn with_watch(watch: Duration) -> Self {
        let settings = Settings {
            version: "1.0.0".into(),
            ready_timeout: READY,
            watch,
            migrate: MIGRATE,
            drain_timeout: DRAIN,
            replaces: true,
        };
        let binary =
            Binary { id: BinaryId(0), build: BuildId::fake(0), path: "/usr/bin/baton".into() };
        let config = Arc::new(ConfigText { name: "a.json".into(), text: b"a b".to_vec() });
        Self {
            state: State::new(settings, binary, config),
            now: Millis(1_000_000),
            pending: VecDeque::new(),
            processes: BTreeMap::new(),
            next: VecDeque::new(),
            config: ["a", "b"].into(),
            config_error: None,
            bind_error: None,
            open_error: None,
            check_error: None,
            check_hangs: false,
            spawn_error: None,
            replace_error: None,
            hold_replacement: false,
            pair_error: None,
            ledger: Ledger::default(),
            build: 1,
            open: BTreeSet::new(),
            kept: BTreeSet::new(),
            binaries: [BinaryId(0)].into(),
            next_binary: 1,
            next_request: 1,
            asked: BTreeSet::new(),
            replies: BTreeMap::new(),
            actions: Vec::new(),
            exit: None,
            stopping: false,
        }
    }

    /// Started, one good worker serving.
    pub(super) fn serving() -> Self {
        let mut world = Self::new();
        world.handle(Event::Start);
        world.settle();
        assert_eq!(world.word(), "running");
        world.actions.clear();
        world
    }

    pub(super) fn word(&self) -> &'static str {
        self.state.view(self.now).state
    }

    pub(super) fn serving_id(&self) -> Option<u32> {
        self.state.serving.map(|id| id.0)
    }

    pub(super) fn generation(&self) -> u64 {
        self.state.accepted.generation.0
    }

    pub(super) fn phase(&self) -> Option<String> {
        self.state.view(self.now).transition.map(|transition| transition.phase)
    }

    pub(super) fn habits(&mut self, worker: u32) -> &mut Habits {
        &mut self.processes.get_mut(&WorkerId(worker)).unwrap().habits
    }

    /// Asks as a control client.
    pub(super) fn ask(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.asked.insert(id);
        self.handle(Event::Requested { id, request });
        id
    }

    pub(super) fn upgrade(&mut self) -> RequestId {
        self.ask(Request::Upgrade { binary: None, force: false })
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.handle(Event::Signal(signal));
    }

    pub(super) fn say(&mut self, worker: u32, message: ToSupervisor) {
        self.handle(Event::Message { worker: WorkerId(worker), message });
    }

    /// The process dies; the machine hears of it when its exit is delivered.
    pub(super) fn kill(&mut self, worker: u32) {
        self.die(WorkerId(worker), "signal 9");
    }

    fn die(&mut self, worker: WorkerId, how: &str) {
        let Some(process) = self.processes.get_mut(&worker).filter(|process| process.alive) else {
            return;
        };
        process.alive = false;
        process.accepting = false;
        self.pending.push_back(Event::Closed { worker });
        let exit = Exit { how: how.into(), orderly: how == "exit status 0" };
        self.pending.push_back(Event::Exited { worker, exit });
    }

    /// Delivers everything that is on its way, and what that causes.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            match self.pending.pop_front() {
                Some(event) => self.handle(event),
                None => return,
            }
        }
        panic!("the world does not come to rest");
    }

    /// Lets time pass: deadlines fire, living workers pulse once a second.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        let mut pulse = self.now.after(Duration::from_secs(1));
        self.settle();
        while self.exit.is_none() {
            let deadline = self.state.next_deadline().unwrap_or(end);
            let next = deadline.min(pulse).min(end).max(self.now);
            self.now = next;
            if pulse <= next {
                pulse = next.after(Duration::from_secs(1));
                self.pulse();
            }
            if deadline <= next {
                self.handle(Event::Tick);
                let after = self.state.next_deadline();
                assert!(after.is_none_or(|after| after > self.now), "a deadline stays: {after:?}");
            }
            self.settle();
            if next >= end {
                return;
            }
        }
    }

    fn pulse(&mut self) {
        let ids: Vec<_> = self
            .processes
            .iter()
            .filter(|(_, process)| process.alive && process.habits.ping == Habit::Answers)
            .map(|(id, _)| *id)
            .collect();
        for worker in ids {
            self.pending.push_back(Event::Message { worker, message: pong() });
        }
    }

    pub(super) fn did(&self, wanted: &Action) -> bool {
        self.actions.contains(wanted)
    }

    pub(super) fn sent(&self, worker: u32) -> Vec<Order> {
        let to = WorkerId(worker);
        let mut orders = Vec::new();
        for action in &self.actions {
            if let Action::Send { worker, order } = action
                && *worker == to
            {
                orders.push(order.clone());
            }
        }
        orders
    }

    pub(super) fn closed(&self) -> BTreeSet<String> {
        let mut closed = BTreeSet::new();
        for action in &self.actions {
            if let Action::CloseListeners { keys } = action {
                closed.extend(keys.iter().map(|key| key.0.clone()));
            }
        }
        closed
    }

    pub(super) fn report(&self, id: RequestId) -> &Report {
        self.replies.get(&id).expect("the request was answered")
    }

    pub(super) fn unanswered(&self) -> Vec<RequestId> {
        self.asked.iter().filter(|id| !self.replies.contains_key(id)).copied().collect()
    }

    /// Gives one event to the machine, executes what it wants, checks what must always hold.
    pub(super) fn handle(&mut self, event: Event) {
        if let Event::Exited { worker, .. } = &event {
            // An exit is delivered once, and only of a process that is dead.
            let process = self.processes.remove(worker).expect("exit of a known process");
            assert!(!process.alive);
        }
        if let Event::Message { worker, message: ToSupervisor::Active(_) } = &event
            && let Some(process) = self.processes.get_mut(worker)
        {
            process.said_active = true;
        }
        self.note_event(&event);
        if matches!(event, Event::Replaced { .. }) && self.state.is_replacing() {
            self.renew();
        }
        let actions = self.state.handle(event, self.now);
        assert!(actions.is_empty() || self.exit.is_none() || only_replies(&actions));
        let closes_freely = self.stopping
            || actions.iter().any(|action| {
                matches!(
                    action,
                    Action::Notify(Notify::Stopping)
                        | Action::ReplaceSelf { .. }
                        | Action::CountReload(Outcome::Success)
                        | Action::CountUpgrade(Outcome::Success)
                )
            });
        for action in &actions {
            if let Action::CloseListeners { keys } = action {
                for key in keys {
                    self.open.remove(key);
                    assert!(
                        closes_freely || !self.kept.contains(key),
                        "{key:?} belongs to an accepted configuration"
                    );
                    self.kept.remove(key);
                }
            } else {
                self.execute(action);
            }
        }
        self.actions.extend(actions);
        self.check();
    }

    /// The machine goes through its words, as in another image of the process.
    fn renew(&mut self) {
        let words = serde_json::to_string(&self.state.save().unwrap()).unwrap();
        let machine: Machine = serde_json::from_str(&words).unwrap();
        self.state = State::restore(machine, "1.1.0".into(), self.now).unwrap();
        assert_eq!(serde_json::to_string(&self.state.save().unwrap()).unwrap(), words);
    }

    pub(super) fn count(&self, wanted: impl Fn(&Action) -> bool) -> usize {
        self.actions.iter().filter(|action| wanted(action)).count()
    }

    pub(super) fn progress(&self, kind: Kind) -> Vec<&'static str> {
        let mut phases: Vec<&'static str> = Vec::new();
        for action in &self.actions {
            if let Action::Progress { kind: of, phase, .. } = action
                && *of == kind
                && phases.last() != Some(phase)
            {
                phases.push(phase);
            }
        }
        phases
    }
}

pub(super) fn pong() -> ToSupervisor {
    ToSupervisor::Pong(Pulse { generation: Generation(1), connections: 7, retired_generations: 0 })
}

fn only_replies(actions: &[Action]) -> bool {
    actions.iter().all(|action| {
        matches!(action, Action::Reply { .. } | Action::Log { .. } | Action::ReleaseBinary { .. })
    })
}

pub(super) fn wanted(key: &str) -> ListenerWanted {
    ListenerWanted {
        key: ListenerKey(key.into()),
        role: ListenerRole::Rule,
        rule: format!("rule {key}"),
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
        dual_stack: false,
    }
}
