//! WebSocket sessions through the four general modes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Instance, Loopback, PATIENCE, Upstream};

/// Long enough for the first bytes to arrive in time on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// RFC 6455, section 1.3: the sample key and what a server answers to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

fn read_head(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "ended within the head: {head}");
    }
    head
}

/// A whole unfragmented frame below 126 bytes: its code and its payload, unmasked.
fn read_frame(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    let mut mask = [0; 4];
    if head[1] & 0x80 != 0 {
        stream.read_exact(&mut mask).ok()?;
    }
    let mut payload = vec![0; usize::from(head[1] & 0x7f)];
    stream.read_exact(&mut payload).ok()?;
    for (place, byte) in payload.iter_mut().enumerate() {
        *byte ^= mask[place % 4];
    }
    Some((head[0] & 0x0f, payload))
}

fn write_frame(stream: &mut impl Write, code: u8, payload: &[u8], mask: Option<[u8; 4]>) {
    let length = payload.len() as u8;
    let mut frame = vec![0x80 | code, if mask.is_some() { 0x80 | length } else { length }];
    frame.extend(mask.iter().flatten());
    let key = mask.unwrap_or_default();
    frame.extend(payload.iter().enumerate().map(|(place, byte)| byte ^ key[place % 4]));
    stream.write_all(&frame).unwrap();
}

/// A server's side of a session.
pub(crate) fn echo(stream: TcpStream) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader);
    assert!(head.contains(KEY), "{head}");
    write!(
        writer,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
    )
    .unwrap();
    while let Some((code, payload)) = read_frame(&mut reader) {
        match code {
            PING => write_frame(&mut writer, PONG, &payload, None),
            CLOSE => return write_frame(&mut writer, CLOSE, &payload, None),
            code => write_frame(&mut writer, code, &payload, None),
        }
    }
}

/// An open session.
pub(crate) struct Session {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
    round: u64,
}

impl Session {
    pub(crate) fn open(entry: SocketAddr) -> Self {
        let stream = TcpStream::connect(entry).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        write!(
            writer,
            "GET /chat HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        .unwrap();
        let head = read_head(&mut reader);
        assert!(head.starts_with("HTTP/1.1 101 ") && head.contains(ACCEPT), "{head}");
        Self { writer, reader, round: 0 }
    }

    /// A message and a ping, and what comes back.
    pub(crate) fn exchange(&mut self) {
        let Self { writer, reader, round } = self;
        let text = format!("message {round}");
        let mask = Some((*round as u32 ^ 0xa5b6_c7d8).to_be_bytes());
        write_frame(writer, TEXT, text.as_bytes(), mask);
        assert_eq!(read_frame(reader), Some((TEXT, text.into_bytes())));
        write_frame(writer, PING, b"still there", mask);
        assert_eq!(read_frame(reader), Some((PONG, b"still there".to_vec())));
        *round += 1;
    }

    pub(crate) fn close(mut self) {
        write_frame(&mut self.writer, CLOSE, &[3, 0xe8], Some([1, 2, 3, 4]));
        assert_eq!(read_frame(&mut self.reader), Some((CLOSE, vec![3, 0xe8])));
        assert_eq!(read_frame(&mut self.reader), None);
    }
}

/// A whole session that outlives the rule's `timeout`.
fn session(entry: SocketAddr) {
    let start = Instant::now();
    let mut session = Session::open(entry);
    while start.elapsed() < 2 * TIMEOUT {
        session.exchange();
        // Mostly silent, as such sessions are.
        std::thread::park_timeout(Duration::from_millis(20));
    }
    session.close();
}

#[test]
fn a74_websocket_sessions_outlive_the_timeout_in_every_general_mode() {
    let loopback = Loopback::unique();
    let upstream = Upstream::serve(loopback.next(), echo);
    let modes = ["normal", "regex", "boost", "roundrobin"];
    let entries = modes.map(|_| loopback.next());
    let rules: Vec<Value> = modes
        .iter()
        .zip(entries)
        .map(|(mode, entry)| {
            let mut target = json!({ "address": upstream.address().to_string() });
            if *mode == "regex" {
                target["regexp"] = json!("(?i)upgrade: websocket");
            }
            json!({ "name": mode, "listen": entry.to_string(), "mode": mode,
                    "timeout": TIMEOUT.as_millis() as u64, "targets": [target] })
        })
        .collect();
    let instance = Instance::start(&json!({ "rules": rules }));
    std::thread::scope(|scope| {
        for entry in entries {
            scope.spawn(move || session(entry));
        }
    });
    instance.stop();
}
