//! `tls`: routing by what a ClientHello says, with hellos of our own and with real programs.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{
    Hello, Instance, Loopback, Program, Scratch, Upstream, certificate, converse, deliver, missing,
    records, until,
};

/// Upstreams for one name, a wildcard with a protocol, and the rest.
struct Setting {
    instance: Instance,
    entry: SocketAddr,
    _upstreams: [Upstream; 3],
}

fn setting(extra: Value) -> Setting {
    let loopback = Loopback::unique();
    let upstreams = ["one", "edge", "rest"].map(|name| Upstream::reporting(loopback.next(), name));
    let [one, edge, rest] = upstreams.each_ref().map(|upstream| upstream.address().to_string());
    let entry = loopback.next();
    let mut rule = json!({ "name": "r", "listen": entry.to_string(), "mode": "tls", "targets": [
        { "address": one, "serverNames": ["one.example"] },
        { "address": edge, "serverNames": ["*.edge.example"], "alpn": ["h2"] },
        { "address": rest }]});
    for (key, value) in extra.as_object().unwrap() {
        rule[key] = value.clone();
    }
    Setting { instance: Instance::start(&json!({ "rules": [rule] })), entry, _upstreams: upstreams }
}

/// Which upstream heard exactly these bytes.
fn reached(heard: std::io::Result<Vec<u8>>, sent: &[u8]) -> String {
    let heard = heard.unwrap();
    let colon = heard.iter().position(|&byte| byte == b':').expect("a name");
    assert!(heard[colon + 1..] == *sent, "the bytes were changed");
    String::from_utf8(heard[..colon].to_vec()).unwrap()
}

#[test]
fn a70_names_and_protocols_choose_the_target() {
    let Setting { instance, entry, _upstreams } = setting(json!({ "timeout": "1m" }));
    let h2: &[&[u8]] = &[b"http/1.1", b"h2"];
    for (hello, wanted) in [
        (Hello::named(b"one.example"), "one"),
        (Hello::named(b"ONE.Example"), "one"),
        (Hello::named(b"one.example."), "one"),
        (Hello::named(b"one.example").with_alpn(h2).with_grease(), "one"),
        (Hello::named(b"two.one.example"), "rest"),
        (Hello::named(b"a.edge.example").with_alpn(h2), "edge"),
        (Hello::named(b"a.edge.example").with_alpn(&[b"http/1.1"]), "rest"),
        (Hello::named(b"a.edge.example"), "rest"),
        (Hello::named(b"a.b.edge.example").with_alpn(h2), "rest"),
        (Hello::named(b""), "rest"),
        (Hello::named(b"127.0.0.1"), "rest"),
        (Hello::named(b"one.example\0"), "rest"),
        (Hello::default(), "rest"),
        (Hello::default().with_grease(), "rest"),
    ] {
        let bytes = hello.bytes();
        assert_eq!(reached(converse(entry, &bytes), &bytes), wanted, "{hello:?}");
    }
    instance.stop();
}

#[test]
fn a71_a_hello_in_any_segments_and_records_is_routed_and_forwarded_as_it_was() {
    let Setting { instance, entry, _upstreams } = setting(json!({ "timeout": "1m" }));
    let small = [Hello::named(b"one.example").bytes(), b"early data".to_vec()].concat();
    assert_eq!(reached(deliver(entry, small.chunks(1)), &small), "one");
    for split in 1..small.len() {
        let pieces = [&small[..split], &small[split..]];
        assert_eq!(reached(deliver(entry, pieces), &small), "one", "split at {split}");
    }
    // A post-quantum share makes a hello larger than a segment; others have gone as far as this.
    for size in [1_216, 9 * 1024, 15 * 1024] {
        let hello = Hello::default().with_key_share(size).with_name(b"one.example");
        for record in [16 * 1024, 4 * 1024, 1_000, 37] {
            for minor in [0, 1, 3] {
                let bytes = records(&hello.message(), record, minor);
                let heard = deliver(entry, bytes.chunks(1_400));
                assert_eq!(reached(heard, &bytes), "one", "{size} in records of {record}");
            }
        }
    }
    instance.stop();
}

#[test]
fn b13_what_is_no_whole_hello_goes_to_the_fallback_as_it_was() {
    let Setting { instance, entry, _upstreams } = setting(json!({ "timeout": 250 }));
    let whole = Hello::named(b"one.example").bytes();
    let mut twice = Hello::named(b"one.example").with_name(b"one.example").bytes();
    for (bytes, what) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "another protocol"),
        (&whole[..20], "cut by the end"),
        (&[0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10], "SSLv2"),
        (&[22, 3, 1, 0xff, 0xff, 1, 2, 3], "a record beyond the limit"),
        (&[22, 3, 1, 0, 4, 2, 0, 0, 0], "another message"),
        (&twice, "a name given twice"),
    ] {
        assert_eq!(reached(converse(entry, bytes), bytes), "rest", "{what}");
    }
    twice.truncate(30);

    // Cut by the deadline: still open, and it never comes to its end.
    let mut stuck = std::net::TcpStream::connect(entry).unwrap();
    std::io::Write::write_all(&mut stuck, &whole[..20]).unwrap();
    until("the fallback is dialled", || {
        (instance.metric("baton_dial_success_total") == 7.0).then_some(())
    });
    stuck.shutdown(std::net::Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    std::io::Read::read_to_end(&mut stuck, &mut heard).unwrap();
    assert_eq!(reached(Ok(heard), &whole[..20]), "rest");
    instance.stop();
}

#[test]
fn a70_without_a_fallback_nobody_is_dialled() {
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "one");
    let entry = loopback.next();
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "tls", "targets": [
            { "address": upstream.address().to_string(), "serverNames": ["one.example"] }]}]}));
    for bytes in [Hello::named(b"two.example").bytes(), b"SSH-2.0-x\r\n".to_vec(), Vec::new()] {
        assert_eq!(converse(entry, &bytes).unwrap_or_default(), b"");
    }
    assert_eq!(upstream.accepted(), 0);
    instance.stop();
}

/// A TLS server whose certificate tells which one it is.
fn openssl_server(scratch: &Scratch, address: SocketAddr, name: &str, alpn: &[&str]) -> Program {
    let pem = certificate(scratch, name);
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-www", "-accept", &address.to_string(), "-cert"]);
    command.arg(&pem).arg("-key").arg(&pem).args(alpn);
    let program = Program::start(scratch, name, &mut command);
    until("openssl listens", || std::net::TcpStream::connect(address).ok());
    program
}

fn openssl_client(entry: SocketAddr, arguments: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &entry.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a69_openssl_reaches_the_server_of_its_name_and_its_handshake_is_untouched() {
    if missing("a69_openssl", &["openssl"]) {
        return;
    }
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let [one, edge, rest, entry] = std::array::from_fn(|_| loopback.next());
    let _servers = [
        openssl_server(&scratch, one, "one.example", &[]),
        openssl_server(&scratch, edge, "a.edge.example", &["-alpn", "h2"]),
        openssl_server(&scratch, rest, "rest.example", &[]),
    ];
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "tls", "targets": [
            { "address": one.to_string(), "serverNames": ["one.example"] },
            { "address": edge.to_string(), "serverNames": ["*.edge.example"], "alpn": ["h2"] },
            { "address": rest.to_string() }]}]}));
    for (arguments, certificate) in [
        (&["-servername", "one.example"][..], "CN = one.example"),
        (&["-servername", "One.Example", "-tls1_2"], "CN = one.example"),
        (&["-servername", "a.edge.example", "-alpn", "h2,http/1.1"], "CN = a.edge.example"),
        (&["-servername", "a.edge.example", "-alpn", "http/1.1"], "CN = rest.example"),
        (&["-noservername"], "CN = rest.example"),
    ] {
        let said = openssl_client(entry, arguments);
        assert!(said.contains(certificate), "{arguments:?}: {said}");
    }
    let said = openssl_client(entry, &["-servername", "a.edge.example", "-alpn", "h2"]);
    assert!(said.contains("ALPN protocol: h2"), "{said}");
    instance.stop();
}

const NODE: &str = r#"
const fs = require("fs"), [, , host, port, pem] = process.argv;
const key = fs.readFileSync(pem);
require("http2").createSecureServer({ key, cert: key, allowHTTP1: true }, (request, response) => {
  response.end(request.httpVersion + " " + "x".repeat(100000));
}).listen(Number(port), host);
"#;

#[test]
fn a73_curl_speaks_http_1_1_and_2_over_tls_through_tls_and_boost() {
    if missing("a73_curl", &["curl", "node", "openssl"]) {
        return;
    }
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let pem = certificate(&scratch, "web.example");
    let script = scratch.file("server.js", NODE);
    let server = loopback.next();
    let _server = Program::start(
        &scratch,
        "node",
        Command::new("node")
            .arg(script)
            .args([server.ip().to_string(), server.port().to_string()])
            .arg(pem),
    );
    until("node listens", || std::net::TcpStream::connect(server).ok());
    let [tls, boost] = std::array::from_fn(|_| loopback.next());
    let instance = Instance::start(&json!({ "rules": [
        { "name": "tls", "listen": tls.to_string(), "mode": "tls", "targets": [
            { "address": server.to_string(), "serverNames": ["web.example"] }]},
        { "name": "boost", "listen": boost.to_string(), "mode": "boost", "targets": [
            { "address": server.to_string() }, { "address": loopback.next().to_string() }]}]}));
    for entry in [tls, boost] {
        for (option, version) in [("--http1.1", "1.1"), ("--http2", "2.0")] {
            let output = Command::new("curl")
                .args(["-sSk", "--noproxy", "*", option, "--resolve"])
                .arg(format!("web.example:{}:{}", entry.port(), entry.ip()))
                // Three requests on one connection.
                .args(vec![format!("https://web.example:{}/", entry.port()); 3])
                .output()
                .unwrap();
            let wanted = format!("{version} {}", "x".repeat(100_000)).repeat(3);
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said == wanted, "{option}: {} bytes, {output:?}", said.len());
        }
    }
    assert_eq!(instance.series("baton_connections_accepted_total", "rule=\"tls\""), 2.0);
    instance.stop();
}
