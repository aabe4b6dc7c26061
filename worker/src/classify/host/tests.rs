#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

/// The decision and after how many bytes it came, in steps of one size.
fn read(bytes: &[u8], step: usize) -> Option<(usize, Decision)> {
    let mut parser = HostParser::default();
    let ends = (0..=bytes.len()).step_by(step).chain([bytes.len()]);
    ends.into_iter().find_map(|length| match parser.feed(&bytes[..length]) {
        Progress::NeedMore => None,
        Progress::Decided(decision) => Some((length, decision)),
    })
}

/// What is decided, however the bytes come.
fn decided(bytes: &[u8]) -> Result<String, Cause> {
    let (_, whole) = read(bytes, bytes.len().max(1)).expect("a decision");
    for step in 1..=8 {
        assert_eq!(read(bytes, step).map(|(_, decision)| decision), Some(whole.clone()));
    }
    match whole {
        Decision::Found(Verdict::Host(host)) => Ok(host.into()),
        Decision::Nothing(Verdict::Opaque, cause) => Err(cause),
        other @ (Decision::Found(_) | Decision::Nothing(..)) => panic!("{other:?}"),
    }
}

fn head(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\r\n"].concat()).collect()
}

/// The host of a request whose `Host` has this value.
fn of_field(value: &str) -> Result<String, Cause> {
    decided(&head(&["GET / HTTP/1.1", &format!("Host:{value}"), ""]))
}

macro_rules! hello {
    ($name:literal) => {
        include_bytes!(concat!("../../../../fuzz/corpus/client_hello/", $name)).as_slice()
    };
}

#[test]
fn c10_a_site_is_one_key_over_tls_and_http_whatever_its_port_and_case() {
    let over_tls = decided(hello!("name-with-dot"));
    assert_eq!(over_tls.as_deref(), Ok("www.example.com"));
    for value in
        [" www.example.com", "www.example.com:8080", "\tWWW.example.COM.:80 ", " www.example.com:"]
    {
        assert_eq!(of_field(value), over_tls, "{value:?}");
    }
    for lines in [
        &["GET http://other.example/ HTTP/1.1", "Accept: */*", "hOST: www.example.com", ""][..],
        &["CONNECT www.example.com:443 HTTP/1.0", "X-Host: other.example", "Host: www.example.com"],
        &["M-SEARCH * HTTP/1.1", "Host: www.example.com", "Host: other.example", ""],
        &[
            "GET / HTTP/1.1",
            "Hostess: other.example",
            " Host: folded.example",
            "host:www.example.com",
        ],
    ] {
        assert_eq!(decided(&head(lines)), over_tls, "{lines:?}");
    }
    assert_eq!(decided(b"GET / HTTP/1.1\nHost: www.example.com\n"), over_tls, "bare line feeds");
}

#[test]
fn c10_addresses_are_hosts_of_their_own() {
    assert_eq!(of_field("192.0.2.7:80").as_deref(), Ok("192.0.2.7"));
    assert_eq!(of_field("[2001:DB8:0::7]:80").as_deref(), Ok("2001:db8::7"));
    assert_eq!(of_field("[::ffff:192.0.2.7]").as_deref(), Ok("192.0.2.7"));
}

#[test]
fn c10_what_names_no_host_says_so() {
    for bytes in [
        &head(&["GET / HTTP/1.0", "Accept: */*", ""])[..],
        &head(&["GET / HTTP/1.1", "Host: ", ""]),
        &head(&["PRI * HTTP/2.0", "", "SM"]),
        &head(&["GET /"]),
        &head(&["SSH-2.0-OpenSSH_9.2p1 Debian-2"]),
        &head(&["EHLO mail.example.org"]),
        hello!("bare"),
        hello!("openssl-no-name"),
        hello!("name-is-address"),
    ] {
        assert_eq!(decided(bytes), Err(Cause::NoHost), "{}", bytes.escape_ascii());
    }
    for value in
        ["a b", "-.example:x", "[::1", "[::1]x", "[example]", "a..b", "\0", "user@example.org"]
    {
        assert_eq!(of_field(value), Err(Cause::Malformed), "{value:?}");
    }
    assert_eq!(decided(hello!("trailing")), Err(Cause::Malformed), "no legal hello");
}

#[test]
fn c10_the_byte_that_shows_it_decides() {
    let after = |bytes: &[u8]| read(bytes, 1).map(|(length, _)| length);
    assert_eq!(after(b"\0\0\0\x08\x04\xd2\x16\x2f"), Some(1), "PostgreSQL");
    assert_eq!(after(b"*1\r\n$4\r\nPING\r\n"), Some(3), "Redis");
    assert_eq!(after(b"PING\r\n"), Some(5));
    assert_eq!(after(b" GET / HTTP/1.1\r\n"), Some(1));
    assert_eq!(after(&[b'A'; 64]), Some(33), "an endless method");
    let request = head(&["GET / HTTP/1.1", "Host: example.org", "Cookie: 1", ""]);
    let line = request.windows(8).position(|part| part == b"\r\nCookie").unwrap() + 2;
    assert_eq!(after(&request), Some(line), "nothing behind the Host is waited for");
    assert_eq!(after(&request[..line - 1]), None);
    assert_eq!(after(b""), None);
}

#[test]
fn c10_a_head_without_an_end_is_given_up_at_its_limit() {
    let endless = [&b"GET / HTTP/1.1\r\n"[..], &b"X: y\r\n".repeat(4_000)].concat();
    assert_eq!(decided(&endless), Err(Cause::TooLong));
    assert_eq!(read(&endless, 1).unwrap().0, 8 * 1024);
    let line = [&b"GET /"[..], &vec![b'a'; 20_000]].concat();
    assert_eq!(decided(&line), Err(Cause::TooLong));
}

#[test]
fn c10_deadline_and_eof_leave_the_client_as_the_key() {
    let request = head(&["GET / HTTP/1.1"]);
    let hello = hello!("openssl-tls13");
    for bytes in [&b""[..], &request, &hello[..hello.len() - 1]] {
        for (reason, cause) in [(Reason::Eof, Cause::Eof), (Reason::Deadline, Cause::Deadline)] {
            let mut parser = HostParser::default();
            assert_eq!(parser.feed(bytes), Progress::NeedMore);
            assert_eq!(parser.end(bytes, reason), Decision::Nothing(Verdict::Opaque, cause));
        }
    }
}

proptest! {
    /// Where a library reads a whole head, the host is that of its first `Host`.
    #[test]
    fn c10_a_library_finds_the_same_field(
        method in "(GET|POST|OPTIONS|X-[A-Z]{1,8})",
        target in "/[!-~]{0,40}",
        fields in prop::collection::vec(
            ("([Hh][Oo][Ss][Tt]|[A-Za-z-]{1,12})", "[ \t]{0,2}([a-z0-9.-]{1,20}(:[0-9]{0,5})?|[!-~]{0,20})"),
            0..8,
        ),
    ) {
        let mut bytes = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        for (field, value) in &fields {
            bytes.extend(format!("{field}:{value}\r\n").bytes());
        }
        bytes.extend(b"\r\n");
        let mut slots = [httparse::EMPTY_HEADER; 8];
        let mut request = httparse::Request::new(&mut slots);
        prop_assume!(request.parse(&bytes).is_ok_and(|parsed| parsed.is_complete()));
        let theirs =
            request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
        match (decided(&bytes), theirs) {
            (Ok(host), Some(header)) => {
                let value = std::str::from_utf8(header.value).unwrap().to_ascii_lowercase();
                let written = value.split(':').next().unwrap();
                prop_assert!(
                    value.starts_with('[') || written.strip_suffix('.').unwrap_or(written) == host
                );
            }
            (Err(Cause::Malformed), Some(_)) => {}
            (Err(cause), Some(header)) => {
                prop_assert_eq!(cause, Cause::NoHost);
                prop_assert!(header.value.is_empty());
            }
            (ours, None) => prop_assert_eq!(ours, Err(Cause::NoHost)),
        }
    }

    #[test]
    fn c10_any_bytes_in_any_steps_decide_the_same(
        bytes in prop::collection::vec(any::<u8>(), 1..300),
        request in any::<bool>(),
    ) {
        let bytes = if request { [b"GET / HTTP/1.1\r\n", &*bytes].concat() } else { bytes };
        crate::classify::fuzz::host(&bytes);
    }
}
