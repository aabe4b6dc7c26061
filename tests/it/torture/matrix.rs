//! What is done, at which point of a transition, to whom; and what may be lost by it.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::json;

use super::family::{is_dead, keeper_of, slay, strike, wait_stopped};
use super::part::Kind;
use super::setting::{Place, Setting};
use super::verdict::Allowed;
use crate::harness::until;

/// Who.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Process {
    /// The worker that serves at the start.
    Old,
    /// The one that takes over.
    New,
    Supervisor,
    /// The child that holds the old worker's connections.
    OldKeeper,
    NewKeeper,
}

/// What is done to the process that reaches the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// It is killed.
    Kill,
    /// It ends by itself, without a word.
    Exit,
    /// It stands still for as long as it takes to kill another.
    Meanwhile(Process),
    /// It stands still for a moment.
    Pause,
    /// It hangs; somebody has to notice.
    Hang,
    /// It has no free descriptor.
    Starve,
    /// Its message names one descriptor too many.
    Lie,
}

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    Upgrade,
    Reload,
    /// The serving worker is killed and replaced.
    Recovery,
}

/// One line of the matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) transition: Transition,
    pub(crate) at: Process,
    /// The point, and `:` and which time where it is not the first.
    pub(crate) point: &'static str,
    pub(crate) deed: Deed,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let Self { transition, at, point, deed } = self;
        format!("{transition:?}/{at:?}@{point}/{deed:?}")
    }

    fn fault(&self) -> String {
        let process = match self.at {
            Process::Old => "w1",
            Process::New => "w2",
            Process::Supervisor if self.point.starts_with("reexec.re") => "s2",
            Process::Supervisor => "s1",
            Process::OldKeeper | Process::NewKeeper => unreachable!("a keeper has no points"),
        };
        let action = match self.deed {
            Deed::Kill => "kill",
            Deed::Exit => "exit",
            Deed::Meanwhile(_) | Deed::Pause => "stop",
            Deed::Hang => "hang",
            Deed::Starve => "starve",
            Deed::Lie => "lie",
        };
        match self.point.split_once(':') {
            None => format!("{process}@{}:{action}", self.point),
            Some((point, nth)) => format!("{process}@{point}:{action}:{nth}"),
        }
    }

    /// Who dies of it, one way or another.
    fn victims(&self) -> Vec<Process> {
        let mut victims = match self.deed {
            Deed::Kill | Deed::Exit | Deed::Hang => vec![self.at],
            Deed::Meanwhile(victim) => vec![victim],
            Deed::Pause | Deed::Starve | Deed::Lie => Vec::new(),
        };
        if self.transition == Transition::Recovery {
            victims.push(Process::Old);
        }
        victims
    }

    fn allowed(&self) -> Allowed {
        let victims = self.victims();
        let has = |process| victims.contains(&process);
        let unprotected = has(Process::Old) && has(Process::OldKeeper)
            || has(Process::New) && has(Process::NewKeeper);
        match () {
            () if unprotected => Allowed::Unprotected,
            () if has(Process::Old) && has(Process::Supervisor) => Allowed::Resets,
            () if has(Process::Old) || has(Process::New) => Allowed::Loaded,
            () => Allowed::Nothing,
        }
    }

    /// Carries it out; the complaints, and how many connections were reset.
    pub(crate) fn run(&self) -> (Vec<String>, u64) {
        let place = Place::new();
        let fault = self.fault();
        let ready = if self.deed == Deed::Hang { "5s" } else { "30s" };
        let supervisor = json!({ "watch": "1s", "drainTimeout": "5m", "readyTimeout": ready });
        let kinds = [&Kind::ALL[..], &[Kind::Idle; 140]].concat();
        let mut setting = Setting::start(&place, &supervisor, None, &fault, &kinds);
        let old = setting.instance.serving();
        let keepers = [keeper_of(&setting.instance, old)];
        let command = match self.transition {
            Transition::Upgrade => Some("upgrade"),
            Transition::Reload => {
                let mut config = setting.instance.config();
                config["rules"][0]["timeout"] = json!(1234);
                setting.instance.configure(&config);
                Some("reload")
            }
            Transition::Recovery => {
                slay(old);
                None
            }
        };
        let command = command.map(|command| {
            let mut command = setting.instance.command(&[command]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        });
        let reached = setting.wait_fault(&fault);
        if let Deed::Meanwhile(_) | Deed::Pause = self.deed {
            wait_stopped(reached);
        }
        if let Deed::Meanwhile(victim) = self.deed {
            let victim = match victim {
                Process::Supervisor => Some(setting.instance.pid()),
                Process::Old => Some(old),
                Process::OldKeeper => keepers[0],
                Process::New => self.new_worker(&setting, old),
                Process::NewKeeper => self
                    .new_worker(&setting, old)
                    .and_then(|worker| keeper_of(&setting.instance, worker)),
            };
            if let Some(victim) = victim {
                slay(victim);
            }
        }
        if let Deed::Meanwhile(_) | Deed::Pause = self.deed {
            strike(reached, Signal::SIGCONT);
        }
        if self.victims().contains(&Process::Supervisor) && self.deed != Deed::Hang
            || is_dead(setting.instance.pid())
        {
            until("the supervisor ends", || is_dead(setting.instance.pid()).then_some(()));
            let _killed = setting.instance.wait_end();
            setting.restart();
        }
        if let Some(mut command) = command {
            // Whether it succeeds depends on what came first.
            let _either = command.wait().unwrap();
        }
        setting.wait_settled();
        setting.instance.expect_ok(&["upgrade", "--force"]);
        setting.wait_settled();
        setting.finish(self.allowed())
    }

    /// The worker that was started last.
    fn new_worker(&self, setting: &Setting<'_>, old: u32) -> Option<u32> {
        let members = super::family::family(&setting.instance).into_iter();
        let workers = members.filter(|m| m.name == super::family::WORKER && m.pid != old);
        workers.map(|member| member.pid).max()
    }
}

/// Runs cases several at a time, because most of one is waiting; every complaint, with the case it belongs to.
pub(crate) fn run_all(cases: &[Case]) -> (Vec<String>, u64) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results = std::sync::Mutex::new((Vec::new(), 0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(case) =
                    cases.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
                {
                    let start = std::time::Instant::now();
                    let outcome = std::panic::catch_unwind(|| case.run());
                    let mut results = results.lock().unwrap();
                    let complaints = match outcome {
                        Ok((complaints, resets)) => {
                            results.1 += resets;
                            complaints
                        }
                        Err(panic) => {
                            let text = panic.downcast_ref::<String>().cloned();
                            vec![text.unwrap_or_else(|| "panicked".into())]
                        }
                    };
                    println!("{} {:?} {complaints:?}", case.name(), start.elapsed());
                    let name = case.name();
                    results.0.extend(complaints.into_iter().map(|c| format!("{name}: {c}")));
                }
            });
        }
    });
    results.into_inner().unwrap()
}

/// Points of an upgrade that a process passes whatever is moved.
const UPGRADE: &[(Process, &str)] = &[
    (Process::New, "greeted"),
    (Process::New, "Hello.sent"),
    (Process::New, "Prepare.heard"),
    (Process::New, "Plan.sent"),
    (Process::New, "Listeners.heard"),
    (Process::New, "Ready.sent"),
    (Process::New, "Activate.heard"),
    (Process::New, "Active.sent"),
    (Process::Old, "Quiesce.heard"),
    (Process::Old, "Quiesced.sent"),
    (Process::Old, "Drain.heard"),
    (Process::Supervisor, "Hello.sent:2"),
    (Process::Supervisor, "Hello.heard:2"),
    (Process::Supervisor, "Prepare.sent:2"),
    (Process::Supervisor, "Plan.heard:2"),
    (Process::Supervisor, "Ready.heard:2"),
    (Process::Supervisor, "Activate.sent:2"),
    (Process::Supervisor, "Active.heard:2"),
    (Process::Supervisor, "Quiesce.sent"),
    (Process::Supervisor, "Quiesced.heard"),
    (Process::Supervisor, "Drain.sent"),
    (Process::Old, "Migrate.heard"),
    (Process::Old, "migrate.frozen"),
    (Process::Old, "migrate.frozen:2"),
    (Process::Old, "peer.Hello.sent"),
    (Process::Old, "peer.Offer.due"),
    (Process::Old, "peer.Offer.sent"),
    (Process::Old, "peer.Offer.sent:2"),
    (Process::Old, "peer.Answer.heard"),
    (Process::Old, "peer.Answer.heard:2"),
    (Process::Old, "peer.Commit.sent"),
    (Process::Old, "peer.Over.sent"),
    (Process::Old, "Migrated.sent"),
    (Process::New, "Lifeline.sent"),
    (Process::New, "Migrate.heard"),
    (Process::New, "peer.Offer.heard"),
    (Process::New, "peer.Offer.heard:2"),
    (Process::New, "peer.Answer.due"),
    (Process::New, "peer.Answer.sent"),
    (Process::New, "peer.Answer.sent:2"),
    (Process::New, "peer.Commit.heard"),
    (Process::New, "peer.Commit.heard:2"),
    (Process::New, "peer.Over.heard"),
    (Process::Supervisor, "Lifeline.heard:2"),
    (Process::Supervisor, "Migrate.sent"),
    (Process::Supervisor, "Migrate.sent:2"),
    (Process::Supervisor, "Migrated.heard"),
    (Process::Supervisor, "reexec.saved"),
    (Process::Supervisor, "reexec.exec"),
    (Process::Supervisor, "reexec.read"),
    (Process::Supervisor, "reexec.restored"),
];

/// Points of a recovery.
const RECOVERY: &[(Process, &str)] = &[
    (Process::New, "Hello.sent"),
    (Process::New, "Ready.sent"),
    (Process::New, "Active.sent"),
    (Process::New, "Recover.heard"),
    (Process::New, "recover.opened"),
    (Process::New, "recover.fetched"),
    (Process::New, "recover.fetched:2"),
    (Process::New, "recover.delivered"),
    (Process::New, "recover.delivered:2"),
    (Process::New, "recover.settled"),
    (Process::New, "Recovered.due"),
    (Process::New, "Recovered.sent"),
    (Process::Supervisor, "spawn:2"),
    (Process::Supervisor, "Hello.heard:2"),
    (Process::Supervisor, "Active.heard:2"),
    (Process::Supervisor, "Recover.sent"),
    (Process::Supervisor, "Recovered.heard"),
];

/// Every case.
fn matrix() -> Vec<Case> {
    let transition = Transition::Upgrade;
    let mut cases = Vec::new();
    for &(at, point) in UPGRADE {
        let deeds = [
            Deed::Kill,
            Deed::Exit,
            Deed::Pause,
            Deed::Meanwhile(Process::Old),
            Deed::Meanwhile(Process::New),
            Deed::Meanwhile(Process::Supervisor),
            Deed::Meanwhile(Process::OldKeeper),
            Deed::Meanwhile(Process::NewKeeper),
        ];
        let others = deeds.into_iter().filter(|deed| *deed != Deed::Meanwhile(at));
        cases.extend(others.map(|deed| Case { transition, at, point, deed }));
        if at != Process::Supervisor {
            cases.push(Case { transition, at, point, deed: Deed::Hang });
        }
        if point.ends_with(".heard") {
            cases.push(Case { transition, at, point, deed: Deed::Starve });
        }
    }
    for &(at, point) in RECOVERY {
        let deeds = [
            Deed::Kill,
            Deed::Exit,
            Deed::Pause,
            Deed::Hang,
            Deed::Meanwhile(Process::New),
            Deed::Meanwhile(Process::Supervisor),
            Deed::Meanwhile(Process::OldKeeper),
            Deed::Meanwhile(Process::NewKeeper),
        ];
        let others = deeds.into_iter().filter(|deed| {
            *deed != Deed::Meanwhile(at) && (at == Process::New || *deed != Deed::Hang)
        });
        let transition = Transition::Recovery;
        cases.extend(others.map(|deed| Case { transition, at, point, deed }));
    }
    for (at, point) in [
        (Process::Old, "peer.Offer.due"),
        (Process::New, "peer.Answer.due"),
        (Process::Supervisor, "Migrate.due"),
    ] {
        cases.push(Case { transition, at, point, deed: Deed::Lie });
    }
    for (at, point) in [(Process::Supervisor, "Listeners.due:2"), (Process::New, "Plan.due")] {
        cases.push(Case { transition, at, point, deed: Deed::Lie });
    }
    for (at, point) in [
        (Process::Old, "Prepare.heard:2"),
        (Process::Old, "Plan.sent:2"),
        (Process::Old, "Ready.sent:2"),
        (Process::Old, "Active.sent:2"),
        (Process::Supervisor, "Plan.heard:2"),
        (Process::Supervisor, "Activate.sent:2"),
    ] {
        for deed in [Deed::Kill, Deed::Pause, Deed::Meanwhile(Process::Supervisor)] {
            if deed != Deed::Meanwhile(at) {
                cases.push(Case { transition: Transition::Reload, at, point, deed });
            }
        }
    }
    cases
}

/// What CI has time for.
fn slice() -> Vec<Case> {
    let case = |at, point, deed| Case { transition: Transition::Upgrade, at, point, deed };
    let recovery = |at, point, deed| Case { transition: Transition::Recovery, at, point, deed };
    vec![
        case(Process::New, "Plan.sent", Deed::Kill),
        case(Process::New, "Active.sent", Deed::Meanwhile(Process::Supervisor)),
        case(Process::Old, "Quiesce.heard", Deed::Pause),
        case(Process::Supervisor, "Ready.heard:2", Deed::Kill),
        case(Process::Supervisor, "reexec.read", Deed::Exit),
        case(Process::New, "Plan.sent", Deed::Starve),
        case(Process::Old, "peer.Offer.sent", Deed::Kill),
        case(Process::Old, "peer.Commit.sent", Deed::Kill),
        case(Process::New, "peer.Answer.sent", Deed::Kill),
        case(Process::New, "peer.Commit.heard", Deed::Kill),
        case(Process::Old, "migrate.frozen:2", Deed::Meanwhile(Process::New)),
        case(Process::New, "peer.Offer.heard", Deed::Meanwhile(Process::Supervisor)),
        case(Process::New, "peer.Offer.heard", Deed::Meanwhile(Process::OldKeeper)),
        recovery(Process::New, "recover.fetched", Deed::Kill),
        recovery(Process::New, "recover.delivered:2", Deed::Kill),
        recovery(Process::Supervisor, "Recover.sent", Deed::Pause),
        case(Process::Supervisor, "Listeners.due:2", Deed::Lie),
        Case {
            transition: Transition::Reload,
            ..case(Process::Supervisor, "Plan.heard:2", Deed::Kill)
        },
    ]
}

#[test]
fn a_slice_of_the_matrix() {
    let (complaints, _) = run_all(&slice());
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
#[ignore = "takes long: `just torture`"]
fn the_whole_matrix() {
    let only = std::env::var("BATON_TORTURE_CASE").unwrap_or_default();
    let cases: Vec<_> = matrix().into_iter().filter(|case| case.name().contains(&only)).collect();
    let (complaints, resets) = run_all(&cases);
    println!("{} cases, {resets} connections reset where that was allowed", cases.len());
    assert!(complaints.is_empty(), "{complaints:#?}");
}
