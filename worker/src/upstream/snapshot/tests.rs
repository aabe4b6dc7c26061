#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::flow::Fault;

const NOW: Moment = Moment(1_000_000_000_000);

fn worn_line() -> Arc<Line> {
    let line = Arc::new(Line::new(Gate::Breaker));
    let admitted = line.admit(NOW).unwrap();
    admitted.started(NOW);
    let held = admitted.connected(Some(Duration::from_millis(20)), NOW);
    held.first_byte(Duration::from_millis(7), NOW);
    for _ in 0..3 {
        line.admit(NOW).unwrap().failed(Fault::Dial, NOW);
    }
    line
}

#[test]
fn a_line_revived_from_its_words_knows_and_refuses_the_same() {
    let line = worn_line();
    let snapshot = LineSnapshot::of(&line);
    let read = LineSnapshot::from_words(&snapshot.to_words(), NOW).unwrap();
    assert_eq!(read, snapshot);
    let revived = Arc::new(read.revive(Gate::Breaker));
    assert_eq!(LineSnapshot::of(&revived), snapshot);
    assert_eq!(revived.check(NOW), line.check(NOW));
    assert_eq!(revived.ewma_nanos(), 20_000_000);
    assert_eq!(revived.load_nanos(NOW), line.load_nanos(NOW));
}

#[test]
fn a15_a_probe_under_way_is_not_remembered() {
    let line = worn_line();
    let later = NOW.after(Duration::from_secs(5));
    let _probe = line.admit(later).unwrap();
    assert!(LineSnapshot::of(&line).probing);
    let read = LineSnapshot::from_words(&LineSnapshot::of(&line).to_words(), later).unwrap();
    assert!(Arc::new(read.revive(Gate::Breaker)).admit(later).unwrap().is_probe());
}

#[test]
fn words_of_another_boot_or_layout_are_refused() {
    let words = LineSnapshot::of(&worn_line()).to_words();
    assert!(LineSnapshot::from_words(&words[1..], NOW).is_none(), "too short");
    assert!(LineSnapshot::from_words(&words, Moment(5)).is_none(), "from the future");
    let mut other = words;
    other[0] += 1;
    assert!(LineSnapshot::from_words(&other, NOW).is_none(), "another layout");
    assert!(LineSnapshot::from_words(&[0; WORDS], NOW).is_none(), "never written");
}

proptest! {
    #[test]
    fn any_words_that_are_accepted_make_a_line_that_decides_sanely(
        mut words in prop::array::uniform14(any::<u64>()),
        known in any::<bool>(),
    ) {
        if known {
            // Past the layout byte, so that the checks behind it are reached.
            words[0] = words[0] & !0xffff_ffff | u64::from(SCHEMA);
            words[13] = 0;
            for word in &mut words[1..13] {
                *word %= NOW.0;
            }
        }
        if let Some(snapshot) = LineSnapshot::from_words(&words, NOW) {
            let line = Arc::new(snapshot.revive(Gate::Breaker));
            let _ = (line.check(NOW), line.load_nanos(NOW));
            let later = NOW.after(LONGEST_COOLING);
            prop_assert!(snapshot.unhealthy || line.admit(later).is_ok());
            prop_assert_eq!(LineSnapshot::from_words(&snapshot.to_words(), NOW), Some(snapshot));
        }
    }
}
