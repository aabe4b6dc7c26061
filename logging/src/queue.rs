//! The bounded queue between the threads that log and the one that writes to a sink.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use nix::sys::signal::SigSet;

/// Lines that may wait for a slow reader: a burst of some milliseconds at debug level, and about
/// 1 MiB of memory at worst.
const CAPACITY: usize = 4096;
/// How long the end of the process waits for a slow reader.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Where the lines of one sink are put. Its thread ends with the last clone.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    items: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (items, queue) = sync_channel(CAPACITY);
        let lost = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&lost);
        std::thread::Builder::new().name("baton-log".to_owned()).spawn(move || {
            leave_signals_alone();
            write_all(&queue, &counter, sink);
        })?;
        Ok(Self { items, lost })
    }

    /// Queues a line, or counts it as lost. Never waits.
    pub(crate) fn put(&self, line: &[u8]) {
        if self.items.try_send(Item::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what is queued has been written, but not for ever.
    pub(crate) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.items.try_send(Item::Flush(done)).is_ok() {
            // Either outcome ends the wait; there is nobody left to tell.
            let _outcome = written.recv_timeout(FLUSH_LIMIT);
        }
    }
}

/// Signals are for the thread that acts on them. One taken here would be lost when that thread
/// holds them back because it is about to replace the program, which ends this one.
fn leave_signals_alone() {
    // Fails only for an unknown way of blocking.
    let _blocked = SigSet::all().thread_block();
}

/// A sink that fails (a closed pipe, a full disk) keeps nobody from serving: what it does not
/// take is lost, and it is told so when it takes lines again.
fn write_all(queue: &Receiver<Item>, lost: &AtomicU64, mut sink: impl Write) {
    while let Ok(item) = queue.recv() {
        match item {
            Item::Line(line) => {
                if report(lost, &mut sink).and_then(|()| sink.write_all(&line)).is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            // Sinks keep nothing back: what has been taken from the queue is written.
            Item::Flush(done) => {
                let _gone = done.send(());
            }
        }
    }
}

/// Lines are lost only while others wait or fail, so one to report it with always follows.
fn report(lost: &AtomicU64, sink: &mut impl Write) -> io::Result<()> {
    let missing = lost.swap(0, Ordering::Relaxed);
    if missing == 0 {
        return Ok(());
    }
    let note =
        format!("{{\"level\":\"WARN\",\"message\":\"log lines were lost\",\"lost\":{missing}}}\n");
    let told = sink.write_all(note.as_bytes());
    if told.is_err() {
        lost.fetch_add(missing, Ordering::Relaxed);
    }
    told
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, pipe};

    use super::*;

    #[test]
    fn a_stuck_reader_costs_lines_and_not_time_and_is_told_once_it_reads_again() {
        let (reader, sink) = pipe().unwrap();
        let queue = Queue::start(sink).unwrap();
        let line = [vec![b'x'; 99], vec![b'\n']].concat();
        let put = CAPACITY * 2;
        for _ in 0..put {
            queue.put(&line);
        }
        // What is counted now may be on its way to the reader already.
        drop(queue);
        let lines: Vec<_> = BufReader::new(reader).lines().map(Result::unwrap).collect();
        let (kept, notes): (Vec<_>, Vec<_>) =
            lines.iter().partition(|line| line.as_bytes() == &[b'x'; 99][..]);
        let told: usize = notes
            .iter()
            .map(|note| {
                let lost = note.split_once("\"lost\":").unwrap().1;
                lost.trim_end_matches('}').parse::<usize>().unwrap()
            })
            .sum();
        assert!(told > 0 && kept.len() >= CAPACITY, "{}", kept.len());
        assert_eq!(kept.len() + told, put, "{notes:?}");
    }

    #[test]
    fn a_closed_reader_costs_lines_and_nothing_else() {
        let (reader, sink) = pipe().unwrap();
        drop(reader);
        let queue = Queue::start(sink).unwrap();
        queue.put(b"one\n");
        queue.put(b"two\n");
        let start = std::time::Instant::now();
        while queue.lost.load(Ordering::Relaxed) < 2 {
            assert!(start.elapsed() < Duration::from_secs(60), "never counted");
            // Waits for the writer, but not for ever.
            queue.flush();
        }
        assert_eq!(queue.lost.load(Ordering::Relaxed), 2);
    }

    /// Fails until it is allowed to work, as a disk that is full for a while.
    struct Failing {
        fails: usize,
        to: io::PipeWriter,
    }

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.fails > 0 {
                self.fails -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.to.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.to.flush()
        }
    }

    #[test]
    fn lines_that_a_sink_refuses_are_reported_when_it_works_again() {
        let (reader, to) = pipe().unwrap();
        // The first line, and the note before the second.
        let queue = Queue::start(Failing { fails: 2, to }).unwrap();
        for line in [b"one\n", b"two\n", b"six\n"] {
            queue.put(line);
        }
        drop(queue);
        let lines: Vec<_> = BufReader::new(reader).lines().map(Result::unwrap).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with("\"lost\":2}"), "{lines:?}");
        assert_eq!(lines[1], "six");
    }
}
