//! `/debug/pprof`: what each thread did for some seconds, as a profile that `go tool pprof` opens.
//!
//! The kernel counts what every thread takes. A profile is the difference of two looks at that, so it costs two looks. Few may be in
//! progress: each keeps a connection of the port, which other pages need, too. Functions within a thread are not seen: that needs a signal handler that walks
//! the stack of whoever it interrupts, which is not safe in Rust. `perf` sees them from outside.

mod pprof;
mod threads;

use std::fs;
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

use crate::edge::clock;
use threads::{Thread, difference};

/// The pages of this module, for the index of the port, in the words of the reference.
pub(crate) const INDEX: &str = "\
/debug/pprof/: root of various pprof endpoints. hit for help.
/debug/pprof/profile: CPU profiling endpoint
/debug/pprof/trace: trace endpoint
";

const HELP: &str = "\
/debug/pprof/

profile    CPU time and waiting time of each thread for ?seconds=30 (1 to 60), for `go tool pprof`;
           with &debug=1 as text with a line for each thread, for tools that draw flame graphs
goroutine  the threads: state, CPU time and time in which they waited for a core
cmdline    the command line, parts separated by a zero byte
symbol     no symbols: profiles have their names in them

heap, allocs, block, mutex, threadcreate and trace are not there; each says what is there instead.
Functions are seen by `perf record -g -p PID`: those of the binary have their names.
";

/// The longest profile.
const LONGEST: u64 = 60;
/// The length of a profile that says nothing else, as in Go.
const USUAL: u64 = 30;
/// The most profiles in progress. People take one at a time, and connections of the port must be left for scrapes.
const MOST: usize = 4;

/// Pages that others have, and what is here instead.
const ABSENT: [(&str, &str); 5] = [
    (
        "allocs",
        "Allocations are not counted. /metrics has the memory of each part that holds much.\n",
    ),
    (
        "block",
        "Waiting is not recorded. /debug/pprof/profile has the time in which each thread waited for a core.\n",
    ),
    (
        "mutex",
        "Locks are not recorded: cores share none while they decide.\n",
    ),
    (
        "threadcreate",
        "Threads are made at the start and not later. /debug/pprof/goroutine?debug=1 lists them.\n",
    ),
    (
        "trace",
        "There are no traces of the runtime. TRACING_ENABLED sends traces of calls to OpenTelemetry.\n",
    ),
];

/// What profiles share.
#[derive(Debug, Clone)]
struct Profiles {
    drain: CancellationToken,
    places: Arc<Semaphore>,
}

/// The pages. A profile in progress ends at the drain, with what there is by then.
pub(crate) fn router(drain: CancellationToken) -> Router {
    let mut router = Router::new()
        .route("/debug/pprof", any(async || HELP))
        .route("/debug/pprof/", any(async || HELP))
        .route("/debug/pprof/profile", any(profile))
        .route(
            "/debug/pprof/goroutine",
            any(|| blocking(|| text(threads::page()))),
        )
        .route("/debug/pprof/cmdline", any(async || text(command_line())))
        .route("/debug/pprof/symbol", any(async || "num_symbols: 0\n"))
        .route("/debug/pprof/heap", any(|| blocking(|| absent(heap()))));
    for (name, instead) in ABSENT {
        router = router.route(
            &format!("/debug/pprof/{name}"),
            any(move || async move { absent(instead.to_owned()) }),
        );
    }
    router.with_state(Profiles {
        drain,
        places: Arc::new(Semaphore::new(MOST)),
    })
}

/// What a profile is asked to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    length: Duration,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Pprof,
    /// A line for each stack.
    Folded,
}

impl Asked {
    fn read(query: &str) -> Option<Self> {
        let value = |name| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let seconds = match value("seconds") {
            None => USUAL,
            Some(text) => text
                .parse()
                .ok()
                .filter(|seconds| (1..=LONGEST).contains(seconds))?,
        };
        let form = if matches!(value("debug"), None | Some("0")) {
            Form::Pprof
        } else {
            Form::Folded
        };
        Some(Self {
            length: Duration::from_secs(seconds),
            form,
        })
    }
}

async fn profile(State(profiles): State<Profiles>, RawQuery(query): RawQuery) -> Response {
    let Some(asked) = Asked::read(&query.unwrap_or_default()) else {
        let expected = format!("seconds: expected a whole number from 1 to {LONGEST}\n");
        return (StatusCode::BAD_REQUEST, expected).into_response();
    };
    let Ok(_place) = profiles.places.try_acquire() else {
        return busy();
    };
    let (began, begun) = (clock::now().0, Instant::now());
    let Ok(before) = spawn_blocking(threads::look).await else {
        return failed();
    };
    tokio::select! {
        () = sleep(asked.length) => {}
        () = profiles.drain.cancelled() => {}
    }
    let finish = move || {
        let spent = difference(&before, threads::look());
        match asked.form {
            Form::Pprof => file(pprof::encode(
                &spent,
                began.saturating_mul(1_000),
                begun.elapsed(),
            )),
            Form::Folded => text(folded(&spent)),
        }
    };
    blocking(finish).await
}

/// Runs what reads files on a thread that may wait for them.
async fn blocking(work: impl FnOnce() -> Response + Send + 'static) -> Response {
    spawn_blocking(work).await.unwrap_or_else(|_| failed())
}

fn busy() -> Response {
    let told = format!(
        "{MOST} profiles are in progress, which is the most: ask again when one has ended\n"
    );
    (StatusCode::TOO_MANY_REQUESTS, told).into_response()
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

fn absent(instead: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (StatusCode::NOT_IMPLEMENTED, headers, instead).into_response()
}

/// `process;thread;part nanoseconds`.
fn folded(threads: &[Thread]) -> String {
    let mut text = String::new();
    for thread in threads {
        for (mode, nanos) in thread.modes().into_iter().filter(|(_, nanos)| *nanos > 0) {
            text += &format!("tidegate;{};{} {nanos}\n", thread.name, thread.part(mode));
        }
    }
    text
}

/// As in Go, without a zero byte at the end.
fn command_line() -> String {
    let line = fs::read("/proc/self/cmdline").unwrap_or_default();
    String::from_utf8_lossy(line.strip_suffix(b"\0").unwrap_or(&line)).into_owned()
}

/// The memory of the process as the kernel sees it.
fn heap() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status
        .lines()
        .filter(|line| line.starts_with("Vm") || line.starts_with("Rss"));
    let figures: String = lines.map(|line| format!("{line}\n")).collect();
    format!(
        "The heap is not sampled. /metrics has the memory of each part that holds much; of the process:\n\n{figures}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_says_how_long_and_in_which_form() {
        let asked = |seconds, form| {
            Some(Asked {
                length: Duration::from_secs(seconds),
                form,
            })
        };
        for (query, expected) in [
            ("", asked(30, Form::Pprof)),
            ("seconds=1", asked(1, Form::Pprof)),
            ("debug=1&seconds=60", asked(60, Form::Folded)),
            ("debug=0", asked(30, Form::Pprof)),
            ("seconds=0", None),
            ("seconds=61", None),
            ("seconds=-1", None),
            ("seconds=99999999999999999999", None),
            ("seconds=", None),
        ] {
            assert_eq!(Asked::read(query), expected, "{query}");
        }
    }
}
