//! What the machine wants done is done here, and answered the way the world is at the moment.

use std::sync::Arc;

use baton_handoff::message::{
    Dead, Generation, HelloSupervisor, ListenerWanted, Migrated, Plan, Recovered, Refused,
    ToSupervisor, WorkerId,
};
use baton_handoff::version::Version;

use super::habits::{Habit, Habits, Opinion};
use super::{Process, World, pong, wanted};
use crate::action::{Action, Force, Notify, Order};
use crate::event::{Binary, BinaryId, ConfigText, Event, Ticket};
use crate::program::BuildId;

impl World {
    pub(super) fn execute(&mut self, action: &Action) {
        self.note_action(action);
        match action {
            Action::ReadConfig { ticket } => self.read_config(*ticket),
            Action::OpenBinary { ticket, .. } => self.open_binary(*ticket),
            Action::SelfCheck { ticket, binary } => {
                assert!(self.binaries.contains(binary));
                if !self.check_hangs {
                    let result = self.check_error.clone().map_or(Ok("1.0.1".into()), Err);
                    self.pending.push_back(Event::Checked { ticket: *ticket, result });
                }
            }
            Action::ReleaseBinary { binary } => {
                assert!(self.binaries.remove(binary), "released twice");
            }
            Action::Spawn { worker, binary } => self.spawn(*worker, *binary),
            Action::Send { worker, order } => self.order(*worker, order),
            Action::Prepare { worker, generation, config, .. } => {
                self.prepare(*worker, *generation, config);
            }
            Action::HandListeners { worker, generation, keys } => {
                assert!(keys.iter().all(|key| self.open.contains(key)), "{keys:?} not all open");
                let habit = self.habit(*worker, |habits| habits.listeners);
                if self.is_living(*worker) && habit == Habit::Answers {
                    let (worker, message) = (*worker, ToSupervisor::Lifeline);
                    self.pending.push_back(Event::Message { worker, message });
                }
                self.answer(*worker, habit, ToSupervisor::Ready(*generation));
            }
            Action::Signal { worker, force } => match force {
                Force::Kill => self.die(*worker, "signal 9"),
                Force::Terminate => match self.habit(*worker, |habits| habits.term) {
                    Habit::Answers | Habit::Dies => self.die(*worker, "signal 15"),
                    Habit::Ignores => {}
                },
            },
            Action::ReplaceSelf { binary } => {
                assert!(self.binaries.contains(binary));
                let result = self.replace_error.clone().map_or(Ok(()), Err);
                if !self.hold_replacement {
                    self.pending.push_back(Event::Replaced { result });
                }
            }
            Action::Migrate { from, to, .. } => self.migrate(*from, *to),
            Action::Recover { worker, dead } => self.recover(*worker, dead),
            Action::Bind { ticket, wanted } => self.bind(*ticket, wanted),
            Action::NameListeners { plan } => {
                self.kept.extend(plan.iter().map(|wanted| wanted.key.clone()));
                assert!(self.kept.is_subset(&self.open));
            }
            Action::Reply { to, report } => {
                assert!(self.asked.contains(to));
                let former = self.replies.insert(*to, report.clone());
                assert!(former.is_none(), "{to:?} was answered twice");
            }
            Action::Notify(Notify::Stopping) => self.stopping = true,
            Action::Exit { code, problems } => self.exit = Some((*code, problems.clone())),
            Action::CloseListeners { .. }
            | Action::CancelCheck { .. }
            | Action::Forget { .. }
            | Action::LetGo { .. }
            | Action::Progress { .. }
            | Action::Notify(Notify::Ready | Notify::Reloading | Notify::Status(_))
            | Action::CountRestart
            | Action::CountReload(_)
            | Action::CountUpgrade(_)
            | Action::StampReload
            | Action::Log { .. } => {}
        }
    }

    fn read_config(&mut self, ticket: Ticket) {
        let text = self.config.iter().copied().collect::<Vec<_>>().join(" ").into_bytes();
        let config = Arc::new(ConfigText { name: "a.json".into(), text });
        let result = self.config_error.clone().map_or(Ok(config), Err);
        self.pending.push_back(Event::ConfigRead { ticket, result });
    }

    fn open_binary(&mut self, ticket: Ticket) {
        let result = match &self.open_error {
            Some(error) => Err(error.clone()),
            None => {
                let id = BinaryId(self.next_binary);
                self.next_binary += 1;
                self.binaries.insert(id);
                let build = BuildId::fake(self.build);
                Ok(Binary { id, build, path: "/usr/bin/baton".into() })
            }
        };
        self.pending.push_back(Event::Opened { ticket, result });
    }

    fn spawn(&mut self, worker: WorkerId, binary: BinaryId) {
        assert!(self.binaries.contains(&binary), "{binary:?} is not open");
        if let Some(problem) = self.spawn_error.clone() {
            self.pending.push_back(Event::SpawnFailed { worker, problem });
            return;
        }
        let habits = self.next.pop_front().unwrap_or_default();
        let process = Process { habits, alive: true, accepting: false, said_active: false };
        assert!(self.processes.insert(worker, process).is_none(), "{worker:?} is new");
        self.pending.push_back(Event::Spawned { worker, pid: 100 + worker.0 });
    }

    fn habit(&self, worker: WorkerId, of: impl Fn(&Habits) -> Habit) -> Habit {
        match self.processes.get(&worker) {
            Some(process) if process.alive => of(&process.habits),
            Some(_) | None => Habit::Ignores,
        }
    }

    fn answer(&mut self, worker: WorkerId, habit: Habit, message: ToSupervisor) {
        match habit {
            Habit::Answers => self.pending.push_back(Event::Message { worker, message }),
            Habit::Ignores => {}
            Habit::Dies => self.die(worker, "exit status 1"),
        }
    }

    fn order(&mut self, worker: WorkerId, order: &Order) {
        match order {
            Order::Hello(hello) => {
                assert_eq!(hello.worker, worker);
                let hello = HelloSupervisor { version: "1.0.1".into(), pid: 100 + worker.0 };
                let habit = self.habit(worker, |habits| habits.hello);
                let protocol = self.processes.get(&worker).map(|p| Version(p.habits.protocol));
                if let Some(protocol) = protocol.filter(|_| habit == Habit::Answers) {
                    self.pending.push_back(Event::Agreed { worker, protocol });
                }
                self.answer(worker, habit, ToSupervisor::Hello(hello));
            }
            Order::Activate(generation) => {
                if let Some(process) = self.processes.get_mut(&worker) {
                    process.accepting = process.alive;
                }
                let habit = self.habit(worker, |habits| habits.activate);
                self.answer(worker, habit, ToSupervisor::Active(*generation));
            }
            Order::Abort(_) => {}
            Order::Quiesce => {
                let successor =
                    self.processes.iter().any(|(id, process)| *id != worker && process.said_active);
                assert!(self.stopping || successor, "{worker:?} stopped without a successor");
                if let Some(process) = self.processes.get_mut(&worker) {
                    process.accepting = false;
                }
                let habit = self.habit(worker, |habits| habits.quiesce);
                self.answer(worker, habit, ToSupervisor::Quiesced);
            }
            Order::Drain(_) => {
                let accepting = self.processes.get(&worker).is_some_and(|p| p.accepting);
                assert!(!accepting, "{worker:?} drains and still accepts");
                match self.habit(worker, |habits| habits.drain) {
                    Habit::Answers => {
                        let message = ToSupervisor::Drained { cut: 0 };
                        self.pending.push_back(Event::Message { worker, message });
                        self.die(worker, "exit status 0");
                    }
                    Habit::Dies => self.die(worker, "exit status 1"),
                    Habit::Ignores => {}
                }
            }
            Order::Ping => {
                let habit = self.habit(worker, |habits| habits.ping);
                self.answer(worker, habit, pong());
            }
        }
    }

    fn is_living(&self, worker: WorkerId) -> bool {
        self.processes.get(&worker).is_some_and(|process| process.habits.protocol >= 2)
    }

    fn migrate(&mut self, from: WorkerId, to: WorkerId) {
        if let Some(problem) = self.pair_error.clone() {
            return self.pending.push_back(Event::NotMigrating { problem });
        }
        assert!(self.is_living(from) && self.is_living(to), "one of them does not know how");
        let begun = Migrated { moved: 3, waiting: 2, longest_pause_us: 400, ..Migrated::default() };
        let over = Migrated { moved: 5, waiting: 0, over: true, ..begun };
        let habit = self.habit(from, |habits| habits.migrate);
        if self.habit(to, |habits| habits.migrate) == Habit::Dies {
            self.die(to, "signal 11");
        }
        if habit != Habit::Ignores {
            let message = ToSupervisor::Migrated(begun);
            self.pending.push_back(Event::Message { worker: from, message });
        }
        self.answer(from, habit, ToSupervisor::Migrated(over));
    }

    fn recover(&mut self, worker: WorkerId, dead: &[Dead]) {
        assert!(self.is_living(worker), "it does not know how");
        let resumed = u64::try_from(dead.len()).unwrap();
        let recovered = Recovered { resumed, lost: 0, failures: 0 };
        let habit = self.habit(worker, |habits| habits.recover);
        self.answer(worker, habit, ToSupervisor::Recovered(recovered));
    }

    fn prepare(&mut self, worker: WorkerId, generation: Generation, config: &ConfigText) {
        let Some(process) = self.processes.get(&worker).filter(|process| process.alive) else {
            return;
        };
        let text = String::from_utf8(config.text.clone()).unwrap();
        let mut listeners: Vec<_> = text.split_whitespace().map(wanted).collect();
        let message = match process.habits.prepare.clone() {
            Opinion::Wants => ToSupervisor::Plan(Plan { generation, listeners, unchanged: false }),
            Opinion::Unchanged => {
                ToSupervisor::Plan(Plan { generation, listeners, unchanged: true })
            }
            Opinion::Refuses(problems) => ToSupervisor::Refused(Refused { generation, problems }),
            Opinion::Doubles => {
                listeners.extend(listeners.clone());
                ToSupervisor::Plan(Plan { generation, listeners, unchanged: false })
            }
            Opinion::Ignores => return,
            Opinion::Dies => return self.die(worker, "exit status 1"),
        };
        self.pending.push_back(Event::Message { worker, message });
    }

    fn bind(&mut self, ticket: Ticket, wanted: &[ListenerWanted]) {
        let result = match &self.bind_error {
            Some(error) => Err(vec![error.clone()]),
            None => {
                for wanted in wanted {
                    assert!(self.open.insert(wanted.key.clone()), "{wanted:?} is open already");
                }
                Ok(())
            }
        };
        self.pending.push_back(Event::Bound { ticket, result });
    }
}
