//! The debug pages, and the page of metrics.
//!
//! A long page is written on a blocking thread, one at a time. A request that arrives while a page
//! is written gets the next one. Few pages are kept for slow readers; above that limit, requests
//! get the last page.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, any};
use tidegate_ratelimit::Limiter;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use super::profiles;

/// Content type of a page of metrics.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";
/// Limit of texts of one page in memory: the last one, and older ones that are still being sent.
const KEPT: usize = 3;
/// Size in bytes below which a text needs no permit: such texts are bounded by the number of
/// connections.
const SHORT: usize = 64 * 1024;

/// Pages of this module, sorted as in the index.
const PAGES: &str = "\
/metrics: print out metrics for Prometheus
/rlconfig: print out the currently loaded configuration for debugging
/stats: print out stats
";

/// Router of the debug pages. Every other path shows the index. A page that takes long ends when
/// `drain` is cancelled.
pub(crate) fn router(limiter: Limiter, metrics: Arc<Metrics>, drain: CancellationToken) -> Router {
    let dump = move || {
        limiter
            .configuration()
            .map(|configuration| configuration.dump())
            .unwrap_or_default()
    };
    let stats = metrics.clone();
    let router = Router::new()
        .route("/rlconfig", page(TEXT_TYPE, dump))
        .route("/stats", page(TEXT_TYPE, move || stats.stats()))
        .route("/metrics", page(METRICS_TYPE, move || metrics.prometheus()))
        .merge(profiles::router(drain))
        .fallback(any(async || [profiles::INDEX, PAGES].concat()));
    #[cfg(debug_assertions)]
    let router = router
        .route("/panic/{part}", any(panic))
        .route("/clock/{seconds}", any(shift_clock));
    router
}

/// Router with the page of metrics alone, for the port of Prometheus.
pub(crate) fn prometheus(metrics: Arc<Metrics>, path: &str) -> Router {
    Router::new().route(path, page(METRICS_TYPE, move || metrics.prometheus()))
}

/// Makes a part of the server panic, for tests.
#[cfg(debug_assertions)]
async fn panic(axum::extract::Path(part): axum::extract::Path<String>) {
    crate::supervise::failpoint::pull(part);
}

/// Shifts the clock of this process, for tests.
#[cfg(debug_assertions)]
async fn shift_clock(axum::extract::Path(seconds): axum::extract::Path<i64>) {
    crate::net::clock::shift(seconds);
}

/// Handler of a page that `write` creates on request.
fn page<W>(kind: &'static str, write: W) -> MethodRouter
where
    W: Fn() -> String + Clone + Send + Sync + 'static,
{
    let last = Last::default();
    any(async move || match last.or_new(write).await {
        Some(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    })
}

/// The latest text of a page, with the time when its writing began.
#[derive(Debug, Clone)]
struct Last {
    text: Arc<Mutex<Option<(Instant, Bytes)>>>,
    places: Arc<Semaphore>,
}

/// A text with its permit, which is kept until all readers have received it.
struct Kept {
    text: String,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Default for Last {
    fn default() -> Self {
        Self {
            text: Arc::default(),
            places: Arc::new(Semaphore::new(KEPT)),
        }
    }
}

impl Last {
    /// Returns a text whose writing begins after this call, or the last one if too many are kept.
    /// None if `write` panicked.
    async fn or_new(&self, write: impl Fn() -> String + Send + 'static) -> Option<Bytes> {
        let asked = Instant::now();
        let mut last = self.text.clone().lock_owned().await;
        let place = self.places.clone().try_acquire_owned();
        if let Some((begun, text)) = &*last
            && (*begun >= asked || place.is_err())
        {
            return Some(text.clone());
        }
        let place = place.ok()?;
        // The writer keeps the lock even if its reader is gone, so there is never a second writer.
        let writing = spawn_blocking(move || {
            let begun = Instant::now();
            let text = write();
            let is_short = text.len() <= SHORT;
            let text = if is_short {
                Bytes::from(text)
            } else {
                Bytes::from_owner(Kept {
                    text,
                    _place: place,
                })
            };
            *last = Some((begun, text.clone()));
            text
        });
        writing.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::task::Poll;

    use super::*;

    /// Each connection that did not read had a text of its own: 63 of them held 1.3 GB.
    #[tokio::test]
    async fn few_long_pages_are_kept_for_readers() {
        let last = Last::default();
        let ask = || last.or_new(|| "x".repeat(SHORT + 1));
        let mut readers = Vec::new();
        for _ in 0..50 {
            readers.push(ask().await.unwrap());
        }
        let texts: std::collections::HashSet<_> =
            readers.iter().map(|text| text.as_ptr()).collect();
        assert_eq!(texts.len(), KEPT);
        let held = readers.pop().unwrap();
        readers.clear();
        assert_ne!(
            ask().await.unwrap().as_ptr(),
            held.as_ptr(),
            "there are places again"
        );
    }

    /// Scrapes that arrived while a page was written each had it written again, one after the
    /// other.
    #[tokio::test]
    async fn whoever_asks_while_a_page_is_written_shares_the_next_one() {
        let last = Last::default();
        let written = Arc::new(AtomicUsize::new(0));
        let (go, wait) = mpsc::channel::<()>();
        let (begin, mut begun) = tokio::sync::mpsc::channel(2);
        let count = written.clone();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let write = move || {
            begin.try_send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
            count.fetch_add(1, SeqCst).to_string()
        };
        let ask = || {
            let last = last.clone();
            let write = write.clone();
            Box::pin(async move { last.or_new(write).await.unwrap() })
        };
        let first = tokio::spawn(ask());
        begun.recv().await.unwrap();
        let mut others: Vec<_> = (0..50).map(|_| ask()).collect();
        for other in &mut others {
            let asked =
                poll_fn(|context| Poll::Ready(other.as_mut().poll(context).is_pending())).await;
            assert!(
                asked,
                "a page is shared that was begun before it was asked for"
            );
        }
        go.send(()).unwrap();
        go.send(()).unwrap();
        assert_eq!(first.await.unwrap(), "0");
        for other in others {
            assert_eq!(other.await, "1");
        }
        assert_eq!(written.load(SeqCst), 2);
    }
}
