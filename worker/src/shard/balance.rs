//! Which shard takes an accepted connection: pure.
//!
//! The kernel wakes whoever sleeps first, so one shard tends to accept more than its share, and
//! long-lived connections stay where they were accepted. A hand-over costs a wake-up of another
//! thread, so it happens only when the difference is more than a few connections and more than
//! an eighth.

/// Difference below which nothing is handed over.
const SLACK: u64 = 4;
/// With more shards than this only some are looked at, so that accepting is not O(shards).
const LOOK_AT: usize = 8;

/// The shard that takes the next connection accepted by shard `mine`. `load` tells how many
/// connections a shard has; `turn` changes from call to call.
pub(super) fn choose(
    mine: usize,
    shards: usize,
    turn: usize,
    load: impl Fn(usize) -> u64,
) -> usize {
    let others = shards.saturating_sub(1);
    let Some((least, other)) = (0..others.min(LOOK_AT))
        .map(|step| {
            let offset = if others > LOOK_AT { turn.wrapping_add(step) % others } else { step };
            (mine + 1 + offset) % shards
        })
        .map(|shard| (load(shard), shard))
        .min()
    else {
        return mine;
    };
    if load(mine) > least + SLACK.max(least / 8) { other } else { mine }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(mine: usize, loads: &[u64]) -> usize {
        choose(mine, loads.len(), 0, |shard| loads[shard])
    }

    #[test]
    fn a_single_shard_keeps_everything() {
        assert_eq!(chosen(0, &[1000]), 0);
    }

    #[test]
    fn small_differences_are_left_alone() {
        assert_eq!(chosen(0, &[4, 0]), 0);
        assert_eq!(chosen(0, &[5, 0]), 1);
        assert_eq!(chosen(0, &[90, 80]), 0);
        assert_eq!(chosen(0, &[91, 80]), 1);
    }

    #[test]
    fn the_least_loaded_shard_is_found() {
        assert_eq!(chosen(1, &[9, 50, 3, 7]), 2);
        assert_eq!(chosen(3, &[1, 50, 3, 2]), 3);
    }

    #[test]
    fn with_many_shards_every_other_one_is_looked_at_in_time() {
        let loads: Vec<u64> = (0..64).map(|shard| if shard == 40 { 0 } else { 100 }).collect();
        let found = (0..64).any(|turn| choose(0, 64, turn, |shard| loads[shard]) == 40);
        assert!(found);
    }

    #[test]
    fn connections_that_arrive_at_one_shard_spread_evenly() {
        let mut loads = [0u64; 2];
        for turn in 0..1000 {
            let shard = choose(0, 2, turn, |shard| loads[shard]);
            loads[shard] += 1;
        }
        assert!(loads[0].abs_diff(loads[1]) <= 100, "{loads:?}");
    }
}
