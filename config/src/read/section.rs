//! The sections `log`, `metrics`, `supervisor` and `dns`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{address, complain, narrow, repeated, texts, whole};
use crate::model::{Dns, ListenHost, Log, Metrics, Supervisor, User};
use crate::problem::{Report, quoted};
use crate::shape::tree::{Node, Object};

pub(super) fn log(log: &Object, report: &mut Report) -> Option<Log> {
    let level = log.word("level");
    let path = log.get::<&str>("path").and_then(|path| {
        let wrong = if path.contains('\0') {
            "a path has no NUL"
        } else if !path.is_empty() && path.trim().is_empty() {
            "a path of blanks (empty for standard output alone)"
        } else if path.ends_with('/') {
            "a directory (a file is expected)"
        } else {
            return Some((!path.is_empty()).then(|| PathBuf::from(path)));
        };
        complain(report, log, "path", wrong);
        None
    });
    Some(Log { level: level?, path: path? })
}

pub(super) fn metrics(metrics: &Object, report: &mut Report) -> Option<Metrics> {
    let listen = metrics.get::<&str>("listen").and_then(|text| {
        let message = match address::listen(text) {
            Ok(listen) => match listen.host {
                ListenHost::Ip(ip) if ip.is_loopback() => {
                    return Some(SocketAddr::new(ip, listen.port));
                }
                ListenHost::Ip(_) | ListenHost::Any | ListenHost::Name(_) => format!(
                    "{} must be a numeric loopback address (127.0.0.0/8 or [::1])",
                    quoted(text)
                ),
            },
            Err(message) => message,
        };
        complain(report, metrics, "listen", message);
        None
    });
    Some(Metrics { enabled: metrics.get("enabled")?, listen: listen? })
}

/// Also read on its own, by the supervisor.
pub(crate) fn supervisor(section: &Object, report: &mut Report) -> Option<Supervisor> {
    let runtime_dir = section.maybe::<&str>("runtimeDir").and_then(|path| {
        let Some(path) = path else { return Some(None) };
        let clean = path.starts_with('/')
            && !path.contains('\0')
            && path.split('/').all(|part| part != "." && part != "..");
        if clean {
            return Some(Some(PathBuf::from(path)));
        }
        let message = format!("{} is not an absolute path without . and ..", quoted(path));
        complain(report, section, "runtimeDir", message);
        None
    });
    let user = section.maybe::<&str>("user").and_then(|user| match user.map(self::user) {
        None => Some(None),
        Some(Some(user)) => Some(Some(user)),
        Some(None) => {
            complain(report, section, "user", "invalid user (a name, or uid:gid in numbers)");
            None
        }
    });
    let region_size = section.get::<u64>("regionSize").and_then(|size| {
        if size % 4096 == 0 {
            return Some(size);
        }
        complain(report, section, "regionSize", format!("{size} is not a multiple of 4096"));
        None
    });
    Some(Supervisor {
        runtime_dir: runtime_dir?,
        handover: section.word("handover")?,
        crash_recovery: section.get("crashRecovery")?,
        user: user?,
        ready_timeout: section.get("readyTimeout")?,
        migrate_timeout: section.get("migrateTimeout")?,
        watch: section.get("watch")?,
        drain_timeout: section.get("drainTimeout")?,
        region_size: region_size?,
        worker_threads: section.get("workerThreads").and_then(narrow)?,
        max_connections: section.get("maxConnections").and_then(narrow)?,
    })
}

fn user(text: &str) -> Option<User> {
    if let Some((uid, gid)) = text.split_once(':') {
        // The largest number means "leave as it is" to the kernel: not an identity.
        let id = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten().filter(|id| *id != u32::MAX)
        };
        return Some(User::Ids { uid: id(uid)?, gid: id(gid)? });
    }
    let name = text.strip_suffix('$').unwrap_or(text);
    let good = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.bytes().all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.')
        });
    good.then(|| User::Name(text.into()))
}

pub(super) fn dns(dns: &Object, report: &mut Report) -> Option<Dns> {
    let hosts = hosts(dns, report);
    Some(Dns {
        refresh: dns.get("refresh")?,
        stale: dns.get("stale")?,
        prefer: dns.word("prefer")?,
        hosts: hosts?,
    })
}

fn hosts(dns: &Object, report: &mut Report) -> Option<BTreeMap<String, Vec<std::net::IpAddr>>> {
    let entries = dns.map("hosts")?;
    let mut hosts = BTreeMap::new();
    let mut all = true;
    for (key, node) in entries {
        let name = match address::host_name(key) {
            Ok(name) if !name.ends_with('.') => Some(name),
            Ok(_) => {
                report.add(node.at, node.path.as_str(), "a name without the final dot is expected");
                None
            }
            Err(why) => {
                let message = format!("invalid host name {}: {why}", quoted(key));
                report.add(node.at, node.path.as_str(), message);
                None
            }
        };
        let ips = node.read::<&[Node]>().and_then(|nodes| {
            let ips = texts(nodes, report, address::ip);
            repeated(nodes, &ips, "address", report);
            whole(ips)
        });
        match (name, ips) {
            (Some(name), Some(ips)) => {
                if hosts.insert(name.clone(), ips).is_some() {
                    let message = format!("duplicate name {} (case does not count)", quoted(&name));
                    report.add(node.at, node.path.as_str(), message);
                }
            }
            _ => all = false,
        }
    }
    all.then_some(hosts)
}
