//! The bytes that are sent, as a function of their position alone.
//!
//! Byte `p` of a stream with seed `s` is `table[(s + p) % 65 521]`. A receiver that knows how
//! much it has seen can therefore check any piece with one comparison, and a lost, doubled,
//! swapped or foreign piece shows up unless the shift happens to be a multiple of the prime
//! period (no buffer or pipe size is). The table is small enough to stay in a core's cache,
//! so checking costs about as much as one more copy and no arithmetic per byte.

use std::sync::OnceLock;

/// Length after which the pattern repeats: the largest prime below 64 KiB.
pub(crate) const PERIOD: usize = 65_521;

/// Two periods, so that every window of up to one period is one slice.
fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut bytes = Vec::with_capacity(2 * PERIOD);
        for _ in 0..PERIOD {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push(state.to_be_bytes()[3]);
        }
        bytes.extend_from_within(..);
        bytes
    })
}

/// One stream's pattern.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    start: u64,
}

impl Pattern {
    /// The pattern of a stream with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { start: seed % PERIOD as u64 }
    }

    /// At most one period of the stream, from `position` on; shorter only when `len` is.
    pub(crate) fn window(self, position: u64, len: usize) -> &'static [u8] {
        let remainder = (self.start + position % PERIOD as u64) % PERIOD as u64;
        // Below the period, so it fits.
        let from = usize::try_from(remainder).unwrap_or(0);
        &table()[from..from + len.min(PERIOD)]
    }

    /// Whether `bytes` are exactly what belongs at `position`.
    pub(crate) fn matches(self, position: u64, bytes: &[u8]) -> bool {
        let mut at = position;
        bytes.chunks(PERIOD).all(|piece| {
            let same = self.window(at, piece.len()) == piece;
            at += piece.len() as u64;
            same
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pattern: Pattern, from: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < len {
            let rest = len - out.len();
            out.extend_from_slice(pattern.window(from + out.len() as u64, rest));
        }
        out
    }

    #[test]
    fn any_piece_of_a_stream_matches_at_its_place_only() {
        let pattern = Pattern::new(77);
        let whole = stream(pattern, 0, 3 * PERIOD + 17);
        for (from, len) in [(0, 1), (PERIOD - 1, 2), (PERIOD, 65_536), (5, 2 * PERIOD + 9)] {
            let piece = &whole[from..from + len];
            assert!(pattern.matches(from as u64, piece));
            if len > 8 {
                assert!(!pattern.matches(from as u64 + 1, piece));
                assert!(!pattern.matches(from as u64 + 4096, piece));
                assert!(!pattern.matches(from as u64 + 65_536, piece));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_seen() {
        let pattern = Pattern::new(u64::MAX);
        let mut whole = stream(pattern, 9, 100_000);
        assert!(pattern.matches(9, &whole));
        whole[99_999] ^= 1;
        assert!(!pattern.matches(9, &whole));
    }

    #[test]
    fn two_seeds_do_not_look_alike() {
        let piece = stream(Pattern::new(1), 0, 64);
        assert!(!Pattern::new(2).matches(0, &piece));
    }
}
