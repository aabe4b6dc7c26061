//! The PROXY protocol, in from trusted hops and out to upstreams.

use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{
    Instance, Loopback, Program, Scratch, Upstream, converse, deliver, missing, until,
};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn start(entry: SocketAddr, upstream: &Upstream, proxy: Value) -> Instance {
    Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "normal", "proxyProtocol": proxy,
          "timeout": "1m",
          "targets": [{ "address": upstream.address().to_string() }] }]}))
}

/// A gateway that believes its clients' headers, and says in v1 what it has understood.
fn relaying() -> (Instance, SocketAddr, Upstream) {
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "u");
    let entry = loopback.next();
    let proxy = json!({ "accept": true, "trustedCIDRs": ["127.0.0.0/8"], "send": "v1" });
    (start(entry, &upstream, proxy), entry, upstream)
}

fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[0x20 | command, family], &length, block].concat()
}

fn v4_block() -> Vec<u8> {
    let ports = [1000_u16.to_be_bytes(), 80_u16.to_be_bytes()].concat();
    [&[10, 0, 0, 2, 10, 0, 0, 9], &*ports].concat()
}

#[test]
fn a112_headers_are_taken_at_every_split_and_the_payload_arrives_once() {
    let (instance, entry, _upstream) = relaying();
    let tlv = [0x03, 0, 4, 1, 2, 3, 4];
    let v6_block = [&[0x20; 32][..], &[3, 0xe8, 0, 80]].concat();
    let v6 = "2020:2020:2020:2020:2020:2020:2020:2020";
    let v6_line = format!("PROXY TCP6 {v6} {v6} 1000 80\r\n");
    for (header, told) in [
        (
            b"PROXY TCP4 10.0.0.2 10.0.0.9 1000 80\r\n".to_vec(),
            "PROXY TCP4 10.0.0.2 10.0.0.9 1000 80\r\n",
        ),
        (v2(1, 0x11, &[&*v4_block(), &tlv].concat()), "PROXY TCP4 10.0.0.2 10.0.0.9 1000 80\r\n"),
        (v2(1, 0x21, &v6_block), &v6_line),
    ] {
        let sent = [&*header, b"payload"].concat();
        let wanted = format!("u:{told}payload");
        for split in 1..sent.len() {
            let heard = deliver(entry, [&sent[..split], &sent[split..]]).unwrap();
            assert_eq!(String::from_utf8_lossy(&heard), wanted, "split at {split}");
        }
        let heard = deliver(entry, sent.chunks(1)).unwrap();
        assert_eq!(String::from_utf8_lossy(&heard), wanted, "byte by byte");
    }
    instance.stop();
}

#[test]
fn a114_headers_without_an_address_keep_the_peer() {
    let (instance, entry, _upstream) = relaying();
    let longest = {
        let address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        format!("PROXY UNKNOWN {address} {address} 65535 65535\r\n")
    };
    assert_eq!(longest.len(), 107, "the longest legal line");
    for header in [
        b"PROXY UNKNOWN\r\n".to_vec(),
        longest.into_bytes(),
        v2(0, 0x00, b""),
        v2(0, 0x11, &v4_block()),
        v2(0, 0x00, &[4, 0, 2, 9, 9]),
        v2(1, 0x00, b""),
        v2(1, 0x31, &[b'/'; 216]),
    ] {
        let heard = converse(entry, &[&*header, b"payload"].concat()).unwrap();
        let heard = String::from_utf8_lossy(&heard).into_owned();
        let told = format!(" {} ", entry.port());
        assert!(heard.starts_with("u:PROXY TCP4 127.0.0.1 "), "{heard}: {header:?}");
        assert!(heard.replace("\r\n", " ").contains(&told), "{heard}");
        assert!(heard.ends_with("\r\npayload"), "{heard}");
    }
    instance.stop();
}

#[test]
fn a112_what_is_no_legal_header_is_closed_and_counted() {
    let (instance, entry, upstream) = relaying();
    let bad: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"".to_vec(),
        b"PROXY TCP4 10.0.0.2".to_vec(),
        b"proxy tcp4 10.0.0.2 10.0.0.9 1000 80\r\n".to_vec(),
        b"PROXY TCP4 10.0.0.2 10.0.0.9 01000 80\r\n".to_vec(),
        b"PROXY TCP4 10.0.0.2 10.0.0.9 65536 80\r\n".to_vec(),
        b"PROXY TCP4 10.0.0.2 10.0.0.9 1000 80\n".to_vec(),
        b"PROXY TCP4 ::1 ::1 1000 80\r\n".to_vec(),
        [b"PROXY UNKNOWN ", &[b'x'; 100][..], b"\r\n"].concat(),
        v2(2, 0x11, &v4_block()),
        v2(1, 0x12, &v4_block()),
        v2(1, 0x11, &v4_block()[..11]),
        v2(1, 0x11, &[&*v4_block(), &[3, 0, 9, 1]].concat()),
        [SIGNATURE, &[0x11, 0x11, 0, 12], &v4_block()].concat(),
    ];
    for header in &bad {
        let heard = converse(entry, header).unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&heard), "", "{header:?}");
    }
    assert_eq!(upstream.accepted(), 0);
    until("every one is counted", || {
        let counted =
            instance.series("baton_connections_rejected_total", "reason=\"proxy_protocol\"");
        (counted == bad.len() as f64).then_some(())
    });
    instance.stop();
}

#[test]
fn a113_a_hop_that_is_not_trusted_is_refused_whatever_it_says() {
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "u");
    let entry = loopback.next();
    let proxy = json!({ "accept": true, "trustedCIDRs": ["10.0.0.0/8"] });
    let instance = start(entry, &upstream, proxy);
    let heard = converse(entry, b"PROXY TCP4 10.0.0.2 10.0.0.9 1000 80\r\nhello");
    assert_eq!(heard.unwrap_or_default(), b"");
    assert_eq!(upstream.accepted(), 0);
    let refused = instance.series("baton_connections_rejected_total", "reason=\"proxy_protocol\"");
    assert_eq!(refused, 1.0);
    instance.stop();
}

#[test]
fn a59_lists_and_shares_go_by_the_address_in_the_header() {
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "u");
    let entry = loopback.next();
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": entry.to_string(), "mode": "normal", "maxConnectionsPerIP": 1,
          "timeout": "1m",
          "proxyProtocol": { "accept": true, "trustedCIDRs": ["127.0.0.0/8"] },
          "allowlist": ["10.0.0.0/8", "192.0.2.0/24"], "blacklist": { "10.0.0.66": true },
          "targets": [{ "address": upstream.address().to_string() }] }]}));
    let header = |ip: &str, rest: &str| format!("PROXY TCP4 {ip} 10.9.9.9 1000 80\r\n{rest}");
    let asked = |ip: &str| converse(entry, header(ip, "x").as_bytes()).unwrap_or_default();
    assert_eq!(asked("10.0.0.1"), b"u:x");
    assert_eq!(asked("10.0.0.66"), b"", "denied");
    assert_eq!(asked("172.16.0.1"), b"", "not allowed");
    let mapped = b"PROXY TCP6 ::ffff:192.0.2.7 ::1 1000 80\r\nx";
    assert_eq!(converse(entry, mapped).unwrap(), b"u:x", "a mapped address is IPv4");

    let active = |wanted: f64| {
        until("the connections in service are as they should be", || {
            (instance.metric("baton_connections_active") == wanted).then_some(())
        });
    };
    active(0.0);
    let mut held = TcpStream::connect(entry).unwrap();
    std::io::Write::write_all(&mut held, header("10.0.0.1", "y").as_bytes()).unwrap();
    active(1.0);
    assert_eq!(asked("10.0.0.1"), b"", "its share is taken");
    assert_eq!(asked("10.0.0.2"), b"u:x", "others have theirs");
    drop(held);
    instance.stop();
}

#[test]
fn a115_upstreams_are_told_the_client_before_its_first_byte() {
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "u");
    for version in ["v1", "v2"] {
        let entry = loopback.next();
        let instance = start(entry, &upstream, json!({ "send": version }));
        let heard = converse(entry, b"payload").unwrap();
        if version == "v1" {
            let heard = String::from_utf8_lossy(&heard);
            let begin = format!("u:PROXY TCP4 127.0.0.1 {} ", entry.ip());
            assert!(heard.starts_with(&begin), "{heard}");
            assert!(heard.ends_with(&format!(" {}\r\npayload", entry.port())), "{heard}");
        } else {
            let header = [b"u:", SIGNATURE, &[0x21, 0x11, 0, 12, 127, 0, 0, 1]].concat();
            assert!(heard.starts_with(&header), "{heard:?}");
            assert!(heard.ends_with(b"payload") && heard.len() == 2 + 28 + 7, "{heard:?}");
        }
        instance.stop();
    }
}

#[test]
fn b14_a_header_has_one_family_whatever_the_upstreams_is() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("SKIPPED b14_a_header_has_one_family: no IPv6 loopback");
        return;
    }
    let port = Loopback::everywhere();
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "u");
    // Both families on one listener.
    let instance = Instance::start(&json!({ "rules": [
        { "name": "r", "listen": format!(":{port}"), "mode": "normal",
          "proxyProtocol": { "send": "v1" },
          "targets": [{ "address": upstream.address().to_string() }] }]}));
    let told = |entry: SocketAddr| {
        let heard = converse(entry, b"").unwrap();
        String::from_utf8(heard).unwrap()
    };
    let six = told((Ipv6Addr::LOCALHOST, port).into());
    assert!(six.starts_with("u:PROXY TCP6 ::1 ::1 "), "{six}");
    let four = told((loopback.ip(), port).into());
    assert!(four.starts_with(&format!("u:PROXY TCP4 127.0.0.1 {} ", loopback.ip())), "{four}");
    instance.stop();
}

#[test]
fn a112_a115_haproxy_in_front_and_nginx_behind_agree_about_the_client() {
    const TEST: &str = "a112_a115_haproxy_and_nginx";
    if missing(TEST, &["haproxy", "nginx", "curl"]) {
        return;
    }
    let scratch = Scratch::new();
    let loopback = Loopback::unique();
    let [front, entry, web] = std::array::from_fn(|_| loopback.next());
    let nginx = format!(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {dir}/a; proxy_temp_path {dir}/b;\n\
         fastcgi_temp_path {dir}/c; uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;\n\
         server {{ listen {web} proxy_protocol;\n\
         return 200 \"$proxy_protocol_addr to $proxy_protocol_server_port\"; }} }}\n",
        dir = scratch.path().display()
    );
    let file = scratch.file("nginx.conf", nginx);
    let mut command = Command::new("nginx");
    command.arg("-p").arg(scratch.path()).args(["-e", "stderr", "-c"]).arg(file);
    let _nginx = Program::start(&scratch, "nginx", &mut command);
    until("nginx listens", || TcpStream::connect(web).ok());
    for (accepted, sent) in [("send-proxy", "v2"), ("send-proxy-v2", "v1")] {
        let haproxy = format!(
            "defaults\n mode tcp\n timeout connect 10s\n timeout client 1m\n timeout server 1m\n\
             listen it\n bind {front}\n server baton {entry} {accepted}\n"
        );
        let file = scratch.file("haproxy.cfg", haproxy);
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(file);
        let haproxy = Program::start(&scratch, "haproxy", &mut command);
        until("haproxy listens", || TcpStream::connect(front).ok());
        let instance = Instance::start(&json!({ "rules": [
            { "name": "r", "listen": entry.to_string(), "mode": "normal",
              "proxyProtocol": { "accept": true, "trustedCIDRs": ["127.0.0.0/8"], "send": sent },
              "targets": [{ "address": web.to_string() }] }]}));
        let output = Command::new("curl")
            .args(["-sS", "--noproxy", "*", "--interface", "127.0.0.77"])
            .arg(format!("http://{front}/"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            said,
            format!("127.0.0.77 to {}", front.port()),
            "{accepted}, {sent}: {output:?}"
        );
        instance.stop();
        drop(haproxy);
    }
}

#[test]
fn a58_a_hop_that_says_nothing_has_its_slot_and_an_untrusted_one_takes_none() {
    let loopback = Loopback::unique();
    let upstream = Upstream::reporting(loopback.next(), "u");
    let [entry, other] = std::array::from_fn(|_| loopback.next());
    let rule = |name: &str, entry: SocketAddr, trusted: &str| {
        json!({ "name": name, "listen": entry.to_string(), "mode": "normal", "maxConnections": 1,
                "maxConnectionsPerIP": 1, "blacklist": { "10.0.0.2": true },
                "proxyProtocol": { "accept": true, "trustedCIDRs": [trusted] },
                "targets": [{ "address": upstream.address().to_string() }] })
    };
    let instance = Instance::start(&json!({
        "rules": [rule("r", entry, "127.0.0.0/8"), rule("o", other, "192.0.2.0/24")] }));
    let rejected = |rule: &str, reason: &str| {
        let labels = format!("rule=\"{rule}\",mode=\"normal\",reason=\"{reason}\"");
        instance.series("baton_connections_rejected_total", &labels)
    };
    let refused = |entry: SocketAddr| {
        let heard = converse(entry, b"PROXY TCP4 10.0.0.2 10.0.0.9 1 2\r\n");
        assert!(heard.is_err() || heard.is_ok_and(|heard| heard.is_empty()));
    };
    let silent = TcpStream::connect(entry).unwrap();
    // Lists are asked about the address in the header, so whoever gets that far is refused by them:
    // not before the one that says nothing has lost its slot.
    refused(entry);
    assert_eq!((rejected("r", "connection_limit"), rejected("r", "access_policy")), (1.0, 0.0));
    drop(silent);
    until("the lists are asked", || {
        refused(entry);
        (rejected("r", "access_policy") >= 1.0).then_some(())
    });
    for _ in 0..3 {
        refused(other);
    }
    assert_eq!((rejected("o", "proxy_protocol"), rejected("o", "connection_limit")), (3.0, 0.0));
    assert_eq!(instance.metric("baton_dial_attempts_total"), 0.0);
    instance.stop();
}
