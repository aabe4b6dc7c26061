#![allow(clippy::unwrap_used, clippy::panic)]

mod sample;

use proptest::prelude::*;

use super::*;
use sample::{Sample, extension, records, server_name};

fn feed(reads: &[&[u8]]) -> Result<(usize, Decision), usize> {
    let mut parser = HelloParser::default();
    let mut window = Vec::new();
    for read in reads {
        window.extend_from_slice(read);
        if let Progress::Decided(decision) = parser.feed(&window) {
            return Ok((window.len(), decision));
        }
    }
    Err(window.len())
}

fn bytewise(bytes: &[u8]) -> Result<(usize, Decision), usize> {
    feed(&bytes.chunks(1).collect::<Vec<_>>())
}

/// The hello in `bytes`, which must be found in one read and byte by byte.
fn hello(bytes: &[u8]) -> Hello {
    let whole = feed(&[bytes]).unwrap().1;
    assert_eq!(bytewise(bytes).unwrap().1, whole);
    let Decision::Found(Verdict::Hello(hello)) = whole else { panic!("no hello: {whole:?}") };
    hello
}

/// Why there is none, and after how many bytes that is known.
fn refused(bytes: &[u8]) -> (usize, Cause) {
    let Decision::Nothing(Verdict::Opaque, whole) = feed(&[bytes]).unwrap().1 else {
        panic!("a hello")
    };
    let (length, Decision::Nothing(Verdict::Opaque, cause)) = bytewise(bytes).unwrap() else {
        panic!("a hello")
    };
    assert_eq!(cause, whole);
    (length, cause)
}

fn name_of(bytes: &[u8]) -> Option<String> {
    hello(bytes).server_name.map(String::from)
}

fn protocols(hello: &Hello) -> Vec<&[u8]> {
    hello.protocols().collect()
}

#[test]
fn a69_hellos_of_a_real_client_are_read() {
    let read = |bytes: &[u8]| {
        let hello = hello(bytes);
        let offered: Vec<String> =
            hello.protocols().map(|protocol| protocol.escape_ascii().to_string()).collect();
        (hello.server_name.map(String::from), offered.join(" "))
    };
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(
        read(include_bytes!("../../../../fuzz/corpus/client_hello/openssl-tls13")),
        (name("shop.example.com"), "h2 http/1.1".into())
    );
    assert_eq!(
        read(include_bytes!("../../../../fuzz/corpus/client_hello/openssl-tls12")),
        (name("legacy.example.com"), String::new())
    );
    assert_eq!(
        read(include_bytes!("../../../../fuzz/corpus/client_hello/openssl-no-name")),
        (None, "http/1.1".into())
    );
}

#[test]
fn a71_a_hello_cut_at_every_offset_waits_and_says_the_same() {
    let bytes = Sample::named(b"a.example.com").with_alpn(&[b"h2"]).bytes();
    for cut in 0..bytes.len() {
        let mut parser = HelloParser::default();
        assert_eq!(parser.feed(&bytes[..cut]), Progress::NeedMore, "cut at {cut}");
        let Progress::Decided(Decision::Found(Verdict::Hello(hello))) = parser.feed(&bytes) else {
            panic!("cut at {cut}")
        };
        assert_eq!(hello.server_name.as_deref(), Some("a.example.com"));
    }
}

#[test]
fn a71_b13_a_hello_over_records_cut_at_every_offset_says_the_same() {
    let message = Sample::named(b"a.example.com").message();
    for cut in 1..message.len() {
        let bytes = records(&message, &[cut]);
        assert_eq!(name_of(&bytes).as_deref(), Some("a.example.com"), "cut at {cut}");
    }
    let bytes = records(&message, &vec![1; message.len()]);
    assert_eq!(name_of(&bytes).as_deref(), Some("a.example.com"));
}

#[test]
fn a71_hellos_of_9_and_15_kib_are_reassembled() {
    for size in [9 * 1024, 15 * 1024, 40 * 1024] {
        let message = Sample::named(b"pq.example.com").with_padding(size).message();
        for record in [1400, 4096, MAX_RECORD] {
            let bytes = records(&message, &vec![record; message.len() / record]);
            assert_eq!(name_of(&bytes).as_deref(), Some("pq.example.com"), "{size} by {record}");
        }
    }
}

#[test]
fn what_follows_the_hello_in_later_records_is_not_looked_at() {
    let mut bytes = Sample::named(b"early.example.com").bytes();
    bytes.extend_from_slice(b"\x17\x03\x03\xff\xffearly data");
    assert_eq!(name_of(&bytes).as_deref(), Some("early.example.com"));
}

#[test]
fn a70_a_name_is_lower_cased_and_one_trailing_dot_ignored() {
    let name = |name: &[u8]| name_of(&Sample::named(name).bytes());
    assert_eq!(name(b"WWW.Example.COM").as_deref(), Some("www.example.com"));
    assert_eq!(name(b"www.example.com.").as_deref(), Some("www.example.com"));
    assert_eq!(name(b"_srv.xn--bcher-kva.example").as_deref(), Some("_srv.xn--bcher-kva.example"));
    let longest = [&[b'a'; 63][..], &[b'b'; 63], &[b'c'; 63], &[b'd'; 61]].join(&b'.');
    assert_eq!(name(&longest).unwrap().len(), name::MAX_NAME);
}

#[test]
fn a_name_no_configured_name_can_equal_takes_the_route_without_a_name() {
    let long_label = [b'a'; 64];
    let long_name = [&[b'a'; 63][..], &[b'b'; 63], &[b'c'; 63], &[b'd'; 62]].join(&b'.');
    let odd: [&[u8]; 15] = [
        b"",
        b".",
        b"..",
        b"a..example.com",
        b"example.com..",
        b".example.com",
        b"192.0.2.1",
        b"192.0.2.1.",
        b"::1",
        b"[2001:db8::1]",
        b"a\0.example.com",
        b"a b.example.com",
        b"\xc3\xa9.example.com",
        &long_label,
        &long_name,
    ];
    for name in odd {
        let hello = hello(&Sample::named(name).with_alpn(&[b"h2"]).bytes());
        assert_eq!(hello.server_name, None, "{name:?}");
        assert_eq!(protocols(&hello), [b"h2"]);
    }
}

#[test]
fn a_server_name_extension_without_a_host_is_no_name() {
    let empty = Sample::default().with(EXTENSION_SERVER_NAME, &[]);
    assert_eq!(name_of(&empty.bytes()), None);
    let empty_list = Sample::default().with(EXTENSION_SERVER_NAME, &[0, 0]);
    assert_eq!(name_of(&empty_list.bytes()), None);
    let other_kind = Sample::default().with(EXTENSION_SERVER_NAME, &server_name(&[(7, b"x")]));
    assert_eq!(name_of(&other_kind.bytes()), None);
    let both = server_name(&[(7, b"x"), (0, b"a.example")]);
    let both = Sample::default().with(EXTENSION_SERVER_NAME, &both);
    assert_eq!(name_of(&both.bytes()).as_deref(), Some("a.example"));
}

#[test]
fn old_record_versions_and_a_hello_without_extensions_are_hellos() {
    for minor in 0..=4 {
        let mut bytes = Sample::named(b"a.example").bytes();
        bytes[2] = minor;
        assert_eq!(name_of(&bytes).as_deref(), Some("a.example"));
    }
    assert_eq!(hello(&Sample::bare().bytes()), Hello::default());
    assert_eq!(hello(&Sample::default().bytes()), Hello::default());
}

#[test]
fn grease_everywhere_is_passed_over() {
    let sample = Sample::default()
        .with(0x0a0a, &[])
        .with(EXTENSION_SERVER_NAME, &server_name(&[(0, b"a.example")]))
        .with_alpn(&[b"\x1a\x1a", b"h2"])
        .with(0xfafa, &[0]);
    let hello = hello(&sample.bytes());
    assert_eq!(hello.server_name.as_deref(), Some("a.example"));
    assert_eq!(protocols(&hello), [&b"\x1a\x1a"[..], b"h2"]);
}

#[test]
fn b13_the_first_byte_sends_what_is_not_tls_to_the_fallback() {
    for other in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x00\x02", b"\0"] {
        assert_eq!(refused(other), (1, Cause::NotTls));
    }
    assert_eq!(refused(b"\x16\x05\x01"), (2, Cause::NotTls));
}

#[test]
fn b13_broken_framing_is_known_as_soon_as_it_shows() {
    let good = Sample::named(b"a.example").message();
    // An empty record, an alert, a change of cipher before the hello is whole.
    assert_eq!(refused(b"\x16\x03\x01\x00\x00"), (5, Cause::Malformed));
    for kind in [20, 21, 23, 24] {
        let mut bytes = records(&good[..10], &[]);
        let length = bytes.len();
        bytes.extend_from_slice(&[kind, 3, 3, 0, 2, 1, 0]);
        assert_eq!(refused(&bytes), (length + 1, Cause::Malformed));
    }
    // Another message, and one more behind the hello in its record.
    assert_eq!(refused(b"\x16\x03\x01\x00\x04\x02"), (6, Cause::Malformed));
    let mut two = good;
    two.push(0);
    assert_eq!(refused(&records(&two, &[])), (5 + 4, Cause::Malformed));
}

#[test]
fn b13_limits_are_kept_and_known_from_the_lengths() {
    assert_eq!(refused(b"\x16\x03\x01\x40\x01"), (5, Cause::TooLong));
    assert!(bytewise(b"\x16\x03\x01\x40\x00").is_err());
    // The largest message that fits with one record header, and one more.
    assert!(bytewise(b"\x16\x03\x01\x40\x00\x01\x00\xff\xf7").is_err());
    assert_eq!(refused(b"\x16\x03\x01\x40\x00\x01\x00\xff\xf8"), (9, Cause::TooLong));
    // Many small records reach the limit by their headers.
    let message = Sample::default().with_padding(30_000).message();
    let bytes = records(&message, &vec![1; message.len()]);
    assert_eq!(refused(&bytes), (LIMIT, Cause::TooLong));
}

#[test]
fn b13_256_extensions_are_read_and_257_are_not() {
    let many = |count: u16| {
        (0..count).fold(Sample::default(), |sample, kind| sample.with(1000 + kind, &[]))
    };
    assert_eq!(hello(&many(256).bytes()), Hello::default());
    assert_eq!(refused(&many(257).bytes()).1, Cause::Malformed);
}

#[test]
fn b13_an_extension_given_twice_is_no_hello() {
    for kind in [EXTENSION_SERVER_NAME, EXTENSION_ALPN, 0x0a0a] {
        let sample = Sample::named(b"a.example").with_alpn(&[b"h2"]).with(0x0a0a, &[]);
        let content = if kind == EXTENSION_ALPN { &b"\0\x03\x02h2"[..] } else { b"" };
        assert_eq!(refused(&sample.with(kind, content).bytes()).1, Cause::Malformed, "{kind}");
    }
}

#[test]
fn b13_bytes_left_over_at_any_level_are_no_hello() {
    let name = server_name(&[(0, b"a.example")]);
    let cases = [
        Sample::default().with(EXTENSION_SERVER_NAME, &[&name[..], b"\0"].concat()),
        Sample::default().with(EXTENSION_SERVER_NAME, &server_name(&[(0, b"a"), (0, b"b")])),
        Sample::default().with(EXTENSION_SERVER_NAME, b"\0\x04\0\0\x09a"),
        Sample::default().with(EXTENSION_ALPN, b"\0\x03\x02h2\0"),
        Sample::default().with(EXTENSION_ALPN, b"\0\0"),
        Sample::default().with(EXTENSION_ALPN, b"\0\x04\x02h2\0"),
        Sample::default().with(EXTENSION_ALPN, b"\0\x03\x05h2"),
        Sample::default().with(EXTENSION_ALPN, b""),
        Sample { after: vec![0], ..Sample::default() },
        Sample { session: vec![0; 33], ..Sample::default() },
        Sample { suites: vec![], ..Sample::default() },
        Sample { suites: vec![0x13, 0x01, 0], ..Sample::default() },
        Sample { compressions: vec![], ..Sample::default() },
        Sample { extensions: Some(vec![0, 1, 0]), ..Sample::default() },
        Sample { extensions: Some(extension(5, &[1])[..4].to_vec()), ..Sample::default() },
    ];
    for (number, case) in cases.into_iter().enumerate() {
        assert_eq!(refused(&case.bytes()).1, Cause::Malformed, "case {number}");
    }
}

#[test]
fn b13_a_message_cut_short_inside_its_own_length_is_no_hello() {
    let whole = Sample::named(b"a.example").with_alpn(&[b"h2"]).message();
    for length in 4..whole.len() {
        let mut cut = whole[..length].to_vec();
        let body = u8::try_from(length - 4).unwrap();
        cut[1..4].copy_from_slice(&[0, 0, body]);
        let bytes = records(&cut, &[]);
        // Before its extensions a hello may end.
        let decision = feed(&[&bytes]).unwrap().1;
        let bare = length == Sample::bare().message().len();
        assert_eq!(matches!(decision, Decision::Found(_)), bare, "{length}");
    }
}

#[test]
fn b13_a_hello_cut_by_deadline_or_eof_is_none() {
    let bytes = Sample::named(b"a.example").bytes();
    for length in 0..bytes.len() {
        for reason in [Reason::Deadline, Reason::Eof] {
            let decision = HelloParser::default().end(&bytes[..length], reason);
            assert_eq!(decision, Decision::Nothing(Verdict::Opaque, reason.into()));
        }
    }
    let decision = HelloParser::default().end(&bytes, Reason::Eof);
    assert!(matches!(decision, Decision::Found(Verdict::Hello(_))));
}

#[test]
fn byte_by_byte_the_walk_stays_where_it_is() {
    let message = Sample::default().with_padding(50_000).message();
    let bytes = records(&message, &vec![64; message.len() / 64]);
    let mut parser = HelloParser::default();
    for length in 1..bytes.len() {
        assert_eq!(parser.feed(&bytes[..length]), Progress::NeedMore);
        assert!(length - parser.record < 2 * 64 + RECORD_HEADER, "it is in the last record");
    }
}

proptest! {
    #[test]
    fn any_bytes_in_any_cut_never_panic_and_cuts_do_not_matter(
        start in proptest::sample::select(vec![&b""[..], b"\x16", b"\x16\x03\x01\x00\x40\x01\x00\x00"]),
        tail in proptest::collection::vec(any::<u8>(), 0..300),
        step in 1usize..50,
    ) {
        let bytes = [start, &tail].concat();
        let stepped = feed(&bytes.chunks(step).collect::<Vec<_>>()).map(|(_, decision)| decision);
        prop_assert_eq!(stepped, feed(&[&bytes]).map(|(_, decision)| decision));
    }

    #[test]
    fn a_hello_with_any_byte_changed_never_panics_and_cuts_do_not_matter(
        position in 0usize..200,
        value: u8,
        sizes in proptest::collection::vec(1usize..60, 0..6),
        step in 1usize..50,
    ) {
        let message = Sample::named(b"a.example.com").with_alpn(&[b"h2", b"http/1.1"]).message();
        let mut bytes = records(&message, &sizes);
        let position = position % bytes.len();
        bytes[position] = value;
        let stepped = feed(&bytes.chunks(step).collect::<Vec<_>>()).map(|(_, decision)| decision);
        prop_assert_eq!(stepped, feed(&[&bytes]).map(|(_, decision)| decision));
    }

    #[test]
    fn any_name_and_protocols_come_through(
        labels in proptest::collection::vec("[a-z0-9]{1,20}x", 1..6),
        offered in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 0..5),
        sizes in proptest::collection::vec(1usize..60, 0..6),
    ) {
        let name = labels.join(".");
        let offered: Vec<&[u8]> = offered.iter().map(Vec::as_slice).collect();
        let mut sample = Sample::named(name.to_ascii_uppercase().as_bytes());
        if !offered.is_empty() {
            sample = sample.with_alpn(&offered);
        }
        let hello = hello(&records(&sample.message(), &sizes));
        prop_assert_eq!(hello.server_name.as_deref(), Some(name.as_str()));
        prop_assert_eq!(protocols(&hello), offered);
    }
}
