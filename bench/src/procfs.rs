//! What the kernel says about a tree of processes: CPU time, memory, descriptors.
//!
//! A target is a root process and everything below it. Processes that outlive their parent
//! are found too, because this program makes itself the reaper of its descendants: an orphan
//! becomes a child of ours, and what is our child and was not started by us belongs to the
//! target.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

/// A process number.
pub(crate) type Pid = u32;

/// Figures of a group of processes at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) processes: usize,
    /// Proportional set size: pages shared between the processes count once.
    pub(crate) pss_kib: f64,
    pub(crate) fds: usize,
    /// User and system time, that of ended and reaped children included.
    pub(crate) cpu_s: f64,
}

/// What is read of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: Pid,
    zombie: bool,
    /// utime + stime + cutime + cstime.
    ticks: u64,
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name is in parentheses and may hold anything, blanks and parentheses too.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        zombie: *fields.first()? == "Z",
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

fn parse_pss(rollup: &str) -> Option<f64> {
    let line = rollup.lines().find_map(|l| l.strip_prefix("Pss:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Everything below `roots`, they themselves included.
fn descendants(parents: &BTreeMap<Pid, Pid>, roots: &[Pid]) -> BTreeSet<Pid> {
    let mut found: BTreeSet<Pid> =
        roots.iter().copied().filter(|r| parents.contains_key(r)).collect();
    loop {
        let more: Vec<Pid> = parents
            .iter()
            .filter(|(child, parent)| found.contains(parent) && !found.contains(child))
            .map(|(child, _)| *child)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Every process that is not a zombie, with its parent.
fn parents() -> BTreeMap<Pid, Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<Pid>().ok())
        .filter_map(|pid| Some((pid, stat(pid).filter(|s| !s.zombie)?.parent)))
        .collect()
}

fn stat(pid: Pid) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The live processes below `root`, and orphans that came to us: children of this process
/// that are not in `known`.
pub(crate) fn tree(root: Pid, known: &[Pid]) -> Vec<Pid> {
    let parents = parents();
    let us = std::process::id();
    let mut roots = vec![root];
    roots.extend(
        parents.iter().filter(|(c, p)| **p == us && !known.contains(c)).map(|(child, _)| *child),
    );
    descendants(&parents, &roots).into_iter().collect()
}

/// Sums over processes; one that ends meanwhile counts nothing.
pub(crate) fn sample(pids: &[Pid]) -> Sample {
    let mut sum = Sample::default();
    for pid in pids {
        let Some(stat) = stat(*pid) else { continue };
        sum.processes += 1;
        sum.cpu_s += seconds(stat.ticks);
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        sum.pss_kib += parse_pss(&rollup).unwrap_or(0.0);
        sum.fds += fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    }
    sum
}

/// CPU seconds of processes, without the cost of reading their memory maps.
pub(crate) fn cpu_seconds(pids: &[Pid]) -> f64 {
    pids.iter().filter_map(|pid| stat(*pid)).map(|s| seconds(s.ticks)).sum()
}

fn seconds(ticks: u64) -> f64 {
    let rate = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    ticks as f64 / rate as f64
}

/// CPU seconds of this process so far; 0 if the kernel will not say.
pub(crate) fn own_cpu_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        micros as f64 / 1e6
    })
}

/// Lets this process and its children hold as many descriptors as the system allows.
///
/// # Errors
/// When the limit can be neither read nor changed.
pub(crate) fn raise_descriptor_limit() -> nix::Result<()> {
    const WANTED: u64 = 65_536;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Above the hard limit only the privileged may go; everybody may go up to it.
    let wanted = WANTED.max(hard);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted)
        .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard, hard))
}

/// How many descriptors this process may hold; a small number if the kernel will not say.
pub(crate) fn descriptor_limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_blanks_and_parentheses() {
        let text = "42 (a) (b c)) S 7 42 42 0 -1 0 1 2 3 4 100 20 3 4 20 0 1 0 9";
        assert_eq!(parse_stat(text), Some(Stat { parent: 7, zombie: false, ticks: 127 }));
        assert_eq!(parse_stat("42 (x"), None);
        assert_eq!(parse_stat("42 (x) S"), None);
    }

    #[test]
    fn the_proportional_size_is_found_among_its_likes() {
        let text = "00-ff ---p [rollup]\nRss:  12 kB\nPss:   7 kB\nPss_Anon:  5 kB\n";
        assert_eq!(parse_pss(text), Some(7.0));
        assert_eq!(parse_pss("Rss: 1 kB\n"), None);
    }

    #[test]
    fn a_tree_is_the_root_and_all_below_it_in_any_order_of_numbers() {
        let parents = BTreeMap::from([(5, 1), (3, 5), (9, 3), (4, 9), (7, 1), (8, 7)]);
        assert_eq!(descendants(&parents, &[5]), BTreeSet::from([3, 4, 5, 9]));
        assert_eq!(descendants(&parents, &[99]), BTreeSet::new());
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let own = sample(&[std::process::id()]);
        assert_eq!(own.processes, 1);
        assert!(own.pss_kib > 0.0 && own.fds >= 3);
        assert!(tree(std::process::id(), &[]).contains(&std::process::id()));
    }
}
