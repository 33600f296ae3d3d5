//! The thread that reloads certificates and tokens.
//!
//! It checks the files every second. That works on every file system and for every way to replace a
//! file. A file may be renamed over, written in place, or replaced by a swapped link above it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::base::clock;
use crate::supervise::runtime::ThreadRuntime;
use crate::supervise::{Supervisor, failpoint};
use crate::tls::WatchedFiles;
use crate::tls::counts::{FileKind, ReloadCounts};

/// The name of the thread.
const THREAD_NAME: &str = "certificates";
/// Interval of the checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Loads `all` files, and watches them on a thread until the server drains.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn watch(
    mut all: Vec<WatchedFiles>,
    counts: Arc<ReloadCounts>,
    supervisor: &Supervisor,
) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    for kind in [FileKind::Certificates, FileKind::Tokens] {
        let files = all
            .iter()
            .filter(|watched| watched.kind == kind)
            .map(|watched| watched.files.len())
            .sum();
        counts.loads(kind).files.store(files, Relaxed);
    }
    // The first load comes before the first request for metrics.
    for watched in &mut all {
        watched.reload_if_changed(&counts, now());
    }
    let drain = supervisor.drain.clone();
    supervisor.restarting_thread(THREAD_NAME, move || match ThreadRuntime::new() {
        Ok(runtime) => runtime.block_on(failpoint::with(
            THREAD_NAME.into(),
            watch_loop(&mut all, &counts, &drain),
        )),
        Err(error) => error!(%error, "the system refuses a runtime for certificates"),
    })
}

async fn watch_loop(all: &mut [WatchedFiles], counts: &ReloadCounts, drain: &CancellationToken) {
    loop {
        for watched in all.iter_mut() {
            watched.reload_if_changed(counts, now());
            watched.warn_of_expiry(now());
        }
        tokio::select! {
            () = sleep(CHECK_INTERVAL) => {}
            () = drain.cancelled() => return,
        }
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    (clock::now().0 / 1_000_000).cast_signed()
}
