//! A running Baton: supervisor and workers, observed through its own commands.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::scratch::Scratch;
use super::wait::until;

/// Inherited by every process of an instance, so that none can hide.
const MARK: &str = "BATON_TEST_MARK";

/// How long a process may need to be gone after its supervisor, on a busy machine. One that was
/// forgotten stays for minutes.
const LEAVING: Duration = Duration::from_secs(20);

/// Variables of the surrounding shell that would change what the binary does.
const FOREIGN: [&str; 4] = ["BATON_CONFIG", "MOTO_CONFIG", "BATON_RUNTIME_DIR", "NOTIFY_SOCKET"];

/// What a finished command said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The binary under test, in an environment without surprises.
pub(crate) fn baton() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    for name in FOREIGN {
        command.env_remove(name);
    }
    command
}

/// A supervisor with its workers.
#[derive(Debug)]
pub(crate) struct Instance {
    scratch: Option<Scratch>,
    mark: String,
    supervisor: Child,
    ended: bool,
}

impl Instance {
    /// Starts with this configuration and waits until a worker serves.
    pub(crate) fn start(config: &Value) -> Self {
        let instance = Self::launch(config, baton());
        instance.wait_serving();
        instance
    }

    /// Starts `command` as the supervisor and waits for nothing. Its runtime directory is inside
    /// the scratch directory unless the configuration names one.
    pub(crate) fn launch(config: &Value, command: Command) -> Self {
        Self::launch_in(Scratch::new(), config, command)
    }

    /// As [`Self::launch`], in a scratch directory that was prepared.
    pub(crate) fn launch_in(scratch: Scratch, config: &Value, command: Command) -> Self {
        let log = scratch.path().join("log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        Self::launch_logging(scratch, config, command, log.into())
    }

    /// As [`Self::launch_in`], with its standard streams written to `log`.
    pub(crate) fn launch_logging(
        scratch: Scratch,
        config: &Value,
        mut command: Command,
        log: OwnedFd,
    ) -> Self {
        let file = scratch.file("setting.json", config.to_string());
        let mark = scratch.path().display().to_string();
        let supervisor = command
            .args(["run".as_ref(), "--config".as_ref(), file.as_os_str()])
            .arg("--runtime-dir")
            .arg(scratch.path().join("run"))
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { scratch: Some(scratch), mark, supervisor, ended: false }
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        self.scratch.as_ref().expect("only a restart takes it away")
    }

    pub(crate) fn runtime_dir(&self) -> PathBuf {
        self.scratch().path().join("run")
    }

    /// The supervisor's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// Every process of the instance that has not ended: supervisor, workers, keepers.
    pub(crate) fn processes(&self) -> Vec<u32> {
        marked(&self.mark)
    }

    /// The configuration it was last given.
    pub(crate) fn config(&self) -> Value {
        let file = std::fs::read(self.scratch().path().join("setting.json")).unwrap();
        serde_json::from_slice(&file).unwrap()
    }

    /// Writes a new configuration where the instance will read it.
    pub(crate) fn configure(&self, config: &Value) {
        self.scratch().file("setting.json", config.to_string());
    }

    /// A client command for this instance.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = baton();
        command.args(args).env("BATON_RUNTIME_DIR", self.runtime_dir());
        command
    }

    /// Runs a client command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        self.command(args).output().unwrap().into()
    }

    /// Runs a client command that must succeed; returns what it printed.
    pub(crate) fn expect_ok(&self, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!(outcome.code, 0, "baton {args:?}: {outcome:?}");
        outcome.stdout
    }

    /// `baton status --json`, or nothing while the instance does not answer.
    pub(crate) fn try_status(&self) -> Option<Value> {
        let outcome = self.run(&["status", "--json"]);
        (outcome.code == 0).then(|| serde_json::from_str(&outcome.stdout).unwrap())
    }

    /// `baton status --json`.
    pub(crate) fn status(&self) -> Value {
        self.try_status().expect("the instance answers")
    }

    /// Waits until the status shows something.
    pub(crate) fn wait_for<T>(&self, what: &str, probe: impl Fn(&Value) -> Option<T>) -> T {
        until(what, || self.try_status().as_ref().and_then(&probe))
    }

    /// The serving worker's process id.
    pub(crate) fn serving(&self) -> u32 {
        serving(&self.status()).expect("a worker serves")
    }

    /// Waits until a worker serves.
    pub(crate) fn wait_serving(&self) {
        until("a serving worker", || {
            let ended = state(&Path::new("/proc").join(self.pid().to_string())) == Some('Z');
            assert!(!ended, "the supervisor has ended");
            self.try_status().as_ref().and_then(serving)
        });
    }

    /// Waits until a worker other than `old` serves; returns its process id.
    pub(crate) fn wait_replaced(&self, old: u32) -> u32 {
        self.wait_for("another worker serves", |status| serving(status).filter(|&pid| pid != old))
    }

    /// The value of a counter or gauge, summed over its series, from `baton metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.expect_ok(&["metrics"]);
        text.lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// As [`Self::metric`], over the series that carry this label, written `name="value"`.
    pub(crate) fn series(&self, name: &str, label: &str) -> f64 {
        let text = self.expect_ok(&["metrics"]);
        text.lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')))
            .filter(|line| line.contains(label))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Sends the supervisor a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Kills a worker the hard way, unless the supervisor did so meanwhile: it does not bear a
    /// silent one for long.
    pub(crate) fn kill_worker(&self, pid: u32) {
        match kill(pid_of(pid), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => panic!("cannot kill worker {pid}: {error}"),
        }
    }

    /// Freezes a worker, and waits until every thread of it stands still.
    pub(crate) fn stop_worker(&self, pid: u32) {
        send(pid, Signal::SIGSTOP);
        until("every thread is stopped", || {
            let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            tasks.all(|task| state(&task.unwrap().path()) == Some('T')).then_some(())
        });
    }

    /// Kills the supervisor and nobody else.
    pub(crate) fn kill_supervisor(&mut self) {
        self.signal(Signal::SIGKILL);
        let _killed = self.supervisor.wait().unwrap();
        self.ended = true;
    }

    /// Waits until the supervisor ends by itself.
    pub(crate) fn wait_end(&mut self) -> ExitStatus {
        let status = until("the supervisor ends", || self.supervisor.try_wait().unwrap());
        self.ended = true;
        status
    }

    /// Stops, waits, and checks that nothing is left.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait_end();
        assert!(status.success(), "the supervisor ended with {status}");
    }

    /// Starts again where an ended instance was: the same runtime directory. Workers that outlived
    /// it are found there.
    pub(crate) fn restart(mut self, config: &Value) -> Self {
        self.start_over(config);
        self.wait_serving();
        self
    }

    /// As [`Self::restart`], in place and without waiting.
    pub(crate) fn start_over(&mut self, config: &Value) {
        assert!(self.ended, "it still runs");
        let scratch = self.scratch.take().expect("taken once");
        let log = File::options().append(true).open(scratch.path().join("log")).unwrap();
        *self = Self::launch_logging(scratch, config, baton(), log.into());
    }

    /// Everything it logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch().path().join("log")).unwrap_or_default()
    }
}

impl Instance {
    /// Looks for processes of this instance until there is none; those that stay.
    fn wait_alone(&self, found: impl Fn(u32)) -> Vec<u32> {
        let start = Instant::now();
        loop {
            let left = marked(&self.mark);
            if left.is_empty() || start.elapsed() > LEAVING {
                return left;
            }
            left.into_iter().for_each(&found);
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.scratch.is_none() {
            return;
        }
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}", self.mark, self.log());
        }
        if !self.ended {
            // Unless the test has seen the end itself, it is brought about here.
            let _gone = kill(pid_of(self.pid()), Signal::SIGKILL);
            let _reaped = self.supervisor.wait();
            // As long as one lives, it may write into the directory that is about to go.
            self.wait_alone(|pid| {
                let _gone = kill(pid_of(pid), Signal::SIGKILL);
            });
            return;
        }
        // What the supervisor has ended may need a moment more to be gone.
        let leaked = self.wait_alone(|_| ());
        for &pid in &leaked {
            let _gone = kill(pid_of(pid), Signal::SIGKILL);
        }
        if !std::thread::panicking() {
            assert!(leaked.is_empty(), "left behind: processes {leaked:?}");
            let socket = self.runtime_dir().join("control.sock");
            assert!(!socket.exists(), "left behind: {}", socket.display());
        }
    }
}

fn serving(status: &Value) -> Option<u32> {
    let workers = status["workers"].as_array()?;
    let worker = workers.iter().find(|worker| worker["role"] == "serving")?;
    u32::try_from(worker["pid"].as_u64()?).ok()
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap())
}

fn send(pid: u32, signal: Signal) {
    kill(pid_of(pid), signal).unwrap();
}

fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| has_mark(*pid, wanted.as_bytes()))
        .collect()
}

fn has_mark(pid: u32, wanted: &[u8]) -> bool {
    let proc = Path::new("/proc").join(pid.to_string());
    let zombie = state(&proc) == Some('Z');
    let carries = std::fs::read(proc.join("environ"))
        .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|entry| entry == wanted));
    carries && !zombie
}

/// The state letter of a process or thread.
fn state(proc: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(proc.join("stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}
