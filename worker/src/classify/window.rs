//! The bytes read before a connection has an upstream.
//!
//! A connection that waits for its first byte owns no memory here; it is allocated by the first
//! push and goes on to the relay. The window never gives up a byte on its own: what does not
//! fit is refused as a whole, so a caller that reads at most [`Window::room`] bytes forwards
//! every byte exactly once.

/// First bytes, bounded.
#[derive(Debug)]
pub struct Window {
    bytes: Vec<u8>,
    limit: usize,
}

/// More was read than there is room for; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{length} first bytes for a window with room for {room}")]
pub struct Overflow {
    /// Bytes offered.
    pub length: usize,
    /// Bytes that would have fitted.
    pub room: usize,
}

impl Window {
    /// An empty window for at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// Everything read and not consumed.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The most that may be read next.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    /// Appends what was read.
    ///
    /// # Errors
    /// When it is more than [`Self::room`]; the window is unchanged.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
        let room = self.room();
        if bytes.len() > room {
            return Err(Overflow { length: bytes.len(), room });
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes away a header that is not part of the client's stream, at most what is there.
    pub fn consume(&mut self, length: usize) {
        self.bytes.drain(..length.min(self.bytes.len()));
    }

    /// Changes the limit for the next stage. Bytes above the new limit stay.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Gives the bytes on to be forwarded.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bytes_are_forwarded_exactly_once_and_a_header_never() {
        let mut window = Window::new(64);
        window.push(b"HEADER").unwrap();
        window.push(b"hello ").unwrap();
        window.consume(6);
        window.push(b"world").unwrap();
        assert_eq!(window.into_bytes(), b"hello world");
    }

    #[test]
    fn what_does_not_fit_is_refused_as_a_whole() {
        let mut window = Window::new(4);
        window.push(b"abc").unwrap();
        assert_eq!(window.push(b"de"), Err(Overflow { length: 2, room: 1 }));
        assert_eq!(window.bytes(), b"abc");
        window.push(b"d").unwrap();
        assert_eq!(window.room(), 0);
        window.set_limit(2);
        assert_eq!((window.bytes(), window.room()), (&b"abcd"[..], 0));
        window.consume(9);
        assert_eq!((window.bytes(), window.room()), (&b""[..], 2));
    }

    #[test]
    fn a_window_without_bytes_owns_no_memory() {
        assert_eq!(Window::new(65_536).bytes.capacity(), 0);
    }
}
