//! Queue of log lines for the thread that writes them to standard error. Loggers never wait: if the
//! queue is full, lines are dropped and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

/// Size limit of the queue in bytes: thousands of lines.
const WAITING: usize = 4 * 1024 * 1024;
/// Overhead of a queued line in bytes.
const LINE: usize = 64;
/// Time that the end of the process waits for the last lines to be written.
const LAST: Duration = Duration::from_secs(1);

/// Sender of lines for the thread that writes them. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    queue: Sender<Entry>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes in the queue.
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Request to confirm that all lines before it were written.
    Mark(SyncSender<()>),
}

impl Lines {
    /// Starts the thread that writes lines to `out`.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, entries) = channel();
        let state = Arc::new(State::default());
        let theirs = state.clone();
        Builder::new()
            .name("log".to_owned())
            .spawn(move || pass_on(&entries, &theirs, out))?;
        Ok(Self { queue, state })
    }

    /// Waits until the lines so far are written, for at most a second.
    pub(super) fn flush(&self) {
        let (done, written) = sync_channel(1);
        // The thread ends with the process.
        let _ = self.queue.send(Entry::Mark(done));
        let _ = written.recv_timeout(LAST);
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let size = line.len() + LINE;
        if self.state.waiting.fetch_add(size, Relaxed) + size > WAITING {
            self.state.waiting.fetch_sub(size, Relaxed);
            self.state.dropped.fetch_add(1, Relaxed);
        } else {
            let _ = self.queue.send(Entry::Line(line.to_vec()));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn pass_on(entries: &Receiver<Entry>, state: &State, mut out: impl Write) {
    for entry in entries {
        match entry {
            Entry::Line(line) => {
                // The server runs on even if standard error is closed.
                let _ = out.write_all(&line);
                state.waiting.fetch_sub(line.len() + LINE, Relaxed);
                let lines = state.dropped.swap(0, Relaxed);
                if lines > 0 {
                    warn!(
                        lines,
                        "lines of the log were dropped, because the others were not read in time"
                    );
                }
            }
            Entry::Mark(done) => drop(done.send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A reader that reads nothing until it is told to.
    #[derive(Clone, Default)]
    struct Out(Arc<Reader>);

    #[derive(Default)]
    struct Reader {
        /// Whether it reads, and what it has read.
        state: Mutex<(bool, Vec<u8>)>,
        told: Condvar,
    }

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self
                .0
                .told
                .wait_while(self.0.state.lock().unwrap(), |(reads, _)| !*reads)
                .unwrap();
            state.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_reader_and_lines_are_bounded() {
        let out = Out::default();
        let mut lines = Lines::start(out.clone()).unwrap();
        let line = [b'x'; 1000];
        let all = 2 * WAITING / line.len();
        for _ in 0..all {
            lines.write_all(&line).unwrap();
        }
        let dropped = lines.state.dropped.load(Relaxed) as usize;
        assert!(
            lines.state.waiting.load(Relaxed) <= WAITING && dropped > all / 3 && dropped < all,
            "{dropped} of {all}"
        );
        out.0.state.lock().unwrap().0 = true;
        out.0.told.notify_all();
        lines.flush();
        assert_eq!(
            out.0.state.lock().unwrap().1.len(),
            (all - dropped) * line.len()
        );
        assert_eq!(lines.state.waiting.load(Relaxed), 0);
    }
}
