//! Databases behind the gateway, with their own clients.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use nix::unistd::{Uid, User};
use serde_json::json;

use crate::harness::{Instance, Loopback, Program, Scratch, find, missing, until};

pub(crate) fn through(
    mode: &str,
    server: SocketAddr,
    loopback: &Loopback,
) -> (Instance, SocketAddr) {
    let entry = loopback.next();
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": mode, "targets": [
            { "address": server.to_string() }] }]}));
    (instance, entry)
}

/// A running Redis.
pub(crate) fn redis(scratch: &Scratch, server: SocketAddr) -> Program {
    let program = Program::start(
        scratch,
        "redis",
        Command::new("redis-server")
            .args(["--bind", &server.ip().to_string(), "--port", &server.port().to_string()])
            .args(["--save", "", "--appendonly", "no", "--protected-mode", "no"])
            .current_dir(scratch.path()),
    );
    until("redis listens", || TcpStream::connect(server).ok());
    program
}

#[test]
fn a73_redis_keeps_its_promises_through_boost() {
    if missing("a73_redis", &["redis-server", "redis-cli", "redis-benchmark"]) {
        return;
    }
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let server = loopback.next();
    let _server = redis(&scratch, server);
    let (instance, entry) = through("boost", server, &loopback);
    let at = ["-h", &entry.ip().to_string(), "-p", &entry.port().to_string()].map(str::to_owned);
    let cli = |words: &[&str]| {
        let output = Command::new("redis-cli").args(&at).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let value = "v".repeat(50_000);
    assert_eq!(cli(&["set", "key", &value]), "OK");
    assert_eq!(cli(&["get", "key"]), value);
    let output = Command::new("redis-benchmark")
        .args(&at)
        .args(["-q", "-n", "2000", "-c", "20", "-P", "16", "-t", "set,get"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    instance.stop();
}

/// A running PostgreSQL for the user `it`; nothing where it cannot be had, and `test` is told
/// skipped then.
pub(crate) fn postgresql(test: &str, scratch: &Scratch, server: SocketAddr) -> Option<Program> {
    if missing(test, &["psql", "initdb", "postgres", "setpriv"]) {
        return None;
    }
    // The server refuses to run as root.
    let Ok(Some(user)) = User::from_name("postgres") else {
        eprintln!("SKIPPED {test}: no user postgres");
        return None;
    };
    if !Uid::effective().is_root() {
        eprintln!("SKIPPED {test}: needs root to become the user postgres");
        return None;
    }
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let data = scratch.path().join("data");
    std::fs::create_dir(&data).unwrap();
    nix::unistd::chown(&data, Some(user.uid), Some(user.gid)).unwrap();
    let as_postgres = |program: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"])
            .arg(find(program).unwrap())
            .arg("-D")
            .arg(&data)
            .current_dir("/");
        command
    };
    let made = as_postgres("initdb").args(["--no-sync", "-A", "trust", "-U", "it"]).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let program = Program::start(
        scratch,
        "postgres",
        as_postgres("postgres")
            .args(["-h", &server.ip().to_string(), "-p", &server.port().to_string()])
            .args(["-c", "unix_socket_directories=", "-c", "fsync=off"]),
    );
    // It trusts the whole of 127.0.0.0/8 only as 127.0.0.1, which is where the gateway dials from.
    Some(program)
}

#[test]
fn a73_postgresql_answers_through_normal_and_tunnels_a_large_result() {
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let server = loopback.next();
    let Some(_server) = postgresql("a73_postgresql", &scratch, server) else { return };
    let (instance, entry) = through("normal", server, &loopback);
    let ask = |query: &str| {
        let address = format!("host={} port={} user=it dbname=postgres", entry.ip(), entry.port());
        let output = Command::new("psql").args(["-X", "-A", "-t", &address, "-c", query]).output();
        let output = output.unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    assert_eq!(until("PostgreSQL answers", || ask("select 6 * 7")), "42");
    let large = ask("select repeat('x', 3000000)").unwrap();
    assert!(large.len() == 3_000_000 && large.bytes().all(|byte| byte == b'x'));
    instance.stop();
}
