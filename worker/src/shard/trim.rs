//! When freed memory is given back to the system: pure.
//!
//! glibc keeps what was freed below the top of its heap, and among the small blocks of many
//! connections there is always one that lives on near the top. Measured with glibc: of the
//! 3.1 MiB that connections had taken all 3.1 MiB stayed when they had closed, and
//! `malloc_trim(0)` gave them back.

/// Fewer connections than this are not worth a trim: about 1 MiB.
const WORTH: u32 = 256;
/// A trim takes milliseconds and what it gives back has to be taken again by the next wave, so
/// only a fall to this fraction of the peak is the end of a wave.
const FRACTION: u32 = 4;

/// The most connections at once since memory was last given back.
#[derive(Debug, Default)]
pub(super) struct Peak(u32);

impl Peak {
    /// Notes how many connections live; whether it is time to give memory back.
    pub(super) fn fell(&mut self, live: u32) -> bool {
        self.0 = self.0.max(live);
        let fell = self.0 >= WORTH && live < self.0 / FRACTION;
        if fell {
            self.0 = live;
        }
        fell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_a_wave() {
        let mut peak = Peak::default();
        let fell: Vec<_> =
            [10, 1000, 400, 250, 249, 100, 0, 1000, 249].map(|live| peak.fell(live)).into();
        assert_eq!(fell, [false, false, false, false, true, false, false, false, true]);
    }

    #[test]
    fn a_few_connections_are_not_worth_it() {
        let mut peak = Peak::default();
        assert!(!peak.fell(255));
        assert!(!peak.fell(0));
        assert!(!peak.fell(256));
        assert!(peak.fell(63));
    }
}
