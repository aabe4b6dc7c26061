//! The committed counts, and how new ones compare with them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/instructions.json");

/// How much more than blessed is too much, in hundredths …
const TOLERANCE: u64 = 5;
/// … if it is more than so many instructions: below, a register that is used otherwise decides.
const TRIFLE: u64 = 2;

/// Instructions of one run of each path.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Baseline {
    /// The compiler and the C library that the counts depend on.
    pub(crate) toolchain: String,
    /// By path.
    pub(crate) instructions: BTreeMap<String, u64>,
}

/// One path, then and now.
pub(crate) struct Finding<'a> {
    path: &'a str,
    blessed: Option<u64>,
    now: Option<u64>,
}

impl Baseline {
    /// These counts, with the toolchain of this machine.
    pub(crate) fn here(instructions: BTreeMap<String, u64>) -> Result<Self, String> {
        let compiler = said_by("rustc", "-V")?;
        let library = said_by("getconf", "GNU_LIBC_VERSION").unwrap_or_else(|_| "no glibc".into());
        let architecture = std::env::consts::ARCH;
        Ok(Self { toolchain: format!("{compiler}, {library}, {architecture}"), instructions })
    }

    /// The committed one.
    pub(crate) fn read() -> Result<Self, String> {
        let text = fs::read_to_string(FILE).map_err(|error| format!("read {FILE}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("read {FILE}: {error}"))
    }

    /// Makes this the committed one.
    pub(crate) fn write(&self) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(FILE, text + "\n").map_err(|error| format!("write {FILE}: {error}"))
    }

    /// Every path of either side.
    pub(crate) fn compare<'a>(&'a self, now: &'a BTreeMap<String, u64>) -> Vec<Finding<'a>> {
        let gone = self.instructions.keys().filter(|path| !now.contains_key(*path));
        now.keys()
            .chain(gone)
            .map(|path| Finding {
                path,
                blessed: self.instructions.get(path).copied(),
                now: now.get(path).copied(),
            })
            .collect()
    }
}

impl Finding<'_> {
    /// Too expensive, or not in both.
    pub(crate) fn fails(&self) -> bool {
        match (self.blessed, self.now) {
            (Some(blessed), Some(now)) => {
                now > blessed + TRIFLE && now * 100 > blessed * (100 + TOLERANCE)
            }
            (None, _) | (_, None) => true,
        }
    }
}

impl fmt::Display for Finding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |count: Option<u64>| count.map_or_else(|| "-".into(), |now| now.to_string());
        write!(f, "{:<44}{:>12}{:>12}", self.path, shown(self.blessed), shown(self.now))?;
        match (self.blessed, self.now) {
            (Some(blessed), Some(now)) if self.fails() => {
                write!(f, "  TOO MUCH: {} %", now * 100 / blessed.max(1))
            }
            (Some(blessed), Some(now)) if now * (100 + TOLERANCE) < blessed * 100 => {
                write!(f, "  cheaper: bless it")
            }
            (Some(_), Some(_)) => Ok(()),
            (None, _) => write!(f, "  NEW: bless it"),
            (_, None) => write!(f, "  GONE: bless its absence"),
        }
    }
}

fn said_by(program: &str, argument: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(argument)
        .output()
        .map_err(|error| format!("{program} {argument}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
