//! Streams whose every byte follows from its position: loss, duplication and reordering show at
//! the byte where they happen.

/// A stream known by its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pattern(pub(crate) u64);

impl Pattern {
    /// splitmix64 of the word's index: neighbouring positions share nothing.
    fn word(self, index: u64) -> [u8; 8] {
        let mut x = self.0.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)).to_le_bytes()
    }

    fn bytes_from(self, position: u64) -> impl Iterator<Item = u8> {
        let skipped = usize::from(position.to_le_bytes()[0] % 8);
        (position / 8..).flat_map(move |index| self.word(index)).skip(skipped)
    }

    /// Fills `buffer` with what stands at `position`.
    pub(crate) fn fill(self, position: u64, buffer: &mut [u8]) {
        for (byte, value) in buffer.iter_mut().zip(self.bytes_from(position)) {
            *byte = value;
        }
    }

    /// The first position at which `buffer` differs from what stands at `position`.
    pub(crate) fn mismatch(self, position: u64, buffer: &[u8]) -> Option<u64> {
        (position..)
            .zip(buffer.iter().zip(self.bytes_from(position)))
            .find_map(|(at, (got, want))| (*got != want).then_some(at))
    }
}
