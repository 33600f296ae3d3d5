//! Export of metrics to StatsD or DogStatsD, on its own thread: no core and no health check waits
//! for the network, a DNS lookup or a long flush.
//!
//! There is no queue. A flush writes the difference of two snapshots in batches. Samples that were
//! not sent are part of the next difference. Only a batch whose write failed half way is lost,
//! since nothing may be sent twice.

mod events;
mod line_writer;
mod peer;

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::metrics::dotted::{MetricSample, SampleOrder};
use super::metrics::{Metrics, Snapshot};
use crate::settings::{Dialect, Statsd, Transport};
use crate::supervise::runtime::ThreadRuntime;
use crate::supervise::{Supervisor, failpoint};
use events::Events;
use line_writer::LineWriter;
use peer::StatsdPeer;

/// Name of the thread.
const THREAD_NAME: &str = "statsd";
/// Size limit of a datagram in bytes: an Ethernet frame without headers of IPv6 and of tunnels,
/// which most networks do not split.
const MAX_DATAGRAM_BYTES: usize = 1_432;
/// Size of a write to a TCP connection in bytes.
const WRITE_BYTES: usize = 16 * 1024;
/// Minimum timeout of a flush, if the interval is shorter. The rest is left for the next flush.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the last flush after the server stops.
const LAST_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of datagrams in a burst, and the pause after it. A larger burst could overrun the
/// receiver's buffer.
const BURST_DATAGRAMS: usize = 64;
const BURST_PAUSE: Duration = Duration::from_millis(1);
/// Time for which lines are written without a check of the timeout. Mogrifiers may take
/// milliseconds for a name.
const TIMEOUT_CHECK_INTERVAL: Duration = Duration::from_millis(10);

const SLOW_FLUSH: &str =
    "making the lines takes too long: there are many names, or many rules that change names";

/// Starts the thread, which sends metrics until the server stops.
///
/// # Errors
/// The system refuses to start a thread.
pub(crate) fn start(
    settings: &Statsd,
    metrics: &Arc<Metrics>,
    supervisor: &Supervisor,
) -> io::Result<()> {
    let mut sender = Sender::new(settings, metrics.clone(), supervisor.clone());
    supervisor.restarting_thread(THREAD_NAME, move || match ThreadRuntime::new() {
        Ok(runtime) => runtime.block_on(failpoint::with(THREAD_NAME.into(), sender.run())),
        // The supervisor notices the end of the thread.
        Err(error) => warn!(%error, "the thread that sends metrics cannot wait"),
    })
}

/// State of the thread, which survives a restart after a panic.
struct Sender {
    metrics: Arc<Metrics>,
    supervisor: Supervisor,
    interval: Duration,
    writer: LineWriter,
    peer: StatsdPeer,
    /// Values that were sent so far.
    last_sent: Snapshot,
    events: Option<Events>,
    /// Whether it is logged that metrics cannot be sent.
    failing: bool,
    /// Whether it is logged that a line is too long.
    too_long: bool,
}

/// Completes at the timeout of a flush.
type FlushTimeout<'o> = Pin<&'o mut (dyn Future<Output = ()> + 'o)>;

/// Lines that are sent in one write.
#[derive(Default)]
struct LineBatch {
    text: Vec<u8>,
    lines: u64,
}

impl LineBatch {
    fn push(&mut self, line: &[u8]) {
        self.text.extend_from_slice(line);
        self.lines += 1;
    }
}

/// State of a flush in progress.
#[derive(Default)]
struct FlushProgress<'s> {
    batch: LineBatch,
    /// Number of batches that were sent.
    batches: usize,
    /// Lines of one sample.
    lines: Vec<u8>,
    /// The last sample whose lines were all sent or are in the batch.
    last: Option<SampleOrder<'s>>,
    /// The last sample of which a part was sent.
    sent_until: Option<SampleOrder<'s>>,
}

impl Sender {
    fn new(settings: &Statsd, metrics: Arc<Metrics>, supervisor: Supervisor) -> Self {
        let events = match settings.dialect {
            Dialect::Statsd => None,
            Dialect::Dog(_) => Some(Events::default()),
        };
        Self {
            writer: LineWriter::new(&settings.dialect, metrics.tags()),
            peer: StatsdPeer::new(
                settings.host.clone(),
                settings.port,
                settings.transport,
                peer::resolve_host,
            ),
            interval: settings.interval,
            last_sent: Snapshot::default(),
            failing: false,
            too_long: false,
            metrics,
            supervisor,
            events,
        }
    }

    async fn run(&mut self) {
        let stop = self.supervisor.stop.clone();
        // Time at which the stop was noticed during a flush.
        let stop_noticed = Cell::new(None);
        let mut next = Instant::now() + self.interval;
        while !stop.is_cancelled() {
            tokio::select! {
                () = sleep_until(next) => {}
                () = stop.cancelled() => break,
            }
            let end = Instant::now() + self.interval.max(FLUSH_TIMEOUT);
            let flush_timeout = async {
                tokio::select! {
                    () = sleep_until(end) => {}
                    () = async { stop.cancelled().await; stop_noticed.set(Some(Instant::now())); sleep(LAST_FLUSH_TIMEOUT).await } => {}
                }
            };
            self.flush(std::pin::pin!(flush_timeout)).await;
            next = (next + self.interval).max(Instant::now());
        }
        let end = stop_noticed.get().unwrap_or_else(Instant::now) + LAST_FLUSH_TIMEOUT;
        if Instant::now() < end {
            self.flush(std::pin::pin!(sleep_until(end))).await;
        }
    }

    /// Sends the changes since the previous flush, as many as possible.
    async fn flush(&mut self, mut flush_timeout: FlushTimeout<'_>) {
        let ready = tokio::select! {
            ready = self.peer.ready() => ready,
            () = flush_timeout.as_mut() => Err(io::ErrorKind::TimedOut.into()),
        };
        // The snapshot is taken even without a connection: it takes the dynamic series from the
        // cores, which have little room for them.
        let now = self.metrics.snapshot();
        if let Err(error) = ready {
            return self.failed(&error);
        }
        let mut earlier = std::mem::take(&mut self.last_sent);
        self.last_sent = match self.send(&now, &earlier, flush_timeout).await {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    info!(peer = %self.peer, "metrics are sent again");
                }
                now
            }
            Err((last, error)) => {
                self.failed(&error);
                if let Some(last) = last {
                    earlier.copy_until(&now, last);
                }
                earlier
            }
        };
    }

    /// Sends all samples of a flush. A failure has the position of the last sample that the peer
    /// may have received.
    async fn send<'s>(
        &mut self,
        now: &'s Snapshot,
        earlier: &Snapshot,
        mut flush_timeout: FlushTimeout<'_>,
    ) -> Result<(), (Option<SampleOrder<'s>>, io::Error)> {
        let mut progress = FlushProgress::default();
        let mut last_check = Instant::now();
        for sample in now.since(earlier) {
            if last_check.elapsed() >= TIMEOUT_CHECK_INTERVAL {
                tokio::select! {
                    biased;
                    () = flush_timeout.as_mut() => {
                        return Err((progress.sent_until, io::Error::new(io::ErrorKind::TimedOut, SLOW_FLUSH)));
                    }
                    // The runtime advances its timers only at an await point.
                    () = yield_now() => {}
                }
                last_check = Instant::now();
            }
            self.send_sample(&sample, &mut progress, flush_timeout.as_mut())
                .await
                .map_err(|error| (progress.last, error))?;
            progress.last = Some(sample.order);
        }
        let mut batch = progress.batch;
        if let Some(events) = &mut self.events {
            events.write(
                &self.metrics.loads,
                self.metrics.store_availability(),
                self.writer.tags(),
                // An event is short, and fits into the last batch.
                |event| batch.push(event),
            );
        }
        self.send_batch(&mut batch, flush_timeout)
            .await
            .map_err(|error| (Some(SampleOrder::Server), error))
    }

    /// Adds the lines of a sample to the batch, which is sent whenever it is full.
    async fn send_sample<'s>(
        &mut self,
        sample: &MetricSample<'s>,
        progress: &mut FlushProgress<'s>,
        mut flush_timeout: FlushTimeout<'_>,
    ) -> io::Result<()> {
        let is_udp = self.peer.transport() == Transport::Udp;
        let max_bytes = if is_udp {
            MAX_DATAGRAM_BYTES
        } else {
            WRITE_BYTES
        };
        progress.lines.clear();
        self.writer.write(sample, &mut progress.lines);
        let mut begun = false;
        for line in progress.lines.split_inclusive(|byte| *byte == b'\n') {
            if is_udp && line.len() > MAX_DATAGRAM_BYTES {
                self.too_long(sample);
                continue;
            }
            if progress.batch.text.len() + line.len() > max_bytes {
                progress.batches += 1;
                if is_udp && progress.batches.is_multiple_of(BURST_DATAGRAMS) {
                    sleep(BURST_PAUSE).await;
                }
                self.send_batch(&mut progress.batch, flush_timeout.as_mut())
                    .await?;
                progress.sent_until = if begun {
                    Some(sample.order)
                } else {
                    progress.last
                };
            }
            begun = true;
            progress.batch.push(line);
        }
        Ok(())
    }

    /// Sends a batch and empties it. If `flush_timeout` completes first, the batch counts as lost.
    async fn send_batch(
        &mut self,
        batch: &mut LineBatch,
        flush_timeout: FlushTimeout<'_>,
    ) -> io::Result<()> {
        let LineBatch { text, lines } = std::mem::take(batch);
        if lines == 0 {
            return Ok(());
        }
        let sent = tokio::select! {
            sent = self.peer.send(&text) => sent,
            () = flush_timeout => Err(io::Error::new(io::ErrorKind::TimedOut, "the receiver does not read")),
        };
        self.metrics.statsd_counts.count(lines, &sent);
        if sent.is_err() {
            self.peer.close();
        }
        sent
    }

    fn failed(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            warn!(peer = %self.peer, %error, "metrics cannot be sent; they are counted on, and sent when that is possible again");
        }
    }

    fn too_long(&mut self, sample: &MetricSample<'_>) {
        self.metrics.statsd_counts.too_long();
        if !std::mem::replace(&mut self.too_long, true) {
            let start: String = sample.name.to_string().chars().take(80).collect();
            warn!(
                name = start,
                "a metric whose line does not fit into a datagram is not sent; further ones are only counted"
            );
        }
    }
}
