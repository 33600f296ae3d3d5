//! Export of metrics to StatsD or DogStatsD, on its own thread: no core and no health check waits
//! for the network, a DNS lookup or a long flush.
//!
//! There is no queue. A flush writes the difference of two snapshots in batches. Samples that were
//! not sent are part of the next difference. Only a batch whose write failed half way is lost,
//! since nothing may be sent twice.

mod events;
mod line;
mod peer;

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::metrics::dotted::{Place, Sample};
use super::metrics::{Metrics, Snapshot};
use crate::net::runtime::ThreadRuntime;
use crate::settings::{Dialect, Statsd, Transport};
use crate::supervise::{Supervisor, failpoint};
use events::Events;
use line::Writer;
use peer::Peer;

/// Name of the thread.
const PART: &str = "statsd";
/// Size limit of a datagram in bytes: an Ethernet frame without headers of IPv6 and of tunnels,
/// which most networks do not split.
const DATAGRAM: usize = 1_432;
/// Size of a write to a TCP connection in bytes.
const PIECE: usize = 16 * 1024;
/// Minimum timeout of a flush, if the interval is shorter. The rest is left for the next flush.
const FLUSH: Duration = Duration::from_secs(10);
/// Time for the last flush after the server stops.
const LAST: Duration = Duration::from_secs(1);
/// Number of datagrams in a burst, and the pause after it. A larger burst could overrun the
/// receiver's buffer.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);
/// Time for which lines are written without a check of the timeout. Mogrifiers may take
/// milliseconds for a name.
const TURN: Duration = Duration::from_millis(10);

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
    supervisor.restarting_thread(PART, move || match ThreadRuntime::new() {
        Ok(runtime) => runtime.block_on(failpoint::with(PART.into(), sender.run())),
        // The supervisor notices the end of the thread.
        Err(error) => warn!(%error, "the thread that sends metrics cannot wait"),
    })
}

/// State of the thread, which survives a restart after a panic.
struct Sender {
    metrics: Arc<Metrics>,
    supervisor: Supervisor,
    interval: Duration,
    writer: Writer,
    peer: Peer,
    /// Values that were sent so far.
    told: Snapshot,
    events: Option<Events>,
    said: Said,
}

/// Problems that are already logged.
#[derive(Default)]
struct Said {
    failing: bool,
    too_long: bool,
}

/// Completes at the timeout of a flush.
type Over<'o> = Pin<&'o mut (dyn Future<Output = ()> + 'o)>;

/// Lines that are sent in one write.
#[derive(Default)]
struct Piece {
    text: Vec<u8>,
    lines: u64,
}

impl Piece {
    fn push(&mut self, line: &[u8]) {
        self.text.extend_from_slice(line);
        self.lines += 1;
    }
}

impl Sender {
    fn new(settings: &Statsd, metrics: Arc<Metrics>, supervisor: Supervisor) -> Self {
        let events = match settings.dialect {
            Dialect::Statsd => None,
            Dialect::Dog(_) => Some(Events::default()),
        };
        Self {
            writer: Writer::new(&settings.dialect, metrics.tags()),
            peer: Peer::new(
                settings.host.clone(),
                settings.port,
                settings.transport,
                peer::look_up,
            ),
            interval: settings.interval,
            told: Snapshot::default(),
            said: Said::default(),
            metrics,
            supervisor,
            events,
        }
    }

    async fn run(&mut self) {
        let stop = self.supervisor.stop.clone();
        // Time at which the stop was noticed during a flush.
        let asked = Cell::new(None);
        let mut next = Instant::now() + self.interval;
        while !stop.is_cancelled() {
            tokio::select! {
                () = sleep_until(next) => {}
                () = stop.cancelled() => break,
            }
            let end = Instant::now() + self.interval.max(FLUSH);
            let over = async {
                tokio::select! {
                    () = sleep_until(end) => {}
                    () = async { stop.cancelled().await; asked.set(Some(Instant::now())); sleep(LAST).await } => {}
                }
            };
            self.flush(std::pin::pin!(over)).await;
            next = (next + self.interval).max(Instant::now());
        }
        let end = asked.get().unwrap_or_else(Instant::now) + LAST;
        if Instant::now() < end {
            self.flush(std::pin::pin!(sleep_until(end))).await;
        }
    }

    /// Sends the changes since the previous flush, as many as possible.
    async fn flush(&mut self, mut over: Over<'_>) {
        let ready = tokio::select! {
            ready = self.peer.ready() => ready,
            () = over.as_mut() => Err(io::ErrorKind::TimedOut.into()),
        };
        // The snapshot is taken even without a connection: it takes the dynamic series from the
        // cores, which have little room for them.
        let now = self.metrics.snapshot();
        if let Err(error) = ready {
            return self.failed(&error);
        }
        let mut told = std::mem::take(&mut self.told);
        self.told = match self.send(&now, &told, over).await {
            Ok(()) => {
                if std::mem::take(&mut self.said.failing) {
                    info!(peer = %self.peer, "metrics are sent again");
                }
                now
            }
            Err((last, error)) => {
                self.failed(&error);
                if let Some(last) = last {
                    told.take_until(&now, last);
                }
                told
            }
        };
    }

    /// Sends all samples of a flush. A failure has the position of the last sample that the peer
    /// may have received.
    async fn send<'s>(
        &mut self,
        now: &'s Snapshot,
        told: &Snapshot,
        mut over: Over<'_>,
    ) -> Result<(), (Option<Place<'s>>, io::Error)> {
        let most = match self.peer.transport() {
            Transport::Tcp => PIECE,
            Transport::Udp => DATAGRAM,
        };
        let mut piece = Piece::default();
        let mut last = None;
        let mut pieces = 0;
        // Position of the last sample of which a part was sent.
        let mut handed = None;
        let mut lines = Vec::new();
        let mut turn = Instant::now();
        for sample in now.since(told) {
            if turn.elapsed() >= TURN {
                tokio::select! {
                    biased;
                    () = over.as_mut() => return Err((handed, slow())),
                    // The runtime advances its timers only at an await point.
                    () = yield_now() => {}
                }
                turn = Instant::now();
            }
            self.writer.write(&sample, &mut lines);
            let mut begun = false;
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                if self.peer.transport() == Transport::Udp && line.len() > DATAGRAM {
                    self.too_long(&sample);
                    continue;
                }
                if piece.text.len() + line.len() > most {
                    pieces += 1;
                    self.pause(pieces).await;
                    self.hand_over(&mut piece, over.as_mut())
                        .await
                        .map_err(|error| (last, error))?;
                    handed = if begun { Some(sample.place) } else { last };
                }
                begun = true;
                piece.push(line);
            }
            lines.clear();
            last = Some(sample.place);
        }
        if let Some(events) = &mut self.events {
            events.write(
                &self.metrics.loads,
                self.metrics.counting(),
                self.writer.tags(),
                // An event is short, and fits into the last batch.
                |event| piece.push(event),
            );
        }
        self.hand_over(&mut piece, over)
            .await
            .map_err(|error| (Some(Place::Own), error))
    }

    async fn pause(&self, pieces: usize) {
        if self.peer.transport() == Transport::Udp && pieces.is_multiple_of(BURST) {
            sleep(PAUSE).await;
        }
    }

    /// Sends a batch and empties it. If `flush_timeout` completes first, the batch counts as lost.
    async fn hand_over(&mut self, piece: &mut Piece, over: Over<'_>) -> io::Result<()> {
        let Piece { text, lines } = std::mem::take(piece);
        if lines == 0 {
            return Ok(());
        }
        let sent = tokio::select! {
            sent = self.peer.send(&text) => sent,
            () = over => Err(io::Error::new(io::ErrorKind::TimedOut, "the receiver does not read")),
        };
        self.metrics.sent.count(lines, &sent);
        if sent.is_err() {
            self.peer.close();
        }
        sent
    }

    fn failed(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.said.failing, true) {
            warn!(peer = %self.peer, %error, "metrics cannot be sent; they are counted on, and sent when that is possible again");
        }
    }

    fn too_long(&mut self, sample: &Sample<'_>) {
        self.metrics.sent.too_long();
        if !std::mem::replace(&mut self.said.too_long, true) {
            let start: String = sample.name.to_string().chars().take(80).collect();
            warn!(
                name = start,
                "a metric whose line does not fit into a datagram is not sent; further ones are only counted"
            );
        }
    }
}

fn slow() -> io::Error {
    let text =
        "making the lines takes too long: there are many names, or many rules that change names";
    io::Error::new(io::ErrorKind::TimedOut, text)
}
