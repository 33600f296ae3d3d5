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
const MAX_KEPT_PAGES: usize = 3;
/// Size in bytes below which a text needs no permit: such texts are bounded by the number of
/// connections.
const SHORT_PAGE_BYTES: usize = 64 * 1024;

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
    crate::base::clock::shift(seconds);
}

/// Handler of a page that `write` creates on request.
fn page<W>(kind: &'static str, write: W) -> MethodRouter
where
    W: Fn() -> String + Clone + Send + Sync + 'static,
{
    let last = PageCache::default();
    any(async move || match last.get_or_write(write).await {
        Some(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    })
}

/// The latest text of a page, with the time when its writing began.
#[derive(Debug, Clone)]
struct PageCache {
    text: Arc<Mutex<Option<(Instant, Bytes)>>>,
    permits: Arc<Semaphore>,
}

/// A text with its permit, which is kept until all readers have received it.
struct KeptPage {
    text: String,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for KeptPage {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Default for PageCache {
    fn default() -> Self {
        Self {
            text: Arc::default(),
            permits: Arc::new(Semaphore::new(MAX_KEPT_PAGES)),
        }
    }
}

impl PageCache {
    /// Returns a text whose writing begins after this call, or the last one if too many are kept.
    /// None if `write` panicked.
    async fn get_or_write(&self, write: impl Fn() -> String + Send + 'static) -> Option<Bytes> {
        let requested = Instant::now();
        let mut last = self.text.clone().lock_owned().await;
        let permit = self.permits.clone().try_acquire_owned();
        if let Some((started, text)) = &*last
            && (*started >= requested || permit.is_err())
        {
            return Some(text.clone());
        }
        let permit = permit.ok()?;
        // The writer keeps the lock even if its reader is gone, so there is never a second writer.
        let writing = spawn_blocking(move || {
            let started = Instant::now();
            let text = write();
            let is_short = text.len() <= SHORT_PAGE_BYTES;
            let text = if is_short {
                Bytes::from(text)
            } else {
                Bytes::from_owner(KeptPage {
                    text,
                    _permit: permit,
                })
            };
            *last = Some((started, text.clone()));
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
        let last = PageCache::default();
        let ask = || last.get_or_write(|| "x".repeat(SHORT_PAGE_BYTES + 1));
        let mut readers = Vec::new();
        for _ in 0..50 {
            readers.push(ask().await.unwrap());
        }
        let texts: std::collections::HashSet<_> =
            readers.iter().map(|text| text.as_ptr()).collect();
        assert_eq!(texts.len(), MAX_KEPT_PAGES);
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
        let last = PageCache::default();
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
            Box::pin(async move { last.get_or_write(write).await.unwrap() })
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
