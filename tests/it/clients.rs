//! Programs of other people that keep a session open while the gateway under it is upgraded, and
//! killed at a moment when nobody says anything. None of them may notice.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::unistd::{Uid, User};
use serde_json::json;

use crate::databases::{postgresql, redis};
use crate::harness::{
    Instance, Loopback, PATIENCE, Pattern, Program, Scratch, Upstream, certificate, find, missing,
    read_pattern, until,
};
use crate::websocket::{Session, echo};

fn gateway(mode: &str, server: SocketAddr, entry: SocketAddr) -> Instance {
    Instance::start(&json!({
        "supervisor": { "watch": "0s", "drainTimeout": "5m" },
        "rules": [{ "name": "r", "listen": entry.to_string(), "mode": mode,
                    "targets": [{ "address": server.to_string() }] }]
    }))
}

/// Replaces the worker and waits until the old one has nothing left and is gone.
fn upgrade(instance: &Instance) {
    let old = instance.serving();
    instance.expect_ok(&["upgrade"]);
    instance.wait_for("the connections have moved and the old worker is gone", |status| {
        let workers = status["workers"].as_array()?;
        (workers.len() == 1 && workers[0]["pid"] != old).then_some(())
    });
}

/// Three upgrades and a kill, with a bit of conversation before, between and after.
fn disturb(instance: &Instance, mut talk: impl FnMut()) {
    talk();
    for _ in 0..3 {
        upgrade(instance);
        talk();
    }
    let old = instance.serving();
    instance.kill_worker(old);
    instance.wait_replaced(old);
    talk();
}

/// A program that is told something line by line and answers so.
struct Dialogue {
    child: Child,
    input: Option<ChildStdin>,
    heard: Receiver<String>,
}

impl Dialogue {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (say, heard) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Self { input: child.stdin.take(), child, heard }
    }

    /// Says a line and returns the next one that comes.
    fn ask(&mut self, line: &str) -> String {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        self.heard.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Ends the input and waits; whether it ended well.
    fn end(mut self) -> bool {
        drop(self.input.take());
        self.child.wait().unwrap().success()
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn a_websocket_session_notices_nothing() {
    let loopback = Loopback::unique();
    let upstream = Upstream::serve(loopback.next(), echo);
    let entry = loopback.next();
    let instance = gateway("normal", upstream.address(), entry);
    let mut session = Session::open(entry);
    disturb(&instance, || session.exchange());
    session.close();
    instance.stop();
}

#[test]
fn a_tls_session_notices_nothing() {
    if missing("a_tls_session", &["openssl"]) {
        return;
    }
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let (server, entry) = (loopback.next(), loopback.next());
    let pem = certificate(&scratch, "one.example");
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-rev", "-accept", &server.to_string(), "-cert"]);
    let _server = Program::start(&scratch, "server", command.arg(&pem).arg("-key").arg(&pem));
    until("openssl listens", || std::net::TcpStream::connect(server).ok());
    let instance = gateway("tls", server, entry);
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-verify_quiet", "-servername", "one.example", "-connect"]);
    let mut session = Dialogue::start(client.arg(entry.to_string()).stderr(Stdio::null()));
    let mut round = 100;
    disturb(&instance, || {
        round += 1;
        let backwards: String = round.to_string().chars().rev().collect();
        assert_eq!(session.ask(&round.to_string()), backwards);
    });
    drop(session);
    instance.stop();
}

#[test]
fn a_redis_session_notices_nothing() {
    if missing("a_redis_session", &["redis-server", "redis-cli", "stdbuf"]) {
        return;
    }
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let (server, entry) = (loopback.next(), loopback.next());
    let _server = redis(&scratch, server);
    let instance = gateway("normal", server, entry);
    let mut client = Command::new("stdbuf");
    client.args(["-oL", "redis-cli", "-h", &entry.ip().to_string()]);
    let mut session = Dialogue::start(client.args(["-p", &entry.port().to_string()]));
    // The client would connect anew without a word; the server knows.
    let connection = session.ask("CLIENT ID");
    let mut count = 0;
    disturb(&instance, || {
        count += 1;
        assert_eq!(session.ask("INCR n"), count.to_string());
        assert_eq!(session.ask("CLIENT ID"), connection);
    });
    assert!(session.end());
    instance.stop();
}

#[test]
fn a_postgresql_session_notices_nothing() {
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let (server, entry) = (loopback.next(), loopback.next());
    let Some(_server) = postgresql("a_postgresql_session", &scratch, server) else { return };
    let instance = gateway("normal", server, entry);
    let address = format!("host={} port={} user=it dbname=postgres", entry.ip(), entry.port());
    let psql = || {
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "psql", "-X", "-A", "-t", "-q", &address]);
        command
    };
    until("PostgreSQL answers", || {
        psql().args(["-c", "select 1"]).output().unwrap().status.success().then_some(())
    });
    let mut session = Dialogue::start(&mut psql());
    let process = session.ask("create temporary table t (n int); select pg_backend_pid();");
    let mut count = 0;
    disturb(&instance, || {
        count += 1;
        let rows = session.ask("insert into t values (1); select count(*) from t;");
        assert_eq!(rows, count.to_string());
        assert_eq!(session.ask("select pg_backend_pid();"), process);
    });
    assert!(session.end());
    instance.stop();
}

#[test]
fn an_ssh_session_notices_nothing() {
    const TEST: &str = "an_ssh_session";
    if missing(TEST, &["sshd", "ssh", "ssh-keygen"]) {
        return;
    }
    if !Uid::effective().is_root() || !std::path::Path::new("/run/sshd").is_dir() {
        // Its service makes the directory that it confines itself to.
        if let Err(error) = std::fs::create_dir_all("/run/sshd") {
            eprintln!("SKIPPED {TEST}: /run/sshd cannot be made: {error}");
            return;
        }
    }
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let (server, entry) = (loopback.next(), loopback.next());
    let key = |name: &str| {
        let file = scratch.path().join(name);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&file)
            .status()
            .unwrap();
        assert!(made.success());
        file
    };
    let (host, user) = (key("host"), key("user"));
    let config = scratch.file(
        "sshd_config",
        format!(
            "ListenAddress {server}\nHostKey {}\nAuthorizedKeysFile {}.pub\nStrictModes no\n\
             UsePAM no\nPermitRootLogin prohibit-password\nPidFile none\nPrintMotd no\n",
            host.display(),
            user.display()
        ),
    );
    let mut command = Command::new(find("sshd").unwrap());
    let _server = Program::start(&scratch, "sshd", command.args(["-D", "-e", "-f"]).arg(&config));
    until("sshd listens", || std::net::TcpStream::connect(server).ok());
    let instance = gateway("normal", server, entry);
    let name = User::from_uid(Uid::effective()).unwrap().unwrap().name;
    let mut client = Command::new("ssh");
    client
        .args(["-F", "none", "-T", "-q", "-o", "StrictHostKeyChecking=no"])
        .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-i"])
        .arg(&user)
        .args(["-p", &entry.port().to_string()])
        .arg(format!("{name}@{}", entry.ip()))
        .arg("cat");
    let mut session = Dialogue::start(&mut client);
    let mut round = 0;
    disturb(&instance, || {
        round += 1;
        let line = format!("line {round}");
        assert_eq!(session.ask(&line), line);
    });
    assert!(session.end());
    instance.stop();
}

#[test]
fn a_large_download_arrives_as_it_was_sent() {
    if missing("a_large_download", &["curl"]) {
        return;
    }
    const CHUNK: usize = 64 * 1024;
    let pattern = Pattern(0xC0FF_EE00);
    let over = Arc::new(AtomicBool::new(false));
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let upstream = Upstream::serve(loopback.next(), {
        let over = Arc::clone(&over);
        move |mut stream| {
            // A request fits one segment; what it asks for does not matter.
            let _request = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
            let mut chunk = vec![0; CHUNK];
            let mut position = 0;
            let mut sent = stream.write_all(head.as_bytes());
            while sent.is_ok() && !over.load(Ordering::SeqCst) {
                pattern.fill(position, &mut chunk);
                position += CHUNK as u64;
                let whole = [format!("{CHUNK:x}\r\n").as_bytes(), &chunk, b"\r\n"].concat();
                sent = stream.write_all(&whole);
                // Fast, and not more than the disk has room for.
                std::thread::park_timeout(Duration::from_millis(3));
            }
            let _gone = stream.write_all(b"0\r\n\r\n");
        }
    });
    let entry = loopback.next();
    let instance = gateway("normal", upstream.address(), entry);
    let file = scratch.path().join("download");
    let mut curl = Command::new("curl")
        .args(["-sS", "--fail", "-o"])
        .arg(&file)
        .arg(format!("http://{entry}/large"))
        .spawn()
        .unwrap();
    let size = || std::fs::metadata(&file).map_or(0, |file| file.len());
    let more = || {
        let before = size();
        until("the download goes on", || (size() >= before + 1_000_000).then_some(()));
    };
    more();
    for _ in 0..4 {
        upgrade(&instance);
        more();
    }
    over.store(true, Ordering::SeqCst);
    assert!(curl.wait().unwrap().success());
    let length = read_pattern(pattern, &mut File::open(&file).unwrap()).unwrap();
    assert!(length > 5_000_000 && length.is_multiple_of(CHUNK as u64), "{length}");
    instance.stop();
}
