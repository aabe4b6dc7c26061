use proptest::prelude::*;

use super::*;

/// What this release leaves, word for word: the next release has to read it.
const WORDS: &str = include_str!("golden-1.txt");

/// What a release left that knew no connections that outlive their worker.
const BEFORE: &str = include_str!("golden-1-without-lifelines.txt");

fn decode(text: &str) -> Result<Saved, StateError> {
    Saved::decode(text.as_bytes())
}

#[test]
fn the_words_of_this_format_are_read_and_written_as_ever() {
    let saved = decode(WORDS).unwrap();
    assert_eq!(String::from_utf8(saved.encode().unwrap()).unwrap(), WORDS.trim_end());
    assert_eq!(saved.listeners[0].role, SavedRole::Rule);
    assert_eq!(saved.clients[0].id, RequestId(4));
}

#[test]
fn the_words_of_the_release_before_are_read() {
    let saved = decode(BEFORE).unwrap();
    assert_eq!((saved.former, saved.lifelines.len()), (None, 0));
    assert_eq!(saved.machine.former(), None);
}

#[test]
fn another_format_is_told_by_its_number() {
    let other = WORDS.replacen("state 1", "state 2", 1);
    let error = decode(&other).unwrap_err();
    assert!(matches!(&error, StateError::Format(found) if found == "2"), "{error}");
    assert!(error.to_string().contains("has format 2, this release reads 1"), "{error}");
}

#[test]
fn a_field_of_a_later_release_is_skipped() {
    let more = WORDS.replacen("{\"version\"", "{\"later\":[1],\"version\"", 1);
    assert_eq!(decode(&more).unwrap(), decode(WORDS).unwrap());
}

#[test]
fn a_field_that_an_earlier_release_did_not_write_is_not_missed() {
    let less = WORDS.replacen(",\"ended\":60000", "", 1);
    assert_ne!(less, WORDS);
    decode(&less).unwrap();
}

#[test]
fn a_descriptor_with_two_owners_is_refused() {
    let twice = WORDS.replacen("\"lock\":10", "\"lock\":11", 1);
    assert!(matches!(decode(&twice), Err(StateError::Twice(11))));
    let twice = WORDS.replacen("\"keeper\":20", "\"keeper\":18", 1);
    assert!(matches!(decode(&twice), Err(StateError::Twice(18))));
}

#[test]
fn what_is_no_state_is_refused() {
    for text in ["", "{}", "baton-supervisor-state 1", "baton-supervisor-state 1\n{}"] {
        assert!(decode(text).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_damage_makes_it_panic(at in 0..WORDS.len(), byte in any::<u8>(), keep in 0..WORDS.len()) {
        let mut bytes = WORDS.as_bytes().to_vec();
        bytes[at] = byte;
        bytes.truncate(keep);
        let _either = Saved::decode(&bytes);
    }
}
