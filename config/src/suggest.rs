//! "Did you mean": the known word closest to an unknown one.

/// Names that users bring along from comparable programs.
const FOREIGN: &[(&str, &str)] = &[
    ("addr", "address"),
    ("nodes", "targets"),
    ("forwarder", "targets"),
    ("sni", "serverNames"),
    ("services", "rules"),
    ("denylist", "blacklist"),
    ("whitelist", "allowlist"),
    ("rr", "round"),
    ("roundrobin", "round"),
    ("random", "rand"),
    ("ha", "fifo"),
];

/// The known word that was probably meant.
pub(crate) fn closest<'k>(
    word: &str,
    known: impl IntoIterator<Item = &'k str> + Clone,
) -> Option<&'k str> {
    let plain = plain(word);
    if let Some(same) = known.clone().into_iter().find(|other| self::plain(other) == plain) {
        return Some(same);
    }
    if let Some((_, ours)) = FOREIGN.iter().find(|(theirs, _)| *theirs == plain)
        && let Some(found) = known.clone().into_iter().find(|other| other == ours)
    {
        return Some(found);
    }
    // A third of the word may be wrong; more would suggest words that only look alike.
    let allowed = (plain.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|other| (strsim::osa_distance(&plain, &self::plain(other)), other))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// Case and separators are the most frequent slips: `max_fails`, `Max-Fails`. Cut, because
/// the distance of two long texts is slow to compute and no known word is long.
fn plain(word: &str) -> String {
    const LONGEST: usize = 64;
    word.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .take(LONGEST)
        .flat_map(char::to_lowercase)
        .collect()
}
