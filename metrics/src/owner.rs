//! Which process a lane belongs to, in one word, so that claiming is one exchange and a dead
//! owner can be told from a new process with the same number.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

/// A process by number and start, with what it is. Packed: number 24 bits (the kernel's limit
/// is 2²²), role 2 bits, start 38 bits of clock ticks since boot (87 years at 100 Hz).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(pub(crate) u64);

/// What a lane's process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The long-lived process.
    Supervisor,
    /// A process that holds rules.
    Worker,
}

impl Owner {
    /// No lane has this word as its owner.
    pub(crate) const NOBODY: u64 = 0;

    /// The process `pid` as it lives now. When `/proc` does not tell its start, the number
    /// alone identifies it.
    pub(crate) fn of(pid: u32, role: Role) -> Self {
        let start = stat(pid).map_or(0, |stat| stat.start);
        Self::new(pid, role, start)
    }

    pub(crate) fn new(pid: u32, role: Role, start: u64) -> Self {
        let role = match role {
            Role::Supervisor => 1,
            Role::Worker => 2,
        };
        Self(u64::from(pid & 0xFF_FFFF) | role << 24 | start << 26)
    }

    pub(crate) fn pid(self) -> u32 {
        crate::layout::low(self.0) & 0xFF_FFFF
    }

    /// An unknown role (overwritten memory) counts as a worker.
    pub(crate) fn role(self) -> Role {
        if self.0 >> 24 & 3 == 1 { Role::Supervisor } else { Role::Worker }
    }

    /// Whether exactly this process still runs; a zombie does not. Meaningful only in the
    /// process-number namespace of whoever claimed: see [`Holder`](crate::shared::Holder).
    pub(crate) fn is_alive(self) -> bool {
        let start = self.0 >> 26;
        stat(self.pid())
            .is_some_and(|stat| stat.runs && (start == 0 || stat.start << 26 >> 26 == start))
    }
}

/// The namespace in which this process's numbers count, as its inode; 0 when `/proc` does not
/// tell. Two containers on one region each have a process 7.
pub(crate) fn pid_namespace() -> u64 {
    static INODE: OnceLock<u64> = OnceLock::new();
    *INODE.get_or_init(|| fs::metadata("/proc/self/ns/pid").map_or(0, |link| link.ino()))
}

struct Stat {
    runs: bool,
    start: u64,
}

/// From `/proc/PID/stat`: the state (field 3) and the start time (field 22).
fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(line: &str) -> Option<Stat> {
    // The name (field 2) may hold anything, also brackets and spaces.
    let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some(Stat { runs: !matches!(state, "Z" | "X" | "x"), start })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_process_name_full_of_brackets_does_not_confuse_the_parser() {
        let line = "12 (a) Z (b)) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let stat = parse(line).unwrap();
        assert!(stat.runs);
        assert_eq!(stat.start, 4711);
        assert!(!parse(&line.replace(") S", ") Z")).unwrap().runs);
        assert!(parse("12 (a").is_none());
    }

    #[test]
    fn the_same_number_with_another_start_is_another_process() {
        let me = Owner::of(std::process::id(), Role::Worker);
        assert!(me.is_alive());
        assert_eq!((me.pid(), me.role()), (std::process::id(), Role::Worker));
        let earlier = Owner::new(std::process::id(), Role::Worker, (me.0 >> 26) + 1);
        assert!(!earlier.is_alive());
    }
}
