//! The gateway of the demo: a supervisor started from this binary, driven through its own client.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use baton_supervisor::control::client::Conversation;
use baton_supervisor::control::protocol::{Done, Request, Response, Status, WorkerRole};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::task::spawn_blocking;

/// How long a phase may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the status.
const LOOK: Duration = Duration::from_millis(20);
const UPGRADE: Request = Request::Upgrade { binary: None, force: false };

/// A running supervisor, in a directory that goes with it.
#[derive(Debug)]
pub(crate) struct Gateway {
    dir: PathBuf,
    entry: SocketAddr,
    upstreams: [SocketAddr; 2],
    supervisor: Child,
}

impl Gateway {
    /// Starts it and waits until a worker serves.
    pub(crate) async fn start(upstreams: [SocketAddr; 2]) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("baton-demo-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let entry = free_address()?;
        write_config(&dir, entry, &upstreams)?;
        let log = std::fs::File::create(dir.join("log"))?;
        let supervisor = Command::new(std::env::current_exe()?)
            .arg("run")
            .arg("--config")
            .arg(dir.join("setting.json"))
            .arg("--runtime-dir")
            .arg(runtime_dir(&dir))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let gateway = Self { dir, entry, upstreams, supervisor };
        gateway.seen("serves", serving).await?;
        Ok(gateway)
    }

    /// Where clients connect.
    pub(crate) fn entry(&self) -> SocketAddr {
        self.entry
    }

    /// Turns the upstreams' order round and reloads.
    pub(crate) async fn reload(&mut self) -> anyhow::Result<()> {
        self.upstreams.reverse();
        write_config(&self.dir, self.entry, &self.upstreams)?;
        self.succeed(Request::Reload).await?;
        Ok(())
    }

    /// Replaces worker and supervisor by new processes of the same binary; says how it went.
    pub(crate) async fn upgrade(&self) -> anyhow::Result<String> {
        Ok(self.succeed(UPGRADE).await?.message)
    }

    /// Begins an upgrade and kills the new worker as soon as it serves and is watched; says how it
    /// went.
    pub(crate) async fn fail_upgrade(&self) -> anyhow::Result<String> {
        let upgrade = self.transition(UPGRADE);
        let kill_watched = async {
            let pid = self.seen("is being watched", watched).await?;
            kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
            anyhow::Ok(())
        };
        let (done, killed) = tokio::join!(upgrade, kill_watched);
        killed?;
        let done = done?;
        ensure!(!done.ok, "an upgrade to a worker that died is said to have gone well");
        Ok(done.message)
    }

    /// Kills the serving worker and waits until another one serves.
    pub(crate) async fn kill_worker(&self) -> anyhow::Result<()> {
        let pid = self.seen("serves", serving).await?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
        let other = |status: &Status| serving(status).filter(|serving| *serving != pid);
        self.seen("serves again", other).await?;
        Ok(())
    }

    /// Ends it and removes its directory.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.succeed(Request::Stop).await?;
        let status = self.supervisor.wait().await?;
        ensure!(status.success(), "the supervisor ended with {status}");
        Ok(())
    }

    async fn succeed(&self, request: Request) -> anyhow::Result<Done> {
        let done = self.transition(request).await?;
        ensure!(done.ok, "{}: {}", done.message, done.problems.join("; "));
        Ok(done)
    }

    async fn transition(&self, request: Request) -> anyhow::Result<Done> {
        let dir = runtime_dir(&self.dir);
        spawn_blocking(move || {
            let mut conversation = Conversation::start(&dir, &request)?;
            conversation.set_patience(PATIENCE)?;
            loop {
                match conversation.next_response()? {
                    Response::Progress { .. } => {}
                    Response::Done(done) => return Ok(done),
                    Response::Status(_) | Response::Answer { .. } => {
                        bail!("the supervisor answered with something else")
                    }
                }
            }
        })
        .await?
    }

    /// Waits until the status shows a worker that `wanted` is looking for; returns its process id.
    async fn seen(
        &self,
        what: &str,
        wanted: impl Fn(&Status) -> Option<u32>,
    ) -> anyhow::Result<u32> {
        let look = async {
            loop {
                if let Some(pid) = self.status().await.as_ref().and_then(&wanted) {
                    return pid;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.with_context(|| {
            let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            format!("no worker {what} after {PATIENCE:?}; the supervisor's log:\n{log}")
        })
    }

    async fn status(&self) -> Option<Status> {
        let dir = runtime_dir(&self.dir);
        let ask = move || {
            let mut conversation = Conversation::start(&dir, &Request::Status).ok()?;
            conversation.set_patience(PATIENCE).ok()?;
            match conversation.next_response().ok()? {
                Response::Status(status) => Some(*status),
                Response::Progress { .. } | Response::Answer { .. } | Response::Done(_) => None,
            }
        };
        spawn_blocking(ask).await.ok().flatten()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // After `stop` there is nobody left; after a failure nothing may stay behind.
        if let Ok(None) = self.supervisor.try_wait()
            && let Some(pid) = self.supervisor.id().and_then(|pid| i32::try_from(pid).ok())
        {
            // Twice: the second one cuts what drains.
            for _ in 0..2 {
                let _gone = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        // The system's own clean-up gets what cannot be removed.
        let _kept = std::fs::remove_dir_all(&self.dir);
    }
}

fn runtime_dir(dir: &Path) -> PathBuf {
    dir.join("run")
}

/// Another program could take the port before the supervisor does; then it says so and the demo
/// ends.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn write_config(dir: &Path, entry: SocketAddr, upstreams: &[SocketAddr]) -> anyhow::Result<()> {
    let targets: Vec<_> = upstreams.iter().map(|address| json!({ "address": address })).collect();
    let config = json!({
        "log": { "level": "info" },
        "supervisor": { "watch": "3s", "drainTimeout": "60s", "workerThreads": 2 },
        "rules": [{
            "name": "demo", "listen": entry, "mode": "forward", "targets": targets,
            "maxConnectionsPerIP": 4096,
        }],
    });
    std::fs::write(dir.join("setting.json"), serde_json::to_vec_pretty(&config)?)?;
    Ok(())
}

fn serving(status: &Status) -> Option<u32> {
    status.workers.iter().find(|worker| worker.role == WorkerRole::Serving).map(|worker| worker.pid)
}

/// The new worker of an upgrade, once its connections have moved and it is on probation.
fn watched(status: &Status) -> Option<u32> {
    status.transition.as_ref().filter(|transition| transition.phase == "watch")?;
    serving(status)
}
