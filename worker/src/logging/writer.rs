//! The queue between the threads that log and the one that writes.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait for a slow reader.
const CAPACITY: usize = 4096;
/// How long the end of the process waits for a slow reader.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

type Sink = Box<dyn Write + Send>;

enum Item {
    Line(Vec<u8>),
    AlsoTo(Sink),
    Flush(SyncSender<()>),
}

/// Where lines are put. Cheap to clone.
#[derive(Clone)]
pub(super) struct LineQueue {
    items: SyncSender<Item>,
    lost: Arc<AtomicU64>,
    /// The second sink is set at most once.
    second: Arc<OnceLock<()>>,
}

impl LineQueue {
    /// Starts the writing thread; `None` when there can be none.
    pub(super) fn start(sink: Sink) -> Option<Self> {
        let (items, queue) = sync_channel(CAPACITY);
        let lost = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&lost);
        std::thread::Builder::new()
            .name("baton-log".to_owned())
            .spawn(move || write_all(&queue, &counter, sink))
            .ok()?;
        Some(Self { items, lost, second: Arc::default() })
    }

    /// Every later line goes to this sink as well.
    pub(super) fn also_to(&self, sink: Sink) {
        if self.second.set(()).is_ok() && self.items.send(Item::AlsoTo(sink)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what is queued has been written, but not for ever.
    pub(super) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.items.try_send(Item::Flush(done)).is_ok() {
            // Either outcome ends the wait; there is nobody left to tell.
            let _outcome = written.recv_timeout(FLUSH_LIMIT);
        }
    }
}

fn write_all(queue: &Receiver<Item>, lost: &AtomicU64, first: Sink) {
    let mut sinks = vec![first];
    while let Ok(item) = queue.recv() {
        match item {
            Item::Line(line) => {
                let missing = lost.swap(0, Ordering::Relaxed);
                if missing > 0 {
                    let note = format!(
                        "{{\"level\":\"WARN\",\"message\":\"log lines were lost\",\"lost\":{missing}}}\n"
                    );
                    put(&mut sinks, note.as_bytes());
                }
                put(&mut sinks, &line);
            }
            Item::AlsoTo(sink) => sinks.push(sink),
            Item::Flush(done) => {
                for sink in &mut sinks {
                    let _unwritable = sink.flush();
                }
                let _gone = done.send(());
            }
        }
    }
}

/// A sink that fails (closed pipe, full disk) keeps nobody from serving: there is no better
/// place to report it than the sink itself.
fn put(sinks: &mut [Sink], line: &[u8]) {
    for sink in sinks {
        let _unwritable = sink.write_all(line).and_then(|()| sink.flush());
    }
}

impl Write for LineQueue {
    // The formatter hands over one whole line a call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.items.try_send(Item::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Memory {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// Holds the writing thread until the test lets it go.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _released = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_reach_every_sink_in_order() {
        let (first, second) = (Memory::default(), Memory::default());
        let mut queue = LineQueue::start(Box::new(first.clone())).unwrap();
        queue.write_all(b"one\n").unwrap();
        queue.also_to(Box::new(second.clone()));
        queue.write_all(b"two\n").unwrap();
        queue.flush();
        assert_eq!(first.text(), "one\ntwo\n");
        assert_eq!(second.text(), "two\n");
    }

    #[test]
    fn a_stuck_reader_costs_lines_and_not_time() {
        let (release, held) = std::sync::mpsc::channel();
        let mut queue = LineQueue::start(Box::new(Stuck(held))).unwrap();
        for _ in 0..CAPACITY * 2 {
            queue.write_all(b"line\n").unwrap();
        }
        assert!(queue.lost.load(Ordering::Relaxed) >= CAPACITY as u64 - 1);
        drop(release);
    }
}
