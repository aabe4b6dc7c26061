//! What is measured: nothing at all, Baton, and the relays it is held against.
//!
//! A target is started afresh for every measurement, in a directory and on a port of its own,
//! through a tiny launcher (this program again) that asks the kernel to end it when we end.

mod baton;
mod haproxy;
mod nginx;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};

pub(crate) use baton::Baton;

use crate::procfs::{self, Pid, Sample};

const START: Duration = Duration::from_secs(15);
const STOP: Duration = Duration::from_secs(5);

/// A way from the client to the upstream.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// No relay: the ceiling, and the noise.
    Direct,
    /// The program this project builds.
    Baton(Baton),
    /// `mode tcp`, two threads, master and worker; `splice` forces it in both directions.
    Haproxy { splice: bool },
    /// `stream`, two workers.
    Nginx,
}

impl Target {
    /// Short, and unique in a comparison.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Direct => "direct".to_owned(),
            Self::Baton(baton) => baton.name.clone(),
            Self::Haproxy { splice: false } => "haproxy".to_owned(),
            Self::Haproxy { splice: true } => "haproxy-splice".to_owned(),
            Self::Nginx => "nginx".to_owned(),
        }
    }

    /// Whether others are compared with it.
    pub(crate) fn is_peer(&self) -> bool {
        matches!(self, Self::Haproxy { .. } | Self::Nginx)
    }

    /// `Ok` with a version, or what to do to have it.
    pub(crate) fn available(&self) -> Result<String, String> {
        match self {
            Self::Direct => Ok(String::new()),
            Self::Baton(baton) => baton.version(),
            Self::Haproxy { .. } => haproxy::version(),
            Self::Nginx => nginx::version(),
        }
    }

    /// The shell command that replaces or reloads it while it runs; empty when there is none.
    pub(crate) fn upgrade_trigger(&self, running: &Running) -> String {
        match self {
            Self::Direct => String::new(),
            Self::Baton(baton) => baton.upgrade(running.directory.path()),
            Self::Haproxy { .. } => format!("kill -USR2 {}", running.root()),
            Self::Nginx => format!("kill -HUP {}", running.root()),
        }
    }

    /// Starts it in front of `upstream` and waits until it accepts.
    pub(crate) fn start(&self, upstream: SocketAddr, known: &[Pid]) -> io::Result<Running> {
        let directory = tempfile::Builder::new().prefix("baton-bench-").tempdir()?;
        let port = free_port()?;
        let command = match self {
            Self::Direct => {
                return Ok(Running {
                    address: upstream,
                    child: None,
                    directory,
                    known: Vec::new(),
                });
            }
            Self::Baton(baton) => baton.command(directory.path(), port, upstream)?,
            Self::Haproxy { splice } => {
                haproxy::command(directory.path(), port, upstream, *splice)?
            }
            Self::Nginx => nginx::command(directory.path(), port, upstream)?,
        };
        let child = launch(&command, &directory.path().join("log"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut running = Running { address, child: Some(child), directory, known: known.to_vec() };
        running.await_start().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}{}", self.name(), running.log()))
        })?;
        Ok(running)
    }
}

/// A target that runs; dropping it ends every process of it.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    child: Option<Child>,
    directory: tempfile::TempDir,
    /// Our other children.
    known: Vec<Pid>,
}

impl Running {
    /// The process that was started; 0 of [`Target::Direct`].
    pub(crate) fn root(&self) -> Pid {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// All its processes.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        match &self.child {
            None => Vec::new(),
            Some(child) => procfs::tree(child.id(), &self.known),
        }
    }

    /// Its processes' figures.
    pub(crate) fn sample(&self) -> Sample {
        procfs::sample(&self.pids())
    }

    fn await_start(&mut self) -> io::Result<()> {
        let until = Instant::now() + START;
        loop {
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                return Err(io::Error::other(format!("ended with {status}")));
            }
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The end of what it wrote, for an error message.
    fn log(&self) -> String {
        let mut text = String::new();
        for name in ["log", "error.log"] {
            let Ok(mut file) = std::fs::File::open(self.directory.path().join(name)) else {
                continue;
            };
            let mut bytes = Vec::new();
            if file.read_to_end(&mut bytes).is_ok() {
                text += &String::from_utf8_lossy(&bytes);
            }
        }
        let tail: Vec<&str> = text.lines().rev().take(3).map(str::trim).collect();
        tail.into_iter().rev().fold(String::new(), |all, line| all + " / " + line)
    }

    fn signal(&self, signal: Signal) {
        for pid in self.pids() {
            if let Ok(raw) = i32::try_from(pid) {
                // It may have ended meanwhile, which is what is wanted.
                let _ = kill(nix::unistd::Pid::from_raw(raw), signal);
            }
        }
    }

    /// Waits until none is left; reaps those of `members` that became ours.
    fn await_end(&mut self, members: &mut BTreeSet<Pid>, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let root = self.root();
        loop {
            let left = self.pids();
            members.extend(&left);
            let ended = match &mut self.child {
                Some(child) => child.try_wait().is_ok_and(|status| status.is_some()),
                None => true,
            };
            for pid in members.iter().filter(|pid| **pid != root) {
                if let Ok(raw) = i32::try_from(*pid) {
                    // ECHILD unless it was orphaned and came to us: nothing to reap then.
                    let _ = waitpid(nix::unistd::Pid::from_raw(raw), Some(WaitPidFlag::WNOHANG));
                }
            }
            if ended && left.is_empty() {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(root) = i32::try_from(self.root()).ok().filter(|raw| *raw > 0) else { return };
        let mut members = BTreeSet::from_iter(self.pids());
        // The root alone first, so that it can end its workers its own way.
        let _ = kill(nix::unistd::Pid::from_raw(root), Signal::SIGTERM);
        for stronger in [Signal::SIGTERM, Signal::SIGKILL] {
            if self.await_end(&mut members, STOP) {
                return;
            }
            self.signal(stronger);
        }
        self.await_end(&mut members, STOP);
    }
}

/// Starts a command that ends when this process does, with its output in a file.
fn launch(command: &[String], log: &Path) -> io::Result<Child> {
    let log = std::fs::File::create(log)?;
    Command::new(std::env::current_exe()?)
        .arg("launch")
        .args(command)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

/// Connections that a target of two descriptors each can hold within the system's limit.
pub(crate) fn capacity() -> u64 {
    procfs::descriptor_limit().saturating_sub(500) / 2
}

/// A port that was free a moment ago. Every target sets SO_REUSEADDR, and a start that fails
/// is reported, so losing the race costs a measurement and nothing else.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// First line that a program prints about itself.
fn version_line(program: &Path, argument: &str) -> Option<String> {
    let out = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
    let text = [out.stdout, out.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().map(|line| line.trim().to_owned())
}

/// Looks a program up as a shell would, and in the places where servers are kept.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
