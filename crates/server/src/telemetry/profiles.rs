//! CPU profiles of threads. `/debug/pprof/profile` returns a profile for `go tool pprof`,
//! `/debug/threads` a text.
//!
//! The kernel counts the CPU time of each thread. A profile is the difference of two samples, so it
//! costs only these. Few profiles may run at a time, since each keeps a connection of the port,
//! which other pages need. Functions within a thread are not visible: that needs a signal handler
//! that walks the stack, which is not safe in Rust. `perf` shows them from outside.

mod pprof;
mod threads;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
pub(crate) use pprof::gzip;
use threads::{ThreadSample, difference};

/// Pages of this module for the index of the port. Pages that the reference has, too, are in its
/// words.
pub(crate) const INDEX: &str = "\
/debug/pprof/: root of various pprof endpoints. hit for help.
/debug/pprof/profile: CPU profiling endpoint
/debug/threads: print out the threads with their CPU time
";

const HELP: &str = "\
/debug/pprof/

profile    CPU time and waiting time of each thread for ?seconds=30 (1 to 60), for `go tool pprof`;
           with &debug=1 as text with a line for each thread, for tools that draw flame graphs

/debug/threads lists the threads: state, CPU time and time in which they waited for a core.
Functions are seen by `perf record -g -p PID`: those of the binary have their names.
";

/// Longest profile in seconds.
const MAX_SECONDS: u64 = 60;
/// Default length of a profile in seconds, as in Go.
const DEFAULT_SECONDS: u64 = 30;
/// Limit of profiles in progress. A person takes one at a time, and scrapes need connections of the
/// port.
const MAX_PROFILES: usize = 4;

/// State that the requests for profiles share.
#[derive(Debug, Clone)]
struct Profiles {
    drain: CancellationToken,
    permits: Arc<Semaphore>,
}

/// Router of the pages. A profile in progress ends at the drain, with its samples so far.
pub(crate) fn router(drain: CancellationToken) -> Router {
    Router::new()
        .route("/debug/pprof", any(async || HELP))
        .route("/debug/pprof/", any(async || HELP))
        .route("/debug/pprof/profile", any(profile))
        .route("/debug/threads", any(|| blocking(|| text(threads::page()))))
        .with_state(Profiles {
            drain,
            permits: Arc::new(Semaphore::new(MAX_PROFILES)),
        })
}

/// Parameters of a request for a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProfileRequest {
    length: Duration,
    form: ProfileFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProfileFormat {
    Pprof,
    /// Text with a line for each stack, the input of flame graphs.
    Folded,
}

impl ProfileRequest {
    fn read(query: &str) -> Option<Self> {
        let value = |name| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let seconds = match value("seconds") {
            None => DEFAULT_SECONDS,
            Some(text) => text
                .parse()
                .ok()
                .filter(|seconds| (1..=MAX_SECONDS).contains(seconds))?,
        };
        let form = if matches!(value("debug"), None | Some("0")) {
            ProfileFormat::Pprof
        } else {
            ProfileFormat::Folded
        };
        Some(Self {
            length: Duration::from_secs(seconds),
            form,
        })
    }
}

async fn profile(State(profiles): State<Profiles>, RawQuery(query): RawQuery) -> Response {
    let Some(request) = ProfileRequest::read(&query.unwrap_or_default()) else {
        let expected = format!("seconds: expected a whole number from 1 to {MAX_SECONDS}\n");
        return (StatusCode::BAD_REQUEST, expected).into_response();
    };
    let Ok(_permit) = profiles.permits.try_acquire() else {
        return busy();
    };
    let started_nanos = clock::now().0;
    let started = Instant::now();
    let Ok(before) = spawn_blocking(threads::sample_threads).await else {
        return failed();
    };
    tokio::select! {
        () = sleep(request.length) => {}
        () = profiles.drain.cancelled() => {}
    }
    let finish = move || {
        let spent = difference(&before, threads::sample_threads());
        match request.form {
            ProfileFormat::Pprof => file(pprof::encode(
                &spent,
                started_nanos.saturating_mul(1_000),
                started.elapsed(),
            )),
            ProfileFormat::Folded => text(folded(&spent)),
        }
    };
    blocking(finish).await
}

/// Runs `work`, which reads files, on a blocking thread.
async fn blocking(work: impl FnOnce() -> Response + Send + 'static) -> Response {
    spawn_blocking(work).await.unwrap_or_else(|_| failed())
}

fn busy() -> Response {
    let message = format!(
        "{MAX_PROFILES} profiles are in progress, which is the most: ask again when one has ended\n"
    );
    (StatusCode::TOO_MANY_REQUESTS, message).into_response()
}

fn failed() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

fn text(text: String) -> Response {
    (
        [
            (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ],
        text,
    )
        .into_response()
}

fn file(bytes: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"profile\"",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, bytes).into_response()
}

/// Text with lines of the form `process;thread;part nanoseconds`.
fn folded(threads: &[ThreadSample]) -> String {
    let mut text = String::new();
    for thread in threads {
        for (mode, nanos) in thread.modes().into_iter().filter(|(_, nanos)| *nanos > 0) {
            text += &format!("tidegate;{};{} {nanos}\n", thread.name, thread.part(mode));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_says_how_long_and_in_which_form() {
        let asked = |seconds, form| {
            Some(ProfileRequest {
                length: Duration::from_secs(seconds),
                form,
            })
        };
        for (query, expected) in [
            ("", asked(30, ProfileFormat::Pprof)),
            ("seconds=1", asked(1, ProfileFormat::Pprof)),
            ("debug=1&seconds=60", asked(60, ProfileFormat::Folded)),
            ("debug=0", asked(30, ProfileFormat::Pprof)),
            ("seconds=0", None),
            ("seconds=61", None),
            ("seconds=-1", None),
            ("seconds=99999999999999999999", None),
            ("seconds=", None),
        ] {
            assert_eq!(ProfileRequest::read(query), expected, "{query}");
        }
    }
}
