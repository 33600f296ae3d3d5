//! Exporter of traces: the thread that encodes and sends sampled calls.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::collector::{Collector, ExportError};
use super::otlp::{self, Resource};
use super::queue::{MAX_QUEUED_BYTES, Queue};
use super::record::Record;
use crate::settings;

/// First back-off before a message is sent again. It doubles.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
/// Longest back-off.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Time after which a message that cannot be sent is dropped.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that the end of the process waits for the collector.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum interval between two warnings about lost traces.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Sends the records of a queue.
pub(super) struct Exporter {
    queue: Arc<Queue>,
    records: Receiver<Record>,
    collector: Collector,
    resource: Resource,
    /// Longest time that a call waits to be sent in a batch.
    delay: Duration,
    /// Encoded message that is being sent, with the number of its spans.
    pending: Option<(Vec<u8>, u64)>,
    failing: bool,
    last_warning: Option<Instant>,
    dropped: u64,
}

impl Exporter {
    pub(super) fn new(
        settings: &settings::TraceSettings,
        queue: Arc<Queue>,
        records: Receiver<Record>,
    ) -> Self {
        Self {
            queue,
            records,
            collector: Collector::new(settings.collector.clone()),
            resource: otlp::resource(&settings.service),
            delay: settings.delay,
            pending: None,
            failing: false,
            last_warning: None,
            dropped: 0,
        }
    }

    /// Sends until `stop`, and then the rest within a time limit.
    pub(super) async fn run(&mut self, stop: &CancellationToken) {
        let too_late = async {
            stop.cancelled().await;
            sleep(STOP_TIMEOUT).await;
        };
        tokio::select! {
            () = self.send_until(stop) => {}
            () = too_late => {}
        }
        // The process ends without the rest; the log reports the number of lost spans.
        if let Some((_, spans)) = self.pending.take() {
            self.count_dropped(spans);
        }
        let rest: Vec<_> = self.records.try_iter().collect();
        self.count_dropped(spans_of(&rest));
        // This warning must not be throttled: there is no later one.
        self.last_warning = None;
        self.warn_dropped("the server has ended before the collector took all of them");
    }

    /// Sends until `stop`, and then the rest of the queue. Waits for a message in flight, which the
    /// collector may already have.
    async fn send_until(&mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = sleep(self.delay) => {}
                () = self.queue.enough() => {}
                () = stop.cancelled() => {}
            }
            while !stop.is_cancelled() && self.prepare_message() {
                self.deliver(stop).await;
            }
            self.warn_dropped("more of them waited than may wait");
        }
        while self.prepare_message() {
            match self.attempt().await {
                Ok(()) => {}
                Err(refused) if refused.is_retryable => break,
                Err(refused) => self.drop_message(&refused.reason),
            }
        }
    }

    /// Encodes the next message, unless one is pending. Returns false if the queue is empty.
    fn prepare_message(&mut self) -> bool {
        if self.pending.is_none() {
            let records = self.queue.next_batch(&self.records);
            if records.is_empty() {
                return false;
            }
            let spans = spans_of(&records);
            let message = otlp::request(&self.resource, records);
            self.pending = Some((self.collector.encode(&message), spans));
        }
        true
    }

    /// Sends the message until the collector accepts or refuses it, the time limit is reached, or
    /// `stop`.
    async fn deliver(&mut self, stop: &CancellationToken) {
        let begun = Instant::now();
        let mut pause = MIN_BACKOFF;
        loop {
            let Err(refused) = self.attempt().await else {
                return;
            };
            if !refused.is_retryable || begun.elapsed() + pause > RETRY_TIMEOUT {
                return self.drop_message(&refused.reason);
            }
            if !std::mem::replace(&mut self.failing, true) {
                warn!(
                    reason = refused.reason,
                    "the collector of traces does not take them; they are sent again"
                );
            }
            tokio::select! {
                () = sleep(pause.mul_f64(0.5 + 0.5 * fastrand::f64())) => {}
                () = stop.cancelled() => return,
            }
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    /// Sends the message once.
    ///
    /// # Cancellation
    /// The collector may have the message, which is sent again in that case.
    async fn attempt(&mut self) -> Result<(), ExportError> {
        let Some((message, spans)) = &self.pending else {
            return Ok(());
        };
        let taken = self.collector.send(message).await?;
        let spans = *spans;
        self.pending = None;
        self.queue
            .exported
            .fetch_add(spans.saturating_sub(taken.rejected), Relaxed);
        if taken.rejected > 0 {
            self.count_dropped(taken.rejected.min(spans));
            self.warn_dropped(&taken.reason);
        }
        if std::mem::take(&mut self.failing) {
            info!("the collector takes traces again");
        }
        Ok(())
    }

    fn drop_message(&mut self, reason: &str) {
        let spans = self.pending.take().map_or(0, |(_, spans)| spans);
        self.count_dropped(spans);
        self.warn_dropped(reason);
    }

    fn count_dropped(&self, spans: u64) {
        self.queue.dropped.fetch_add(spans, Relaxed);
    }

    /// Logs the number of spans that were dropped since the last warning, at most once per
    /// interval.
    fn warn_dropped(&mut self, reason: &str) {
        let [_, dropped] = self.queue.counts();
        let spans = dropped - self.dropped;
        if spans == 0
            || self
                .last_warning
                .is_some_and(|last| last.elapsed() < WARNING_INTERVAL)
        {
            return;
        }
        self.last_warning = Some(Instant::now());
        self.dropped = dropped;
        warn!(
            spans,
            reason,
            most_bytes_waiting = MAX_QUEUED_BYTES,
            "spans of traces were dropped"
        );
    }
}

fn spans_of(records: &[Record]) -> u64 {
    records.iter().map(|record| record.spans.len() as u64).sum()
}
