//! The wire of a keeper is read by releases that did not write it.

use proptest::prelude::*;

use super::*;

fn question(nonce: u64, operation: u16, operands: &[RawFd]) -> Vec<u8> {
    let mut buffer = QuestionBuffer::new();
    buffer.ask(nonce, operation, operands);
    buffer.bytes().to_vec()
}

fn answer(write: impl FnOnce(&mut AnswerBuffer)) -> Vec<u8> {
    let mut buffer = AnswerBuffer::new();
    write(&mut buffer);
    buffer.bytes().to_vec()
}

/// Frozen: a keeper of this release will be asked by later ones.
#[test]
fn the_bytes_of_version_1_stay_as_they_are() {
    let head = |operation: u8| {
        let mut head = b"BKPR\x01\x00".to_vec();
        head.extend([operation, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        head
    };
    let nonce = 0x1122_3344_5566_7788;
    let with = |operation, operands: &[u8]| [head(operation), operands.to_vec()].concat();
    assert_eq!(question(nonce, LIST, &[5]), with(1, &[5, 0, 0, 0]));
    assert_eq!(question(nonce, SEND, &[1, -1]), with(2, &[1, 0, 0, 0, 255, 255, 255, 255]));
    assert_eq!(question(nonce, RESET, &[256]), with(3, &[0, 1, 0, 0]));
    assert_eq!(question(nonce, EXIT, &[]), head(4));
    let listed = answer(|out| {
        out.list(nonce);
        assert!(out.listed(7, 0x0102_0304_0506_0708));
    });
    assert_eq!(listed, with(0x81, &[0, 0, 0, 0, 7, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]));
    let sent = answer(|out| {
        out.sent(nonce);
        out.number(9);
    });
    assert_eq!(sent, with(0x82, &[9, 0, 0, 0]));
    assert_eq!(answer(|out| out.reset(nonce, 3)), with(0x83, &[3, 0, 0, 0]));
    assert_eq!(answer(|out| out.failed(nonce, 24)), with(0x8e, &[24, 0, 0, 0]));
    assert_eq!(answer(|out| out.alive(nonce)), head(0x8f));
}

#[test]
fn questions_read_back() {
    let numbers: Vec<RawFd> = (0..200).collect();
    for operation in [SEND, RESET] {
        let packet = question(9, operation, &numbers);
        let asked = Asked::decode(&packet).unwrap();
        let (Question::Send(found) | Question::Reset(found)) = asked.question else {
            panic!("{asked:?}")
        };
        assert_eq!((asked.nonce, found.iter().collect()), (9, numbers.clone()));
    }
    let packet = question(1, LIST, &[77]);
    assert_eq!(Asked::decode(&packet).unwrap().question, Question::List(77));
    assert_eq!(Asked::decode(&question(1, EXIT, &[])).unwrap().question, Question::Exit);
}

#[test]
fn a_list_that_is_full_tells_where_to_go_on() {
    let mut out = AnswerBuffer::new();
    out.list(4);
    let mut taken = 0;
    while out.listed(taken, 1) {
        taken += 1;
    }
    assert_eq!(usize::try_from(taken).unwrap(), MAX_LISTED);
    let (nonce, Answer::Listed { next, held }) = Answer::decode(out.bytes()).unwrap() else {
        panic!("not a list")
    };
    assert_eq!((nonce, next, held.len()), (4, 1024, MAX_LISTED));
    assert_eq!(held[1023], Held { number: 1023, cookie: 1 });
}

#[test]
fn other_versions_and_odd_lengths_are_not_understood() {
    let mut newer = question(1, EXIT, &[]);
    newer[4] = 2;
    assert_eq!(Asked::decode(&newer), None);
    let mut odd = question(1, SEND, &[1, 2]);
    odd.pop();
    assert_eq!(Asked::decode(&odd), None);
    assert_eq!(Asked::decode(&question(1, EXIT, &[1])), None);
    assert_eq!(Asked::decode(b""), None);
}

proptest! {
    #[test]
    fn any_packet_is_read_without_harm(mut packet in prop::collection::vec(any::<u8>(), 0..2000), magic in any::<bool>()) {
        if magic && packet.len() >= 8 {
            packet[..6].copy_from_slice(b"BKPR\x01\x00");
            packet[7] = 0;
        }
        if let Some(asked) = Asked::decode(&packet) {
            match asked.question {
                Question::Send(numbers) | Question::Reset(numbers) => {
                    prop_assert!(numbers.iter().count() <= MAX_NUMBERS);
                }
                Question::List(_) | Question::Exit => {}
            }
        }
        let _ = Answer::decode(&packet);
    }
}
