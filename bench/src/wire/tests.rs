use super::*;

fn hello() -> Hello {
    Hello { direction: Direction::Both, writes: [4096, MAX_FRAME], interval_us: 20_000, seed: 99 }
}

fn stream(pattern: Pattern, frames: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut position = 0;
    for &len in frames {
        out.extend_from_slice(&header(Kind::Data, len));
        let mut left = len as usize;
        while left > 0 {
            let piece = pattern.window(position, left);
            out.extend_from_slice(piece);
            position += piece.len() as u64;
            left -= piece.len();
        }
    }
    out
}

#[test]
fn a_hello_survives_the_way_and_nonsense_does_not() {
    let bytes = hello().encode();
    assert_eq!(Hello::decode(&bytes), Some(hello()));
    for (at, value) in [(0, b'X'), (4, 0), (4, 4), (14, 0xFF)] {
        let mut broken = bytes;
        broken[at] = value;
        assert_eq!(Hello::decode(&broken), None, "byte {at}");
    }
}

#[test]
fn a_clean_stream_is_clean_in_pieces_of_any_size() {
    let pattern = hello().up_pattern();
    let mut bytes = stream(pattern, &[1, 4096, 200_000, 4096]);
    bytes.extend_from_slice(&header(Kind::Fin, 0));
    for size in [1, 7, 8, 4095, 65_536, bytes.len()] {
        let mut checker = Checker::new(pattern);
        let mut last = Progress::Open;
        for piece in bytes.chunks(size) {
            last = checker.feed(piece);
        }
        assert_eq!(last, Progress::Finished, "pieces of {size}");
        assert_eq!((checker.received(), checker.corrupt()), (208_193, 0), "pieces of {size}");
    }
}

#[test]
fn lost_doubled_flipped_and_foreign_bytes_are_all_seen() {
    let pattern = hello().down_pattern();
    let clean = stream(pattern, &[1000, 1000, 1000]);
    let frame = 1000 + HEADER;
    let mut flipped = clean.clone();
    flipped[500] ^= 4;
    let mut lost = clean.clone();
    lost.drain(frame..2 * frame);
    let mut doubled = clean.clone();
    doubled.splice(frame..frame, clean[..frame].to_vec());
    let mut short = clean;
    short.drain(20..25);
    let foreign = stream(hello().up_pattern(), &[1000]);
    for (name, bytes) in [
        ("flipped", flipped),
        ("lost", lost),
        ("doubled", doubled),
        ("short", short),
        ("foreign", foreign),
    ] {
        let mut checker = Checker::new(pattern);
        checker.feed(&bytes);
        assert!(checker.corrupt() > 0, "{name}");
    }
}

#[test]
fn a_summary_arrives_whole_and_nothing_may_follow_it() {
    let summary = Summary { received: 1, corrupt: 2, gap_us: 3, sent: u64::MAX };
    let mut checker = Checker::new(hello().down_pattern());
    let bytes = summary.encode();
    let (first, second) = bytes.split_at(13);
    assert_eq!(checker.feed(first), Progress::Open);
    assert_eq!(checker.feed(second), Progress::Ended(summary));
    assert_eq!(checker.corrupt(), 0);
    checker.feed(b"x");
    assert_eq!(checker.corrupt(), 1);
}

#[test]
fn proxy_headers_are_measured_exactly_and_other_bytes_have_none() {
    let v1 = b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nE";
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0C".to_vec();
    v2.extend_from_slice(&[0; 12]);
    v2.push(b'E');
    for bytes in [v1.as_slice(), &v2] {
        let whole = bytes.len() - 1;
        assert_eq!(proxy_header(bytes), Some(whole));
        for cut in 1..whole {
            assert_eq!(proxy_header(&bytes[..cut]), None, "cut at {cut}");
        }
    }
    for plain in [b"E".as_slice(), b"C\x40\0\0\0", b"BTN1"] {
        assert_eq!(proxy_header(plain), Some(0));
    }
}
