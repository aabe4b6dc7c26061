//! Whatever the bytes are: an answer, never a panic, and never a refusal without a reason.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use baton_config::{fuzz, parse, url};
use proptest::prelude::*;

fn samples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// Values that are wrong or borderline somewhere.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        Just("[null]".to_owned()),
        Just("{\"a\": \"b\"}".to_owned()),
        Just("true".to_owned()),
        Just("-1".to_owned()),
        Just("1e9".to_owned()),
        any::<u64>().prop_map(|number| number.to_string()),
        (0_u32..5000).prop_map(|number| number.to_string()),
        (0_u32..5000).prop_map(|number| format!("\"{number}ms\"")),
        "\"[ -!#-\\[\\]-~]{0,12}\"",
        prop::sample::select(vec![
            "\"regex\"",
            "\"tls\"",
            "\"forward\"",
            "\"boost\"",
            "\"http\"",
            "\"rand\"",
            "\"hash\"",
            "\"parallel\"",
            "\"v1\"",
            "\"[::1]:80\"",
            "\":80\"",
            "\"::/0\"",
            "\"\\u0000\"",
            "\"\"",
        ])
        .prop_map(str::to_owned),
    ]
}

/// Start and end of the values and keys of a text: runs between structural characters.
fn tokens(text: &str) -> Vec<(usize, usize)> {
    let mut tokens = Vec::new();
    let mut start = None;
    let mut in_string = false;
    for (at, c) in text.char_indices() {
        in_string ^= c == '"';
        let inside = in_string || !"{}[]:, \n".contains(c);
        match (start, inside) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                tokens.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    tokens
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::file(&bytes);
    }

    #[test]
    fn any_json_like_text(text in "[{}\\[\\]\",:a-z0-9\\\\u/ \n-]{0,80}") {
        fuzz::file(text.as_bytes());
    }

    #[test]
    fn samples_with_values_and_keys_exchanged(
        sample in 0_usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..4),
    ) {
        let mut text = samples().swap_remove(sample);
        for (place, value) in changes {
            let tokens = tokens(&text);
            let (from, to) = tokens[place.index(tokens.len())];
            text.replace_range(from..to, &value);
        }
        fuzz::file(text.as_bytes());
    }

    #[test]
    fn samples_with_bytes_changed(
        sample in 0_usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = samples().swap_remove(sample).into_bytes();
        for (place, byte) in changes {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        fuzz::file(&bytes);
    }

    #[test]
    fn any_url(
        head in prop::sample::select(vec!["tcp://", "http://", "", "tcp:", "tcp+tls://"]),
        rest in "[:/,?&=#@%a-z0-9.\\[\\]ü \n]{0,40}",
    ) {
        let urls = [format!("{head}{rest}"), "tcp://:1/:2".to_owned()];
        match url::compile(&urls) {
            Ok(json) => prop_assert!(parse("-L", json.as_bytes()).is_ok()),
            Err(problems) => {
                prop_assert!(!problems.0.is_empty());
                for problem in &problems.0 {
                    prop_assert!(!problem.message.contains("a fault of Baton"), "{}", problem);
                }
            }
        }
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/config");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        fuzz::file(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 10, "the corpus is there");
}
