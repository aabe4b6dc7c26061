//! Baton itself, with a configuration that has everything on which a production one has:
//! admission lists, limits, metrics, crash recovery.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{text, version_line};

/// One binary with one configuration.
#[derive(Debug, Clone)]
pub(crate) struct Baton {
    pub(crate) name: String,
    pub(crate) binary: PathBuf,
    /// Merged into the basic configuration; an object's fields go into `rules[0]` under
    /// `rule`, and into `supervisor` under `supervisor`.
    pub(crate) change: Value,
    /// How often the upstream is named as a target: each name is a line of its own.
    pub(crate) targets: u16,
}

impl Baton {
    /// The basic configuration.
    pub(crate) fn plain(binary: PathBuf) -> Self {
        Self { name: "baton".to_owned(), binary, change: json!({}), targets: 1 }
    }

    pub(super) fn version(&self) -> Result<String, String> {
        let hint = "build it first (cargo build --release) or name it with --baton PATH";
        if !self.binary.is_file() {
            return Err(format!("{} does not exist: {hint}", self.binary.display()));
        }
        version_line(&self.binary, "--version")
            .filter(|line| line.starts_with("baton"))
            .ok_or_else(|| format!("{} is no baton: {hint}", self.binary.display()))
    }

    /// Asks the binary whether it accepts the configuration; the error is what it says.
    pub(crate) fn check(&self) -> Result<(), String> {
        let checked = || {
            let directory = tempfile::tempdir()?;
            let file =
                self.write(directory.path(), 18_080, 18_081, "127.0.0.1:18082".parse().ok())?;
            Command::new(&self.binary)
                .args(["check", "--config", &text(&file)])
                .stdin(Stdio::null())
                .output()
        };
        let out = checked().map_err(|e: io::Error| e.to_string())?;
        if out.status.success() {
            return Ok(());
        }
        let said = [out.stdout, out.stderr].concat();
        Err(String::from_utf8_lossy(&said).trim().to_owned())
    }

    pub(super) fn command(
        &self,
        directory: &Path,
        port: u16,
        upstream: SocketAddr,
    ) -> io::Result<Vec<String>> {
        let metrics = super::free_port()?;
        let config = self.write(directory, port, metrics, Some(upstream))?;
        let runtime = text(&runtime(directory));
        let words = ["run", "--config", &text(&config), "--runtime-dir", &runtime];
        let mut command = vec![text(&self.binary)];
        command.extend(words.map(str::to_owned));
        Ok(command)
    }

    pub(super) fn upgrade(&self, directory: &Path) -> String {
        format!("'{}' upgrade --runtime-dir '{}'", text(&self.binary), text(&runtime(directory)))
    }

    fn write(
        &self,
        directory: &Path,
        port: u16,
        metrics: u16,
        upstream: Option<SocketAddr>,
    ) -> io::Result<PathBuf> {
        let upstream = upstream.ok_or(io::ErrorKind::InvalidInput)?;
        let file = directory.join("setting.json");
        std::fs::write(&file, self.config(port, metrics, upstream).to_string())?;
        Ok(file)
    }

    fn config(&self, port: u16, metrics: u16, upstream: SocketAddr) -> Value {
        let targets: Vec<Value> =
            (0..self.targets).map(|_| json!({ "address": upstream.to_string() })).collect();
        let most = super::capacity();
        let mut config = json!({
            "log": { "level": "error", "path": "" },
            "metrics": { "enabled": true, "listen": format!("127.0.0.1:{metrics}") },
            "supervisor": { "drainTimeout": "1s", "watch": "1s", "maxConnections": most },
            "rules": [{
                "name": "bench",
                "listen": format!("127.0.0.1:{port}"),
                "mode": "forward",
                "allowlist": ["127.0.0.0/8"],
                "maxConnections": most,
                "maxConnectionsPerIP": most,
                "targets": targets
            }]
        });
        merge(&mut config["supervisor"], &self.change["supervisor"]);
        merge(&mut config["rules"][0], &self.change["rule"]);
        config
    }
}

fn runtime(directory: &Path) -> PathBuf {
    directory.join("run")
}

/// Puts the fields of one object into another; a null takes the field away.
fn merge(into: &mut Value, change: &Value) {
    let (Some(into), Some(change)) = (into.as_object_mut(), change.as_object()) else { return };
    for (key, value) in change {
        if value.is_null() {
            into.remove(key);
        } else {
            into.insert(key.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reaches_rule_and_supervisor_and_nothing_else() {
        let mut baton = Baton::plain(PathBuf::from("baton"));
        baton.change = json!({
            "supervisor": { "crashRecovery": false },
            "rule": { "mode": "normal", "allowlist": null }
        });
        baton.targets = 3;
        let config = baton.config(1, 2, "127.0.0.1:3".parse().unwrap());
        assert_eq!(config["supervisor"]["crashRecovery"], json!(false));
        assert!(config["supervisor"]["maxConnections"].as_u64().is_some_and(|most| most > 0));
        let rule = &config["rules"][0];
        assert_eq!(rule["mode"], json!("normal"));
        assert!(rule.get("allowlist").is_none());
        assert_eq!(rule["targets"].as_array().map(Vec::len), Some(3));
    }
}
