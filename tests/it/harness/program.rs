//! Real servers and clients of other people, where they are installed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::scratch::Scratch;
use super::wait::PATIENCE;

/// Whether a tool is missing here; says which on the terminal, as the reason why `test` is skipped.
pub(crate) fn missing(test: &str, tools: &[&str]) -> bool {
    let absent = tools.iter().find(|tool| find(tool).is_none());
    if let Some(tool) = absent {
        eprintln!("SKIPPED {test}: no {tool} on this machine");
    }
    absent.is_some()
}

/// Where a tool is: on the path, or where Debian keeps servers that people do not start by hand.
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.filter_map(|version| Some(version.ok()?.path().join("bin"))));
    }
    folders.into_iter().map(|folder| folder.join(tool)).find(|file| file.is_file())
}

/// A server program; ended and reaped on drop.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it; what it says goes to a file in `scratch`.
    pub(crate) fn start(scratch: &Scratch, name: &str, command: &mut Command) -> Self {
        let log = scratch.path().join(format!("{name}.log"));
        let said = File::create(&log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// What it said so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.log.display(), self.said());
        }
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _gone = kill(pid, Signal::SIGTERM);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > PATIENCE {
                let _gone = self.child.kill();
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Makes a self-signed certificate for `name`: `NAME.pem`, certificate and key in one file.
pub(crate) fn certificate(scratch: &Scratch, name: &str) -> PathBuf {
    let file = scratch.path().join(format!("{name}.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj"])
        .arg(format!("/CN={name}"))
        .arg("-keyout")
        .arg(&file)
        .arg("-out")
        .arg(file.with_extension("crt"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    append(&file, &file.with_extension("crt"));
    file
}

fn append(file: &Path, more: &Path) {
    let both = [std::fs::read(file).unwrap(), std::fs::read(more).unwrap()].concat();
    std::fs::write(file, both).unwrap();
}
