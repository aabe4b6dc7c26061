//! What the formatter writes to: every sink's queue.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use tracing_subscriber::fmt::MakeWriter;

use crate::queue::Queue;

/// The sinks of a log. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    first: Queue,
    second: Arc<OnceLock<Queue>>,
}

impl Lines {
    pub(crate) fn start(sink: impl Write + Send + 'static) -> io::Result<Self> {
        Ok(Self { first: Queue::start(sink)?, second: Arc::default() })
    }

    /// Every later line goes to this sink as well, unless there is a second one already.
    pub(crate) fn also_to(&self, sink: impl Write + Send + 'static) -> io::Result<()> {
        let queue = Queue::start(sink)?;
        // A third one has no place; dropped, its thread ends.
        let _kept = self.second.set(queue);
        Ok(())
    }

    /// Waits until what is queued has been written, but not for ever.
    pub(crate) fn flush(&self) {
        self.first.flush();
        if let Some(second) = self.second.get() {
            second.flush();
        }
    }
}

impl Write for Lines {
    // The formatter hands over one whole line a call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(second) = self.second.get() {
            second.put(line);
        }
        self.first.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, pipe};

    use super::*;

    #[test]
    fn lines_reach_every_sink_in_order() {
        let (first, first_sink) = pipe().unwrap();
        let (second, second_sink) = pipe().unwrap();
        let mut lines = Lines::start(first_sink).unwrap();
        lines.write_all(b"one\n").unwrap();
        lines.also_to(second_sink).unwrap();
        lines.write_all(b"two\n").unwrap();
        drop(lines);
        let read = |from| BufReader::new(from).lines().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(read(first), ["one", "two"]);
        assert_eq!(read(second), ["two"]);
    }

    #[test]
    fn a_sink_that_nobody_reads_does_not_hold_up_the_other() {
        let (_unread, stuck) = pipe().unwrap();
        let (read, sink) = pipe().unwrap();
        let mut lines = Lines::start(stuck).unwrap();
        lines.also_to(sink).unwrap();
        // More than a pipe of 64 KiB holds.
        let line = [vec![b'x'; 4095], vec![b'\n']].concat();
        for _ in 0..64 {
            lines.write_all(&line).unwrap();
        }
        assert_eq!(BufReader::new(read).lines().take(64).count(), 64);
    }
}
