#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

fn targets(decision: &Decision) -> Vec<u16> {
    let Verdict::Patterns(set) = decision.verdict() else { panic!("not of regex: {decision:?}") };
    (0..TargetSet::CAPACITY).filter(|target| set.contains(*target)).collect()
}

/// Feeds `reads` one after the other until it decides; `Err` holds how far it came undecided.
fn feed(patterns: &Patterns, reads: &[&[u8]]) -> Result<(usize, Decision), usize> {
    let mut scan = patterns.scan();
    let mut window = Vec::new();
    for read in reads {
        window.extend_from_slice(read);
        if let Progress::Decided(decision) = scan.feed(&window) {
            return Ok((window.len(), decision));
        }
    }
    Err(window.len())
}

fn bytewise(patterns: &Patterns, bytes: &[u8]) -> Result<(usize, Decision), usize> {
    let reads: Vec<&[u8]> = bytes.chunks(1).collect();
    feed(patterns, &reads)
}

fn ended(patterns: &Patterns, bytes: &[u8], reason: Reason) -> Decision {
    let mut scan = patterns.scan();
    if let Progress::Decided(decision) = scan.feed(bytes) {
        return decision;
    }
    scan.end(bytes, reason)
}

fn compiled(patterns: &[&str]) -> Patterns {
    let patterns: Vec<_> = patterns.iter().copied().map(Some).collect();
    Patterns::compile(&patterns).unwrap()
}

#[test]
fn a64_decides_with_the_very_byte_that_makes_a_match() {
    let patterns = compiled(&["^GET ", "^SSH-", "ping"]);
    let (length, decision) = bytewise(&patterns, b"GET / HTTP/1.1").unwrap();
    assert_eq!((length, targets(&decision)), (4, vec![0]));
    let (length, decision) = bytewise(&patterns, b"xx ping yy").unwrap();
    assert_eq!((length, targets(&decision)), (7, vec![2]));
}

#[test]
fn a64_every_split_in_two_decides_as_one_read_does() {
    let patterns = compiled(&[r"^\x16\x03[\x00-\x04]", r"^\x05[\x01-\x09]", "HTTP/1\\.[01]\r\n"]);
    let inputs: [(&[u8], u16); 3] =
        [(b"\x16\x03\x01\x02\x00", 0), (b"\x05\x01\x00", 1), (b"GET / HTTP/1.1\r\n", 2)];
    for (input, target) in inputs {
        for cut in 0..=input.len() {
            let (_, decision) = feed(&patterns, &[&input[..cut], &input[cut..]]).unwrap();
            assert_eq!(targets(&decision), [target], "cut at {cut}");
        }
    }
}

#[test]
fn a66_all_that_match_at_that_moment_are_candidates_in_configured_order() {
    let patterns =
        Patterns::compile(&[Some("T$"), None, Some("^GET"), Some("^POST"), Some("^G")]).unwrap();
    let (_, decision) = feed(&patterns, &[b"GET"]).unwrap();
    assert_eq!(targets(&decision), [2, 4]);
    let (_, decision) = bytewise(&patterns, b"GET").unwrap();
    assert_eq!(targets(&decision), [4]);
}

#[test]
fn a65_silence_matches_nothing_not_even_a_pattern_for_everything() {
    let patterns = compiled(&[".*", "", "^$"]);
    assert_eq!(feed(&patterns, &[b""]).unwrap_err(), 0);
    for reason in [Reason::Deadline, Reason::Eof] {
        let decision = ended(&patterns, b"", reason);
        assert!(targets(&decision).is_empty());
        assert!(matches!(decision, Decision::Nothing(_, cause) if cause == reason.into()));
    }
    let (length, decision) = bytewise(&patterns, b"x").unwrap();
    assert_eq!((length, targets(&decision)), (1, vec![0, 1]));
}

#[test]
fn a65_4096_bytes_without_a_match_are_the_end_and_a_later_match_is_not_seen() {
    let patterns = compiled(&["needle"]);
    let mut bytes = vec![b'x'; LIMIT - 5];
    bytes.extend_from_slice(b"needle");
    let (_, decision) = feed(&patterns, &[&bytes]).unwrap();
    assert_eq!(decision, nothing(Cause::TooLong));
    assert_eq!(bytewise(&patterns, &bytes).unwrap(), (LIMIT, nothing(Cause::TooLong)));
    let (_, decision) = feed(&patterns, &[&bytes[1..]]).unwrap();
    assert_eq!(targets(&decision), [0]);
}

#[test]
fn b11_a_rule_decides_at_once_when_no_pattern_can_match_any_more() {
    let patterns = compiled(&["^GET ", "^HEAD ", "^\\x16\\x03"]);
    assert_eq!(bytewise(&patterns, b"GEx").unwrap(), (3, nothing(Cause::NoMatch)));
    assert_eq!(bytewise(&patterns, b"\x17").unwrap(), (1, nothing(Cause::NoMatch)));
    // One pattern without an anchor may still match anywhere.
    let patterns = compiled(&["^GET ", "late"]);
    assert_eq!(bytewise(&patterns, b"xxxx").unwrap_err(), 4);
}

#[test]
fn b11_a_rule_with_nothing_but_a_fallback_decides_without_a_byte() {
    let patterns = Patterns::compile(&[None]).unwrap();
    assert_eq!(patterns.scan().feed(b""), Progress::Decided(nothing(Cause::NoMatch)));
    assert_eq!(patterns.scan().end(b"", Reason::Eof), nothing(Cause::NoMatch));
}

#[test]
fn b11_deadline_and_eof_give_nothing_to_route_by() {
    let patterns = compiled(&["^HELLO"]);
    assert_eq!(ended(&patterns, b"HEL", Reason::Deadline), nothing(Cause::Deadline));
    assert_eq!(ended(&patterns, b"HEL", Reason::Eof), nothing(Cause::Eof));
}

#[test]
fn an_end_assertion_waits_for_the_end() {
    let patterns = compiled(&["^PING$", "^PING\r\n\\z"]);
    assert_eq!(bytewise(&patterns, b"PING").unwrap_err(), 4);
    assert_eq!(targets(&ended(&patterns, b"PING", Reason::Eof)), [0]);
    assert_eq!(targets(&ended(&patterns, b"PING", Reason::Deadline)), [0]);
    assert_eq!(bytewise(&patterns, b"PING\r\n").unwrap_err(), 6);
    assert_eq!(targets(&ended(&patterns, b"PING\r\n", Reason::Deadline)), [1]);
    assert_eq!(bytewise(&patterns, b"PING\r\nx").unwrap(), (7, nothing(Cause::NoMatch)));
}

#[test]
fn the_limit_is_not_an_end() {
    let patterns = compiled(&["x$"]);
    let window = vec![b'x'; LIMIT];
    assert_eq!(ended(&patterns, &window, Reason::Eof), nothing(Cause::TooLong));
    assert_eq!(targets(&ended(&patterns, &window[1..], Reason::Eof)), [0]);
}

#[test]
fn a_word_boundary_waits_for_the_byte_that_makes_it_one() {
    let patterns = compiled(&[r"^GET\b"]);
    assert_eq!(bytewise(&patterns, b"GET /").unwrap().0, 4);
    assert_eq!(bytewise(&patterns, b"GETX").unwrap(), (4, nothing(Cause::NoMatch)));
    assert_eq!(targets(&ended(&patterns, b"GET", Reason::Eof)), [0]);
    // Before a space it is there whatever follows.
    assert_eq!(bytewise(&compiled(&[r"^GET\b "]), b"GET ").unwrap().0, 4);
}

#[test]
fn a_match_that_holds_whatever_follows_does_not_wait_though_the_pattern_looks_ahead() {
    let patterns = compiled(&["^(GET |PING$)"]);
    assert_eq!(bytewise(&patterns, b"GET ").unwrap().0, 4);
    let patterns = compiled(&[r"^a(\b|\B)"]);
    assert_eq!(bytewise(&patterns, b"a").unwrap().0, 1);
    let patterns = compiled(&["(?m)^x$"]);
    assert_eq!(bytewise(&patterns, b"x\n").unwrap().0, 2);
}

#[test]
fn b12_a_hex_escape_is_that_byte_and_a_dot_is_any_byte_but_a_line_feed() {
    let patterns = compiled(&[r"^\xff\x80", "^.\\x00", "^é"]);
    assert_eq!(targets(&bytewise(&patterns, b"\xff\x80").unwrap().1), [0]);
    assert_eq!(targets(&bytewise(&patterns, b"\xfe\x00").unwrap().1), [1]);
    assert_eq!(targets(&bytewise(&patterns, "é".as_bytes()).unwrap().1), [2]);
    assert_eq!(bytewise(&patterns, b"\n\x00").unwrap().1, nothing(Cause::NoMatch));
    assert_eq!(targets(&bytewise(&compiled(&[r"^(?u:\xff)"]), "ÿ".as_bytes()).unwrap().1), [0]);
}

#[test]
fn a33_b12_an_unusable_pattern_is_named_with_its_target_and_a_reason_of_one_line() {
    let refused =
        |pattern| Patterns::compile(&[Some("ok"), None, Some(pattern)]).unwrap_err().remove(0);
    for (pattern, reason) in [
        ("(", "unclosed group"),
        (r"(?u:\bx)", "word boundaries are ASCII only: no \\b inside (?u)"),
        ("(?:[a-z]{1000}){1000}", "compiles to more than 1048576 bytes"),
        ("a\n(?P<n", "unclosed capture group name"),
        (r"(a)\1", "backreferences are not supported"),
    ] {
        let error = refused(pattern);
        assert_eq!((error.target, error.message.as_str()), (2, reason), "{pattern}");
    }
    let many = vec![Some("x"); 129];
    assert_eq!(Patterns::compile(&many).unwrap_err()[0].target, 128);
}

#[test]
fn a31_128_patterns_are_one_automaton() {
    let texts: Vec<String> = (0..128).map(|n| format!("^proto-{n:03}")).collect();
    let texts: Vec<_> = texts.iter().map(|text| Some(text.as_str())).collect();
    let patterns = Patterns::compile(&texts).unwrap();
    assert_eq!(targets(&bytewise(&patterns, b"proto-127").unwrap().1), [127]);
}

#[test]
fn a_scan_that_meets_another_cache_or_a_cleared_one_starts_over_and_says_the_same() {
    let patterns = compiled(&["^abc[def]+[xyz]{3}!", "q{5}"]);
    let mut scan = patterns.scan();
    assert_eq!(scan.feed(b"abcd"), Progress::NeedMore);
    let other = std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let _theirs = patterns.engine().unwrap().cache();
            scan.feed(b"abcdefxy")
        });
        held.join().unwrap()
    });
    assert_eq!(other, Progress::NeedMore);
    let Progress::Decided(decision) = scan.feed(b"abcdefxyz!") else { panic!("undecided") };
    assert_eq!(targets(&decision), [0]);
}

#[test]
fn the_cramped_caches_of_these_tests_are_really_cleared_on_the_way() {
    let patterns = Patterns::compile_cramped(&[Some("(a|b).{6}(a|b)$")]).unwrap();
    let bytes: Vec<u8> = (0..200u8).map(|n| if n % 7 < 3 { b'a' } else { b'b' + n % 3 }).collect();
    assert!(bytewise(&patterns, &bytes).is_err());
    assert!(patterns.engine().unwrap().cache().clears() > 10);
}

/// What the answer must be, from the plain engine: all that match in the window whatever follows.
fn expected(patterns: &[&str], window: &[u8]) -> Vec<u16> {
    let matching = |text: &str, bytes: &[u8]| {
        let pattern = regex::bytes::RegexBuilder::new(text).unicode(false).build().unwrap();
        pattern.is_match(bytes)
    };
    (0u16..)
        .zip(patterns)
        .filter(|(_, text)| matching(text, window))
        .filter(|(_, text)| {
            (0..=255u8).all(|next| {
                let mut longer = window.to_vec();
                longer.push(next);
                // The match must end before the added byte.
                matching(&format!("(?:{text})(?s:.)+\\z"), &longer)
            })
        })
        .map(|(index, _)| index)
        .collect()
}

const POOL: [&str; 12] = [
    "^a",
    "b+c$",
    r"\bab\b",
    "^(ab|cd)*$",
    "c{3}",
    r"(?m)^b$",
    "^[^a]a",
    r"a\B",
    ".",
    "^$",
    r"\x00\xff",
    "(a|b).(a|b)",
];

proptest! {
    #[test]
    fn every_cut_agrees_with_the_plain_engine(
        chosen in proptest::sample::subsequence(POOL.to_vec(), 1..5),
        bytes in proptest::collection::vec(proptest::sample::select(b"abcd \n\x00\xff".to_vec()), 1..12),
        cuts in proptest::collection::vec(1usize..4, 12),
        cramped: bool,
    ) {
        let some: Vec<_> = chosen.iter().copied().map(Some).collect();
        let patterns =
            if cramped { Patterns::compile_cramped(&some) } else { Patterns::compile(&some) }.unwrap();
        let mut scan = patterns.scan();
        let mut length = 0;
        let mut decided = None;
        for cut in cuts {
            length = (length + cut).min(bytes.len());
            let want = expected(&chosen, &bytes[..length]);
            match scan.feed(&bytes[..length]) {
                Progress::NeedMore => prop_assert_eq!(want, Vec::<u16>::new()),
                Progress::Decided(decision) => {
                    prop_assert_eq!(targets(&decision), want);
                    decided = Some(decision);
                    break;
                }
            }
            if length == bytes.len() { break; }
        }
        if decided.is_none() {
            let all = |text: &&str| regex::bytes::RegexBuilder::new(text).unicode(false).build().unwrap();
            let want: Vec<u16> = (0u16..)
                .zip(&chosen)
                .filter(|(_, text)| all(text).is_match(&bytes[..length]))
                .map(|(index, _)| index)
                .collect();
            prop_assert_eq!(targets(&scan.end(&bytes[..length], Reason::Eof)), want);
        }
    }

    #[test]
    fn any_bytes_in_any_cut_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        step in 1usize..700,
        cramped: bool,
    ) {
        let some: Vec<_> = POOL[..7].iter().copied().map(Some).collect();
        let patterns =
            if cramped { Patterns::compile_cramped(&some) } else { Patterns::compile(&some) }.unwrap();
        let reads: Vec<&[u8]> = bytes.chunks(step).collect();
        if let Err(length) = feed(&patterns, &reads) {
            prop_assert!(length < LIMIT);
        }
    }
}
