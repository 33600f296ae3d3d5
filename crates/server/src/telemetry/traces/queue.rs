//! Queue of sampled calls for the thread that exports them. Adding a call never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::Notify;

use super::record::Record;

/// Size limit of the queue in bytes, for all cores: about 5,000 calls.
pub(super) const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;
/// Size of a message to the collector in bytes. Collectors accept 4 MiB by default.
const BATCH_BYTES: usize = 1024 * 1024;
/// Limit of spans in a message, as in other exporters.
const BATCH_SPANS: usize = 512;

/// Queue of sampled calls.
#[derive(Debug)]
pub(crate) struct Queue {
    records: Sender<Record>,
    /// Bytes in the queue.
    bytes: AtomicUsize,
    /// Calls in the queue.
    calls: AtomicUsize,
    /// Notified when the queue has enough for a message.
    enough: Notify,
    pub(super) exported: AtomicU64,
    pub(super) dropped: AtomicU64,
}

impl Queue {
    /// Creates a queue, and its receiver.
    pub(super) fn new() -> (Arc<Self>, Receiver<Record>) {
        let (records, receiver) = channel();
        let queue = Self {
            records,
            bytes: AtomicUsize::default(),
            calls: AtomicUsize::default(),
            enough: Notify::default(),
            exported: AtomicU64::default(),
            dropped: AtomicU64::default(),
        };
        (Arc::new(queue), receiver)
    }

    /// Adds a call. If the queue is full, the call is dropped and counted.
    pub(super) fn add(&self, record: Record) {
        let bytes = record.bytes();
        let waiting = self.bytes.fetch_add(bytes, Relaxed);
        if waiting + bytes > MAX_QUEUED_BYTES {
            self.bytes.fetch_sub(bytes, Relaxed);
            self.dropped.fetch_add(record.spans.len() as u64, Relaxed);
            return;
        }
        let calls = self.calls.fetch_add(1, Relaxed) + 1;
        // The receiver ends with the process.
        let _ = self.records.send(record);
        if calls == BATCH_SPANS / 2 || (waiting < BATCH_BYTES && waiting + bytes >= BATCH_BYTES) {
            self.enough.notify_one();
        }
    }

    /// Takes the calls for one message. Empty if the queue is empty.
    pub(super) fn next_batch(&self, records: &Receiver<Record>) -> Vec<Record> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        let mut spans = 0;
        while bytes < BATCH_BYTES && spans < BATCH_SPANS {
            let Ok(record) = records.try_recv() else {
                break;
            };
            bytes += record.bytes();
            spans += record.spans.len();
            taken.push(record);
        }
        self.bytes.fetch_sub(bytes, Relaxed);
        self.calls.fetch_sub(taken.len(), Relaxed);
        taken
    }

    /// Waits until the queue has enough for a message.
    pub(super) async fn enough(&self) {
        self.enough.notified().await;
    }

    /// Number of spans that were exported, and of spans that were dropped.
    pub(super) fn counts(&self) -> [u64; 2] {
        [self.exported.load(Relaxed), self.dropped.load(Relaxed)]
    }
}
