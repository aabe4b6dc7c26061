//! Counting with valgrind's callgrind: this program runs itself within it.
//!
//! Collecting is switched on and off by entering and leaving [`counted_by_callgrind`], and leaving it writes
//! what was collected to the next file of a series, one a path.

use std::fs;
use std::path::Path as File;
use std::process::{Command, Stdio};

use crate::paths::Path;

/// The function that is watched, in two spellings: callgrind forgets an option whose pattern another
/// option has too.
const SWITCHES: &str = "*counted_by_callgrind*";
const WRITES: &str = "*::counted_by_callgrind*";
/// Runs before counting: caches are warm and vectors have grown.
const WARM_UP: usize = 50;
/// Runs counted together.
const TIMES: u64 = 200;

/// Whether there is a valgrind.
pub(crate) fn is_there() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Within callgrind: runs every path, each counted by itself.
pub(crate) fn run_all(paths: Vec<Path>) {
    for mut path in paths {
        (0..WARM_UP).for_each(|_| (path.run)());
        counted_by_callgrind(&mut path);
    }
}

#[inline(never)]
fn counted_by_callgrind(path: &mut Path) {
    for _ in 0..TIMES {
        (path.run)();
    }
}

/// Instructions of one run of each path, in order; `told` makes this program call [`run_all`].
pub(crate) fn count(told: &str) -> Result<Vec<u64>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let dir = std::env::temp_dir().join(format!("baton-callgrind-{}", std::process::id()));
    fs::create_dir(&dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
    let counts = run(&program, told, &dir).and_then(|()| totals(&dir));
    fs::remove_dir_all(&dir).map_err(|error| format!("remove {}: {error}", dir.display()))?;
    counts
}

fn run(program: &File, told: &str, dir: &File) -> Result<(), String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={SWITCHES}"))
        .arg(format!("--dump-after={WRITES}"))
        .arg(format!("--callgrind-out-file={}", dir.join("out").display()))
        .arg(program)
        .arg(told)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("start valgrind: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// What the files `out.1`, `out.2` … say.
fn totals(dir: &File) -> Result<Vec<u64>, String> {
    let mut counts = Vec::new();
    loop {
        let file = dir.join(format!("out.{}", counts.len() + 1));
        if !file.exists() {
            return Ok(counts);
        }
        let text = fs::read_to_string(&file)
            .map_err(|error| format!("read {}: {error}", file.display()))?;
        let total = text
            .lines()
            .find_map(|line| line.strip_prefix("totals:"))
            .and_then(|total| total.trim().parse::<u64>().ok())
            .ok_or_else(|| format!("{} has no total", file.display()))?;
        counts.push(total / TIMES);
    }
}
