use super::*;
use proptest::prelude::*;

fn header(place: Place, body_len: usize, fds: usize) -> Header {
    Header {
        versions: VersionRange::new(Version(1), Version(2)).unwrap(),
        kind: Kind(0x0103),
        mandatory: true,
        place,
        body_len,
        transaction: Transaction(0x0102_0304_0506_0708),
        fds,
    }
}

fn packet(header: &Header) -> Vec<u8> {
    let mut packet = header.encode().to_vec();
    if header.place == Place::Inline {
        packet.resize(HEADER_LEN + header.body_len, 0xab);
    }
    packet
}

#[test]
fn the_header_has_the_documented_bytes() {
    let bytes = header(Place::Memfd, 0x0001_0203, 5).encode();
    let expected = [
        b'B', b'A', b'T', b'N', 1, 0, 2, 0, 3, 1, 3, 0, 3, 2, 1, 0, 8, 7, 6, 5, 4, 3, 2, 1, 5, 0,
        0, 0,
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn every_bound_is_kept_at_its_edge() {
    let decode = |place, len, fds| Header::decode(&packet(&header(place, len, fds))).map(|_| ());
    assert_eq!(decode(Place::Inline, 0, 0), Ok(()));
    assert_eq!(decode(Place::Inline, MAX_INLINE, MAX_FDS), Ok(()));
    assert_eq!(decode(Place::Memfd, MAX_INLINE + 1, 1), Ok(()));
    assert_eq!(decode(Place::Memfd, MAX_BODY, MAX_FDS + 1), Ok(()));

    assert_eq!(decode(Place::Inline, MAX_INLINE + 1, 0), Err(FrameError::BodyLength(65_537)));
    assert_eq!(decode(Place::Memfd, MAX_INLINE, 1), Err(FrameError::BodyLength(65_536)));
    assert_eq!(decode(Place::Memfd, MAX_BODY + 1, 1), Err(FrameError::BodyLength(33_554_433)));
    assert_eq!(decode(Place::Inline, 0, MAX_FDS + 1), Err(FrameError::Fds(201)));
    assert_eq!(decode(Place::Memfd, MAX_BODY, MAX_FDS + 2), Err(FrameError::Fds(202)));
    assert_eq!(decode(Place::Memfd, MAX_BODY, 0), Err(FrameError::Fds(0)));
}

#[test]
fn a_packet_ends_where_its_header_says() {
    let good = packet(&header(Place::Inline, 10, 0));
    let refused = |packet: &[u8]| Header::decode(packet).unwrap_err();
    assert_eq!(refused(&good[..37]), FrameError::PacketLength { declared: 10, found: 9 });
    assert_eq!(refused(&good[..27]), FrameError::Short(27));
    assert_eq!(refused(&[]), FrameError::Short(0));
    let longer = [&good[..], &[0]].concat();
    assert_eq!(refused(&longer), FrameError::PacketLength { declared: 10, found: 11 });
    let beside_memfd = [&packet(&header(Place::Memfd, 70_000, 1))[..], &[0]].concat();
    assert_eq!(refused(&beside_memfd), FrameError::PacketLength { declared: 0, found: 1 });
}

#[test]
fn foreign_bytes_and_undefined_bits_are_refused() {
    let damaged = |at: usize, value: u8| {
        let mut packet = packet(&header(Place::Inline, 0, 0));
        packet[at] = value;
        Header::decode(&packet).unwrap_err()
    };
    assert_eq!(damaged(0, b'b'), FrameError::Magic);
    assert_eq!(damaged(3, 0), FrameError::Magic);
    assert_eq!(damaged(4, 0), FrameError::Versions(0, 2));
    assert_eq!(damaged(4, 3), FrameError::Versions(3, 2));
    assert_eq!(damaged(10, 4), FrameError::Reserved);
    assert_eq!(damaged(11, 1), FrameError::Reserved);
    assert_eq!(damaged(26, 1), FrameError::Reserved);
    assert_eq!(damaged(27, 1), FrameError::Reserved);
}

#[test]
fn lengths_beyond_the_field_never_wrap_into_valid_ones() {
    let huge = header(Place::Memfd, (1 << 32) + MAX_BODY, 1).encode();
    assert_eq!(Header::decode(&huge), Err(FrameError::BodyLength(u32::MAX)));
    let many = header(Place::Inline, 0, 65_536 + 3).encode();
    assert_eq!(Header::decode(&many), Err(FrameError::Fds(u16::MAX)));
}

#[test]
fn errors_name_a_known_type_and_number_an_unknown_one() {
    assert_eq!(Kind(0x0103).to_string(), "Listeners");
    assert_eq!(Kind(0x01fe).to_string(), "type 0x01fe");
}

proptest! {
    #[test]
    fn headers_survive_the_way(
        (min, max) in (1u16..9, 0u16..9).prop_map(|(min, more)| (min, min + more)),
        kind: u16,
        mandatory: bool,
        transaction: u64,
        (place, body_len, fds) in prop_oneof![
            (Just(Place::Inline), 0..=MAX_INLINE, 0..=MAX_FDS),
            (Just(Place::Memfd), MAX_INLINE + 1..=MAX_BODY, 1..=MAX_FDS + 1),
        ],
    ) {
        let versions = VersionRange::new(Version(min), Version(max)).unwrap();
        let (kind, transaction) = (Kind(kind), Transaction(transaction));
        let header = Header { versions, kind, mandatory, place, body_len, transaction, fds };
        let packet = packet(&header);
        let (decoded, body) = Header::decode(&packet).unwrap();
        prop_assert_eq!(decoded, header);
        prop_assert_eq!(body, &packet[HEADER_LEN..]);
    }

    #[test]
    fn whatever_decodes_encodes_to_the_same_bytes(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..64),
            // Close enough to a header to get past the magic.
            proptest::collection::vec(0u8..4, 24..40).prop_map(|rest| [&MAGIC[..], &rest].concat()),
        ],
    ) {
        if let Ok((header, body)) = Header::decode(&bytes) {
            prop_assert_eq!([&header.encode()[..], body].concat(), bytes);
        }
    }
}
