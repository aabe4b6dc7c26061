//! The feature's inside.
//!
//! A fault is told on standard error, which is the log, in one write before it is carried out, so
//! that a test can tell a fault that did no harm from one that never came.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, raise};

use super::{Stage, Who};
use crate::frame::{Direction, Kind};
use crate::message::name;
use crate::version::{Version, VersionRange};

const VARIABLE: &str = "BATON_FAULT";
const SPEAKS: &str = ".speaks-";

const NOBODY: u64 = 0;
const SUPERVISOR: u64 = 1 << 32;
const WORKER: u64 = 2 << 32;

static ME: AtomicU64 = AtomicU64::new(NOBODY);
static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();
static FED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
    Exit,
    Abort,
    Hang,
    Starve,
    Feed,
    Lie,
}

#[derive(Debug)]
struct Fault {
    text: String,
    role: u64,
    /// 0: any.
    number: u64,
    point: String,
    action: Action,
    nth: u32,
    reached: AtomicU32,
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        let (process, rest) = text.split_once('@')?;
        let mut rest = rest.split(':');
        let (point, action) = (rest.next()?, rest.next()?);
        let nth = rest.next().map_or(Some(1), |nth| nth.parse().ok())?;
        let (role, number) = process.split_at_checked(1)?;
        let role = match role {
            "s" => SUPERVISOR,
            "w" => WORKER,
            _ => return None,
        };
        let number = if number.is_empty() { 0 } else { number.parse().ok()? };
        let action = match action {
            "kill" => Action::Kill,
            "stop" => Action::Stop,
            "exit" => Action::Exit,
            "abort" => Action::Abort,
            "hang" => Action::Hang,
            "starve" => Action::Starve,
            "feed" => Action::Feed,
            "lie" => Action::Lie,
            _ => return None,
        };
        let reached = AtomicU32::new(0);
        Some(Self { text: text.into(), role, number, point: point.into(), action, nth, reached })
    }

    fn is_for(&self, me: u64, point: &str) -> bool {
        let (role, number) = (me & !0xffff_ffff, me & 0xffff_ffff);
        self.role == role && (self.number == 0 || self.number == number) && self.point == point
    }
}

pub(super) fn i_am(who: Who) {
    let me = match who {
        Who::Supervisor(image) => SUPERVISOR | u64::from(image),
        Who::Worker(number) => WORKER | u64::from(number),
    };
    ME.store(me, Ordering::SeqCst);
}

pub(super) fn reach(point: &str) {
    let _too_many = carry_out(point);
}

pub(super) fn message(kind: Kind, stage: Stage) -> usize {
    if faults().is_empty() {
        return 0;
    }
    let stage = match stage {
        Stage::Due => "due",
        Stage::Sent => "sent",
        Stage::Heard => "heard",
    };
    let between = if kind.belongs_to(Direction::Peer) { "peer." } else { "" };
    carry_out(&format!("{between}{}.{stage}", name(kind).unwrap_or("?")))
}

pub(super) fn spoken() -> Option<VersionRange> {
    static SPOKEN: OnceLock<Option<VersionRange>> = OnceLock::new();
    *SPOKEN.get_or_init(|| {
        let program = std::env::args_os().next()?;
        range(std::str::from_utf8(program.as_bytes()).ok()?)
    })
}

fn range(program: &str) -> Option<VersionRange> {
    let (_, range) = program.rsplit_once(SPEAKS)?;
    let (min, max) = range.split_once('-')?;
    VersionRange::new(Version(min.parse().ok()?), Version(max.parse().ok()?))
}

/// A fault that cannot be read would make a test prove nothing: the process ends.
fn faults() -> &'static [Fault] {
    FAULTS.get_or_init(|| {
        let Ok(text) = std::env::var(VARIABLE) else { return Vec::new() };
        let wanted = text.split(',').filter(|fault| !fault.is_empty());
        wanted
            .map(|fault| {
                Fault::parse(fault).unwrap_or_else(|| {
                    tell(&format!("{VARIABLE}: cannot read {fault:?}"));
                    std::process::exit(64)
                })
            })
            .collect()
    })
}

fn carry_out(point: &str) -> usize {
    let me = ME.load(Ordering::SeqCst);
    let mut too_many = 0;
    for fault in faults().iter().filter(|fault| fault.is_for(me, point)) {
        if fault.reached.fetch_add(1, Ordering::SeqCst) + 1 != fault.nth {
            continue;
        }
        tell(&format!("fault {} in process {}", fault.text, std::process::id()));
        match fault.action {
            Action::Kill => signal(Signal::SIGKILL),
            Action::Stop => signal(Signal::SIGSTOP),
            Action::Exit => std::process::exit(70),
            Action::Abort => std::process::abort(),
            Action::Hang => loop {
                std::thread::park();
            },
            Action::Starve => starve(),
            Action::Feed => limit(FED.load(Ordering::SeqCst)),
            Action::Lie => too_many += 1,
        }
    }
    too_many
}

/// To this very thread, so that it does not go on before it is delivered.
fn signal(signal: Signal) {
    if let Err(error) = raise(signal) {
        tell(&format!("fault: cannot raise {signal}: {error}"));
    }
}

/// The next descriptor's number is beyond the limit.
fn starve() {
    let free = std::fs::File::open("/dev/null").map(|file| file.as_raw_fd());
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| soft);
    if let (Ok(free), Ok(soft)) = (free, soft) {
        FED.store(soft, Ordering::SeqCst);
        limit(u64::try_from(free).unwrap_or(0));
    }
}

fn limit(soft: u64) {
    let set = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, soft, hard));
    if let Err(error) = set {
        tell(&format!("fault: cannot set the limit: {error}"));
    }
}

fn tell(what: &str) {
    let _unheard = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_process_point_action_and_which_time() {
        let fault = Fault::parse("w2@peer.Offer.sent:kill:3").unwrap();
        assert_eq!((fault.action, fault.nth), (Action::Kill, 3));
        assert!(fault.is_for(WORKER | 2, "peer.Offer.sent"));
        assert!(!fault.is_for(WORKER | 1, "peer.Offer.sent"));
        assert!(!fault.is_for(SUPERVISOR | 2, "peer.Offer.sent"));
        assert!(!fault.is_for(WORKER | 2, "peer.Offer.due"));
        assert!(!fault.is_for(NOBODY, "peer.Offer.sent"));
        assert!(Fault::parse("s@Plan.heard:stop").unwrap().is_for(SUPERVISOR | 7, "Plan.heard"));
        for wrong in ["", "w2", "w2@x", "x@y:kill", "w2@x:maim", "w@x:kill:often"] {
            assert!(Fault::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_name_of_the_file_says_what_is_spoken() {
        assert_eq!(range("/tmp/baton.speaks-2-3"), VersionRange::new(Version(2), Version(3)));
        assert_eq!(range("/tmp/baton"), None);
        assert_eq!(range("/tmp/baton.speaks-3-2"), None);
    }
}
