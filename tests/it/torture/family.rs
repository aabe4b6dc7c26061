//! The processes of an instance as the kernel shows them: who is there, and what they hold.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Instance, until};

/// A process of the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) name: String,
    pub(crate) state: char,
}

/// Programs that a supervisor at rest has open: its own, the workers', and for ten minutes the
/// build before. Which of them there are depends on what was upgraded to.
const PROGRAMS: usize = 3;

pub(crate) const WORKER: &str = "baton-worker";
pub(crate) const KEEPER: &str = "baton-keeper";

fn member(pid: u32) -> Option<Member> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(") ")?;
    let name = head.split_once('(')?.1.to_owned();
    let mut fields = tail.split(' ');
    let state = fields.next()?.chars().next()?;
    Some(Member { pid, parent: fields.next()?.parse().ok()?, name, state })
}

/// Every living process of the instance.
pub(crate) fn family(instance: &Instance) -> Vec<Member> {
    let mut members: Vec<_> = instance.processes().into_iter().filter_map(member).collect();
    let workers: Vec<_> = members.iter().filter(|m| m.name == WORKER).map(|m| m.pid).collect();
    // A keeper has its worker's name until it runs for the first time.
    for keeper in members.iter_mut().filter(|m| workers.contains(&m.parent)) {
        KEEPER.clone_into(&mut keeper.name);
    }
    members
}

/// The keeper of a worker that is alive.
pub(crate) fn keeper_of(instance: &Instance, worker: u32) -> Option<u32> {
    let keepers = family(instance).into_iter();
    keepers.filter(|m| m.name == KEEPER && m.parent == worker).map(|m| m.pid).next()
}

/// Whether the process is gone or a zombie.
pub(crate) fn is_dead(pid: u32) -> bool {
    member(pid).is_none_or(|member| member.state == 'Z')
}

/// Sends a signal; whether there was still somebody to take it.
pub(crate) fn strike(pid: u32, signal: Signal) -> bool {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    match kill(pid, signal) {
        Ok(()) => true,
        Err(Errno::ESRCH) => false,
        Err(error) => panic!("cannot signal {pid}: {error}"),
    }
}

/// Kills it and waits until it is dead.
pub(crate) fn slay(pid: u32) {
    strike(pid, Signal::SIGKILL);
    until("the process dies", || is_dead(pid).then_some(()));
}

/// Waits until every thread of it stands still, or it has died.
pub(crate) fn wait_stopped(pid: u32) {
    until("every thread is stopped", || {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Some(()) };
        let mut stats =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        stats
            .all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'Z'])))
            .then_some(())
    });
}

/// What an instance at rest consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Census {
    /// The names of its processes, how many of each.
    processes: BTreeMap<String, usize>,
    /// Children that ended and were not waited for.
    zombies: usize,
    /// Descriptors of the supervisor, by kind.
    supervisor: BTreeMap<String, usize>,
    /// Descriptors of the worker, by kind.
    worker: BTreeMap<String, usize>,
    /// Registrations with epoll whose descriptor is closed or is another one now.
    ghosts: usize,
}

/// Takes the census of an instance with one worker. Nothing while there is more or less than that.
pub(crate) fn census(instance: &Instance) -> Option<Census> {
    let supervisor = instance.pid();
    let members = family(instance);
    let mut workers = members.iter().filter(|member| member.name == WORKER);
    let worker = workers.next()?.pid;
    if workers.next().is_some() {
        return None;
    }
    let mut processes = BTreeMap::new();
    for member in members.iter().filter(|member| member.pid != supervisor) {
        *processes.entry(member.name.clone()).or_default() += 1;
    }
    let mut kinds = kinds(worker)?;
    // Empty pipes wait in a pool for the next busy connection.
    kinds.remove("pipe");
    let (programs, held): (BTreeMap<_, _>, _) =
        self::kinds(supervisor)?.into_iter().partition(|(kind, _)| is_program(kind));
    if programs.values().sum::<usize>() > PROGRAMS {
        return None;
    }
    Some(Census {
        processes,
        zombies: zombies(&[supervisor, worker]),
        supervisor: held,
        worker: kinds,
        ghosts: ghosts(supervisor)? + ghosts(worker)?,
    })
}

fn is_program(kind: &str) -> bool {
    let name = Path::new(kind).file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("baton") && !name.starts_with("baton-it-"))
}

fn zombies(parents: &[u32]) -> usize {
    let all = std::fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let members = pids.filter_map(member);
    members.filter(|m| m.state == 'Z' && parents.contains(&m.parent)).count()
}

/// How many descriptors of each kind a process has: `socket`, `pipe`, `anon_inode`, a path.
fn kinds(pid: u32) -> Option<BTreeMap<String, usize>> {
    let mut kinds = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        let Ok(target) = std::fs::read_link(entry.ok()?.path()) else { continue };
        let target = target.display().to_string();
        let kind = target.split([':', ' ']).next().unwrap_or_default();
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    Some(kinds)
}

fn ghosts(pid: u32) -> Option<usize> {
    let mut ghosts = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()? {
        let Ok(text) = std::fs::read_to_string(entry.ok()?.path()) else { continue };
        for line in text.lines().filter(|line| line.starts_with("tfd:")) {
            let mut words = line.split_whitespace().skip(1);
            let number: u32 = words.next()?.parse().ok()?;
            let inode = words.find_map(|word| word.strip_prefix("ino:"))?;
            let inode = u64::from_str_radix(inode, 16).ok()?;
            let there = std::fs::metadata(format!("/proc/{pid}/fd/{number}"));
            if !there.is_ok_and(|there| there.ino() == inode) {
                ghosts += 1;
            }
        }
    }
    Some(ghosts)
}

/// Waits until the census is again what it was.
pub(crate) fn expect_census(instance: &Instance, before: &Census) {
    let start = std::time::Instant::now();
    loop {
        let now = census(instance);
        if now.as_ref() == Some(before) {
            return;
        }
        assert!(
            start.elapsed() < crate::harness::PATIENCE,
            "left over: {now:#?}\nbefore: {before:#?}\n{:#?}",
            family(instance)
        );
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
}
