//! The highest resident memory of a process over some time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::machine::Process;

/// Often enough to see what is held for a moment, and cheap.
const PAUSE: Duration = Duration::from_millis(20);

/// A thread that looks until it is told to stop.
pub(super) struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Watch {
    pub(super) fn start(process: Process) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let look = move || {
            let mut highest = 0;
            while !told.load(Relaxed) {
                highest = highest.max(process.resident_bytes().unwrap_or(0));
                std::thread::park_timeout(PAUSE);
            }
            highest
        };
        Self {
            over,
            thread: std::thread::spawn(look),
        }
    }

    /// The highest that was seen, in bytes.
    pub(super) fn stop(self) -> anyhow::Result<u64> {
        self.over.store(true, Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that watches memory panicked"))
    }
}
