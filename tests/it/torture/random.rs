//! Anything at any moment: processes killed and stopped at random while connections of every kind
//! go through an instance that is upgraded and reloaded meanwhile.
//!
//! One round is one instance and ten blows. Everything that is decided follows from the
//! round's seed; what it meets depends on the machine, so a seed repeats the blows and their
//! pauses, and shows a fault again with luck.

use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use serde_json::json;

use super::family::{KEEPER, Member, WORKER, family, is_dead, slay, strike, wait_stopped};
use super::part::Kind;
use super::setting::{Place, Setting};
use super::verdict::Allowed;
use crate::harness::{Pattern, until};

/// Blows in one round: more would only show the supervisor's back-off.
const BLOWS: u64 = 10;
const ROUNDS_AT_ONCE: usize = 3;
/// What is decided by a seed.
struct Dice {
    pattern: Pattern,
    position: u64,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self { pattern: Pattern(seed), position: 0 }
    }

    /// Any number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        let mut bytes = [0; 8];
        self.pattern.fill(self.position, &mut bytes);
        self.position += 8;
        u64::from_le_bytes(bytes) % sides
    }
}

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) rounds: u64,
    pub(super) kills: u64,
    pub(super) connections: u64,
    pub(super) resets: u64,
    pub(super) complaints: Vec<String>,
}

/// One instance, beaten.
struct Round<'p> {
    setting: Setting<'p>,
    dice: Dice,
    /// Commands that run beside the blows.
    commands: Vec<Child>,
    kills: u64,
    /// Who was struck with what, for a complaint.
    blows: Vec<String>,
    /// Workers among them, and how many there may be.
    slain: u64,
    most_slain: u64,
    /// A worker was killed.
    loaded: bool,
    /// And it is not known that its connections have been recovered.
    recovering: bool,
    /// The supervisor was killed then.
    orphaned: bool,
}

impl Round<'_> {
    fn pause(&mut self) {
        // Not to wait for something, but to meet something else than last time.
        let pause = Duration::from_micros(self.dice.roll(60_000));
        std::thread::park_timeout(pause);
    }

    fn start(&mut self, command: &str) {
        let mut command = self.setting.instance.command(&[command]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.commands.push(child);
    }

    fn pick(&mut self, name: &str) -> Option<Member> {
        let all = family(&self.setting.instance).into_iter();
        let mut named: Vec<_> = all.filter(|member| member.name == name).collect();
        named.sort_by_key(|member| member.pid);
        match named.len() as u64 {
            0 => None,
            count => Some(named.swap_remove(self.dice.roll(count) as usize)),
        }
    }

    fn kill(&mut self, member: &Member) {
        self.blows.push(format!("{} {} killed", member.name, member.pid));
        strike(member.pid, Signal::SIGKILL);
        self.kills += 1;
    }

    fn blow(&mut self, keepers: bool) {
        let sides = if keepers { 12 } else { 10 };
        match self.dice.roll(sides) {
            0..=3 => {
                if let Some(worker) = self.pick(WORKER).filter(|_| self.slain < self.most_slain) {
                    self.kill(&worker);
                    self.slain += 1;
                    (self.loaded, self.recovering) = (true, true);
                }
            }
            4..=5 => {
                if self.loaded && self.dice.roll(2) == 0 {
                    self.setting.wait_settled();
                    self.recovering = false;
                }
                // Nobody is left who knows of the dead worker's keeper.
                self.orphaned |= self.recovering;
                let pid = self.setting.instance.pid();
                self.blows.push(format!("supervisor {pid} killed"));
                slay(pid);
                self.kills += 1;
                let _killed = self.setting.instance.wait_end();
                // Between the two a worker may die with nobody to see it.
                self.setting.restart();
            }
            6..=7 => {
                let worker = self.pick(WORKER).filter(|_| self.dice.roll(2) == 0);
                let pid = worker.map_or(self.setting.instance.pid(), |worker| worker.pid);
                self.blows.push(format!("{pid} stopped"));
                strike(pid, Signal::SIGSTOP);
                wait_stopped(pid);
                self.pause();
                strike(pid, Signal::SIGCONT);
            }
            8..=9 => {
                let config = json!(1000 + self.dice.roll(1000));
                let mut whole = self.setting.instance.config();
                whole["rules"][0]["timeout"] = config;
                self.setting.instance.configure(&whole);
                self.start("reload");
            }
            _ => {
                if let Some(keeper) = self.pick(KEEPER) {
                    self.kill(&keeper);
                }
            }
        }
    }
}

/// Plays a round.
fn round(seed: u64) -> Tally {
    let mut dice = Dice::new(seed);
    // A keeper that is killed takes the protection with it, so there is less to expect then.
    let keepers = dice.roll(8) == 0;
    // The third of workers that die one soon after the other is not given what the others left:
    // it may be what they died of.
    let (poison, slain) = (dice.roll(4) == 0, 0);
    let most_slain = if poison { BLOWS } else { 2 };
    let place = Place::new();
    let supervisor = json!({ "watch": "200ms", "drainTimeout": "5m" });
    let kinds = [&Kind::ALL[..], &[Kind::Idle; 10]].concat();
    let setting = Setting::start(&place, &supervisor, None, "", &kinds);
    let commands = Vec::new();
    let [loaded, recovering, orphaned] = [false; 3];
    let mut round = Round {
        setting,
        dice,
        commands,
        kills: 0,
        blows: Vec::new(),
        slain,
        most_slain,
        loaded,
        recovering,
        orphaned,
    };
    for _ in 0..BLOWS {
        if round.dice.roll(2) == 0 {
            round.start("upgrade");
        }
        round.pause();
        round.blow(keepers);
    }
    let Round { setting, commands, kills, blows, loaded, orphaned, .. } = round;
    for mut command in commands {
        let _either = command.wait().unwrap();
    }
    until("the supervisor lives", || (!is_dead(setting.instance.pid())).then_some(()));
    setting.wait_settled();
    let allowed = match () {
        () if keepers => Allowed::Unprotected,
        () if orphaned || poison => Allowed::Resets,
        () if loaded => Allowed::Loaded,
        () => Allowed::Nothing,
    };
    let (mut complaints, resets) = setting.finish(allowed);
    if !complaints.is_empty() {
        complaints.push(blows.join(", "));
    }
    Tally { rounds: 1, kills, connections: kinds.len() as u64, resets, complaints }
}

/// Rounds until there were so many kills, or for so long; several at a time, because most of one
/// is waiting.
pub(super) fn run(seed: u64, kills: u64, limit: Duration) -> Tally {
    let start = Instant::now();
    let total = Mutex::new(Tally::default());
    // The first round has the seed itself, so that one that failed can be asked for.
    let seeds = Mutex::new((seed, Dice::new(seed)));
    std::thread::scope(|scope| {
        for _ in 0..ROUNDS_AT_ONCE {
            scope.spawn(|| {
                while total.lock().unwrap().kills < kills && start.elapsed() < limit {
                    let seed = {
                        let (next, dice) = &mut *seeds.lock().unwrap();
                        std::mem::replace(next, dice.roll(u64::MAX))
                    };
                    total.lock().unwrap().add(seed, play(seed));
                }
            });
        }
    });
    total.into_inner().unwrap()
}

/// A round; a panic in it is a complaint.
fn play(seed: u64) -> Tally {
    std::panic::catch_unwind(|| round(seed)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let complaints = vec![text.unwrap_or_else(|| "panicked".into())];
        Tally { rounds: 1, complaints, ..Tally::default() }
    })
}

impl Tally {
    fn add(&mut self, seed: u64, round: Self) {
        let Self { rounds, kills, connections, resets, complaints } = round;
        self.rounds += rounds;
        self.kills += kills;
        self.connections += connections;
        self.resets += resets;
        for complaint in complaints {
            println!("BATON_TORTURE_SEED={seed}: {complaint}");
            self.complaints.push(format!("BATON_TORTURE_SEED={seed}: {complaint}"));
        }
        if self.rounds.is_multiple_of(20) {
            println!("{} rounds, {} kills, {} resets", self.rounds, self.kills, self.resets);
        }
    }
}

fn wanted(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// The seed that was asked for, or one of the moment.
pub(super) fn seed() -> u64 {
    wanted("BATON_TORTURE_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    })
}

#[test]
fn a_few_rounds_of_anything_at_any_moment() {
    let tally = run(seed(), 10, Duration::from_secs(20));
    println!("{tally:?}");
    assert!(tally.complaints.is_empty(), "{:#?}", tally.complaints);
}

#[test]
#[ignore = "takes long: `just torture`"]
fn two_thousand_kills_at_any_moment() {
    let kills = wanted("BATON_TORTURE_KILLS").unwrap_or(2000);
    let seed = seed();
    println!("seed {seed}");
    let tally = run(seed, kills, Duration::MAX);
    println!("seed {seed}: {tally:?}");
    assert!(tally.complaints.is_empty(), "{:#?}", tally.complaints);
}
