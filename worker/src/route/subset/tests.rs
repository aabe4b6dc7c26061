use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn found(index: &SubsetIndex, pairs: &[(&str, &str)]) -> Vec<u16> {
    index.lookup(&labels(pairs)).iter().map(|line| line.0).collect()
}

#[test]
fn a_look_up_finds_the_lines_that_carry_all_labels_in_order() {
    let lines = [
        labels(&[("zone", "eu"), ("tier", "a")]),
        labels(&[("zone", "us"), ("tier", "a")]),
        labels(&[("zone", "eu"), ("tier", "b")]),
        labels(&[("zone", "eu")]),
    ];
    let index = SubsetIndex::build(lines.iter(), &[vec!["zone"], vec!["zone", "tier"]]);
    assert_eq!(found(&index, &[("zone", "eu")]), [0, 2, 3]);
    assert_eq!(found(&index, &[("tier", "a"), ("zone", "eu")]), [0]);
    assert_eq!(found(&index, &[("zone", "ap")]), [0; 0]);
    assert_eq!(found(&index, &[("zone", "us"), ("tier", "b")]), [0; 0]);
    assert_eq!(found(&index, &[("tier", "a")]), [0; 0], "not built for this combination");
}

#[test]
fn the_index_agrees_with_a_scan_for_all_combinations_of_four_keys() {
    let mut rng = fastrand::Rng::with_seed(3);
    let keys = ["a", "b", "c", "d"];
    let mut lines: Vec<Labels> = vec![Labels::new(); 500];
    for line in &mut lines {
        for key in keys {
            // One in ten does not carry the key.
            if rng.u8(0..10) > 0 {
                line.insert(key.to_owned(), ["x", "y", "z"][rng.usize(0..3)].to_owned());
            }
        }
    }
    let combinations: Vec<Vec<&str>> = (1u8..16)
        .map(|bits| (0..4).filter(|bit| bits & (1 << bit) != 0).map(|bit| keys[bit]).collect())
        .collect();
    let index = SubsetIndex::build(lines.iter(), &combinations);
    for combination in &combinations {
        for _ in 0..20 {
            let wanted: Labels = combination
                .iter()
                .map(|&key| (key.to_owned(), ["x", "y", "z"][rng.usize(0..3)].to_owned()))
                .collect();
            let scanned: Vec<LineIndex> = (0u16..)
                .zip(&lines)
                .filter(|(_, line)| wanted.iter().all(|(k, v)| line.get(k) == Some(v)))
                .map(|(position, _)| LineIndex(position))
                .collect();
            assert_eq!(index.lookup(&wanted), scanned);
        }
    }
}
