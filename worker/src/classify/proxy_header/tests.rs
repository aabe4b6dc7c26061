#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;

use baton_config::model::ProxyVersion;
use proptest::prelude::*;
use proxy_header::{ParseConfig, ProxyHeader};

use super::*;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Parses `header` with a payload behind it and at every cut: it is wanted or refused with the
/// same words however it comes, and never before its last byte is there.
fn read(header: &[u8]) -> Header {
    let mut window = header.to_vec();
    window.extend_from_slice(b"payload");
    let whole = parse(&window);
    for length in 0..header.len() {
        let early = parse(&header[..length]);
        if early != Header::NeedMore {
            assert_eq!((early, whole), (Header::Malformed, Header::Malformed));
        }
    }
    whole
}

fn proxied(source: &str, destination: &str, consumed: usize) -> Header {
    Header::Proxied {
        source: ClientAddr(at(source)),
        destination: OriginalDst(at(destination)),
        consumed,
    }
}

fn v2_header(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&v2::SIGNATURE[..], &[command, family], &length, payload].concat()
}

const TCP4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x30, 0x39, 0x01, 0xbb];

fn tcp6() -> Vec<u8> {
    let mut payload = Vec::new();
    for address in ["2001:db8::1", "2001:db8::2"] {
        payload.extend_from_slice(&address.parse::<std::net::Ipv6Addr>().unwrap().octets());
    }
    payload.extend_from_slice(&[0x30, 0x39, 0x01, 0xbb]);
    payload
}

#[test]
fn a112_v1_lines_are_read_at_every_split() {
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 443\r\n";
    assert_eq!(read(line), proxied("192.0.2.1:12345", "198.51.100.2:443", line.len()));
    let line = b"PROXY TCP6 2001:db8::1 2001:DB8::2 0 65535\r\n";
    assert_eq!(read(line), proxied("[2001:db8::1]:0", "[2001:db8::2]:65535", line.len()));
}

#[test]
fn a114_the_longest_lines_are_read_and_one_byte_more_is_not() {
    let address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let line = format!("PROXY TCP6 {address} {address} 65535 65535\r\n");
    assert_eq!(line.len(), 104);
    assert!(matches!(read(line.as_bytes()), Header::Proxied { consumed: 104, .. }));
    let line = format!("PROXY UNKNOWN {address} {address} 65535 65535\r\n");
    assert_eq!((line.len(), read(line.as_bytes())), (107, Header::Local { consumed: 107 }));
    let line = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    assert_eq!((line.len(), read(line.as_bytes())), (108, Header::Local { consumed: 108 }));
    let line = format!("PROXY UNKNOWN {}\r\n", "x".repeat(93));
    assert_eq!(read(line.as_bytes()), Header::Malformed);
    // Known without the end of the line.
    assert_eq!(parse(&line.as_bytes()[..107]), Header::NeedMore);
    assert_eq!(parse(&line.as_bytes()[..108]), Header::Malformed);
}

#[test]
fn a114_unknown_keeps_the_peer_and_skips_the_line() {
    assert_eq!(read(b"PROXY UNKNOWN\r\n"), Header::Local { consumed: 15 });
    assert_eq!(read(b"PROXY UNKNOWN any \x00 thing\r\n"), Header::Local { consumed: 27 });
    assert_eq!(read(b"PROXY UNKNOWNX\r\n"), Header::Malformed);
}

#[test]
fn a112_a114_lines_that_are_not_legal_are_refused() {
    let illegal: [&[u8]; 34] = [
        b"proxy TCP4 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY tcp4 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY unknown\r\n",
        b"PROXY\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4\r\n",
        b"PROXY TCP5 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY  TCP4 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY TCP4  192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY\tTCP4 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2 \r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\rx\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 00\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 -1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 65536\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 0x2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1 \r\n",
        b"PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
        b"PROXY TCP4 192.0.2 198.51.100.2 1 2\r\n",
        b"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY TCP6 2001:db8::1 198.51.100.2 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 2001:db8::2 1 2\r\n",
        b"PROXY TCP6 [2001:db8::1] 2001:db8::2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 \xd9\xa1 2\r\n",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01",
    ];
    for line in illegal {
        assert_eq!(read(line), Header::Malformed, "{}", line.escape_ascii());
    }
}

#[test]
fn a_stream_that_is_no_header_is_known_by_its_first_wrong_byte() {
    for (begin, wrong) in [(&b""[..], b"G"), (b"", b"p"), (b"PRO", b"P"), (b"\r\n\r\n\0", b"\n")] {
        assert_eq!(parse(begin), Header::NeedMore);
        assert_eq!(parse(&[begin, wrong].concat()), Header::Malformed);
    }
    let signature = v2::SIGNATURE;
    for (fixed, wrong) in [(&b""[..], 0x11), (b"", 0x22), (b"\x21", 0x12), (b"\x21", 0x13)] {
        let begin = [&signature[..], fixed].concat();
        assert_eq!(parse(&begin), Header::NeedMore);
        assert_eq!(parse(&[&begin[..], &[wrong]].concat()), Header::Malformed);
    }
}

#[test]
fn a112_v2_headers_are_read_at_every_split() {
    let header = v2_header(0x21, 0x11, &TCP4);
    assert_eq!(read(&header), proxied("192.0.2.1:12345", "198.51.100.2:443", 28));
    let header = v2_header(0x21, 0x21, &tcp6());
    assert_eq!(read(&header), proxied("[2001:db8::1]:12345", "[2001:db8::2]:443", 52));
}

#[test]
fn a114_attachments_are_skipped_when_their_lengths_add_up() {
    let with = |more: &[u8]| v2_header(0x21, 0x11, &[&TCP4, more].concat());
    for legal in [&b"\x04\0\0"[..], b"\x01\0\x02h2", b"\xea\0\x01x\x05\0\x03abc"] {
        let header = with(legal);
        assert_eq!(
            read(&header),
            proxied("192.0.2.1:12345", "198.51.100.2:443", header.len()),
            "{legal:?}"
        );
    }
    for illegal in [&b"\x04"[..], b"\x04\0", b"\x04\0\x01", b"\x01\0\x02h2\x04", b"\x01\xff\xffh2"]
    {
        assert_eq!(read(&with(illegal)), Header::Malformed, "{illegal:?}");
    }
}

#[test]
fn a114_a_payload_of_4_kib_is_read_and_one_byte_more_refused_by_its_length() {
    let filled = |length: usize| {
        let value = u16::try_from(length - TCP4.len() - 3).unwrap().to_be_bytes();
        let attachment = [&[0xea][..], &value, &vec![0; length - TCP4.len() - 3]].concat();
        v2_header(0x21, 0x11, &[&TCP4[..], &attachment].concat())
    };
    let largest = filled(4096);
    assert_eq!(largest.len(), LIMIT);
    assert!(matches!(read(&largest), Header::Proxied { consumed: LIMIT, .. }));
    let larger = filled(4097);
    assert_eq!(parse(&larger[..15]), Header::NeedMore);
    assert_eq!(parse(&larger[..16]), Header::Malformed);
    assert_eq!(parse(&v2_header(0x20, 0, &[0; 4097])), Header::Malformed);
}

#[test]
fn a114_local_unspecified_and_unix_keep_the_peer_and_skip_the_declared_length() {
    let unix = [0; 216];
    for (command, family, payload) in [
        (0x20, 0x00, &b""[..]),
        (0x20, 0x00, b"not a TLV"),
        (0x20, 0x11, &TCP4),
        (0x20, 0x12, &TCP4),
        (0x20, 0xff, b"x"),
        (0x21, 0x00, b""),
        (0x21, 0x00, b"anything"),
        (0x21, 0x31, &unix),
    ] {
        let header = v2_header(command, family, payload);
        assert_eq!(read(&header), Header::Local { consumed: header.len() }, "{command} {family}");
    }
    let header = v2_header(0x21, 0x31, &[&unix[..], b"\x04\0\x01x"].concat());
    assert_eq!(read(&header), Header::Local { consumed: header.len() });
}

#[test]
fn a114_datagrams_short_addresses_and_undefined_values_are_refused() {
    for (command, family, payload) in [
        (0x21, 0x12, &TCP4[..]),
        (0x21, 0x22, &tcp6()),
        (0x21, 0x32, &[0; 216]),
        (0x21, 0x10, &TCP4),
        (0x21, 0x01, b""),
        (0x21, 0x41, &TCP4),
        (0x22, 0x11, &TCP4),
        (0x11, 0x11, &TCP4),
        (0x31, 0x11, &TCP4),
        (0x21, 0x11, &TCP4[..11]),
        (0x21, 0x21, &tcp6()[..35]),
        (0x21, 0x31, &[0; 215]),
        (0x21, 0x31, &[0; 217]),
    ] {
        assert_eq!(read(&v2_header(command, family, payload)), Header::Malformed);
    }
}

#[test]
fn a59_mapped_addresses_in_a_header_count_as_ipv4() {
    let line = b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:c633:6402 1 2\r\n";
    assert_eq!(read(line), proxied("192.0.2.1:1", "198.51.100.2:2", line.len()));
}

#[test]
fn a115_headers_are_written_as_the_specification_shows_them() {
    let v4 = (at("192.0.2.1:12345"), at("198.51.100.2:443"));
    let v6 = (at("[2001:db8::1]:12345"), at("[2001:db8::2]:443"));
    assert_eq!(
        encode(ProxyVersion::V1, v4.0, v4.1).as_ref(),
        b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 443\r\n"
    );
    assert_eq!(
        encode(ProxyVersion::V1, v6.0, v6.1).as_ref(),
        b"PROXY TCP6 2001:db8::1 2001:db8::2 12345 443\r\n"
    );
    assert_eq!(encode(ProxyVersion::V2, v4.0, v4.1).as_ref(), v2_header(0x21, 0x11, &TCP4));
    assert_eq!(encode(ProxyVersion::V2, v6.0, v6.1).as_ref(), v2_header(0x21, 0x21, &tcp6()));
}

#[test]
fn b14_a_header_has_one_family() {
    let (v4, v6) = (at("192.0.2.1:1"), at("[2001:db8::2]:2"));
    assert_eq!(
        encode(ProxyVersion::V1, v4, v6).as_ref(),
        b"PROXY TCP6 ::ffff:c000:201 2001:db8::2 1 2\r\n"
    );
    assert_eq!(
        encode(ProxyVersion::V1, v6, v4).as_ref(),
        b"PROXY TCP6 2001:db8::2 ::ffff:c000:201 2 1\r\n"
    );
    // Mapped on one side and IPv4 on the other is IPv4.
    assert_eq!(
        encode(ProxyVersion::V1, at("[::ffff:192.0.2.9]:1"), v4).as_ref(),
        b"PROXY TCP4 192.0.2.9 192.0.2.1 1 1\r\n"
    );
    let mixed = encode(ProxyVersion::V2, v4, v6);
    assert_eq!(mixed.as_ref()[13], 0x21);
    assert_eq!(parse(mixed.as_ref()), proxied("192.0.2.1:1", "[2001:db8::2]:2", 52));
}

#[test]
fn a111_a_health_check_speaks_for_itself() {
    let (local, peer) = (at("10.0.0.1:5000"), at("10.0.0.2:80"));
    let header = encode_probe(ProxyVersion::V2, local, peer);
    assert_eq!(header.as_ref(), v2_header(0x20, 0x00, b""));
    assert_eq!(
        encode_probe(ProxyVersion::V1, local, peer).as_ref(),
        b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 80\r\n"
    );
}

#[test]
fn a_connection_whose_ends_are_unknown_is_local_to_whoever_reads_its_header() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let header = encode_unknown(version);
        let consumed = header.as_ref().len();
        assert_eq!(parse(header.as_ref()), Header::Local { consumed });
    }
}

fn any_socket() -> impl Strategy<Value = SocketAddr> {
    let any_v6 = prop_oneof![
        any::<u128>().prop_map(std::net::Ipv6Addr::from_bits),
        any::<u32>().prop_map(|n| std::net::Ipv4Addr::from_bits(n).to_ipv6_mapped()),
        Just(std::net::Ipv6Addr::from_bits(u128::MAX)),
    ];
    let any_ip = prop_oneof![
        any::<u32>().prop_map(|n| std::net::Ipv4Addr::from_bits(n).into()),
        any_v6.prop_map(std::net::IpAddr::from),
    ];
    (any_ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn any_version() -> impl Strategy<Value = ProxyVersion> {
    prop_oneof![Just(ProxyVersion::V1), Just(ProxyVersion::V2)]
}

proptest! {
    #[test]
    fn what_is_written_is_read_by_us_and_by_a_second_implementation(
        version in any_version(),
        source in any_socket(),
        destination in any_socket(),
    ) {
        let header = encode(version, source, destination);
        let bytes = header.as_ref();
        let expected = Header::Proxied {
            source: ClientAddr::folded(source),
            destination: OriginalDst::folded(destination),
            consumed: bytes.len(),
        };
        prop_assert_eq!(read(bytes), expected);
        let (theirs, length) = ProxyHeader::parse(bytes, ParseConfig::default()).unwrap();
        prop_assert_eq!(length, bytes.len());
        let theirs = theirs.proxied_address().unwrap();
        prop_assert_eq!(theirs.source.is_ipv4(), theirs.destination.is_ipv4());
        prop_assert_eq!(ClientAddr::folded(theirs.source), ClientAddr::folded(source));
        prop_assert_eq!(ClientAddr::folded(theirs.destination), ClientAddr::folded(destination));
    }

    #[test]
    fn any_bytes_never_panic_and_a_decision_does_not_change_with_more_of_them(
        start in proptest::sample::select(vec![
            &b""[..], b"PROXY ", b"PROXY TCP4 1.2.3.4 ", b"PROXY UNKNOWN",
            b"\r\n\r\n\0\r\nQUIT\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10",
        ]),
        tail in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 0usize..250,
    ) {
        let bytes = [start, &tail].concat();
        let whole = parse(&bytes);
        let early = parse(&bytes[..cut.min(bytes.len())]);
        if early != Header::NeedMore {
            prop_assert_eq!(early, whole);
        }
        if let Header::Proxied { consumed, .. } | Header::Local { consumed } = whole {
            prop_assert!(consumed <= bytes.len() && consumed <= LIMIT);
        }
    }

    #[test]
    fn what_we_accept_the_second_implementation_reads_the_same(
        position in 0usize..60,
        value: u8,
        version in any_version(),
        source in any_socket(),
        destination in any_socket(),
    ) {
        let mut bytes = encode(version, source, destination).as_ref().to_vec();
        let position = position % bytes.len();
        bytes[position] = value;
        if let Header::Proxied { source, destination, consumed } = parse(&bytes) {
            let (theirs, length) = ProxyHeader::parse(&bytes, ParseConfig::default()).unwrap();
            let theirs = theirs.proxied_address().unwrap();
            prop_assert_eq!(length, consumed);
            prop_assert_eq!(ClientAddr::folded(theirs.source), source);
            prop_assert_eq!(OriginalDst::folded(theirs.destination), destination);
        }
    }
}
