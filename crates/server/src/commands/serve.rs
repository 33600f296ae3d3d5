//! Runs the server; for `demo`, with sample clients.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::thread;

use tidegate_cli::{Demo, Exit, print};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::settings::{LogFormat, Settings, SettingsError};
use crate::supervise::runtime::current_thread_runtime;
use crate::telemetry::logging::{self, LIFECYCLE};
use crate::{Started, StopSignal, run};

pub(crate) fn serve() -> ExitCode {
    serve_with(Settings::from_environment(), |_, _| {})
}

/// Runs a server in memory with sample limits, workflows, workers and calls.
pub(crate) fn demo() -> ExitCode {
    serve_with(Settings::demo(), |started, stop_token| {
        let Some(api) = started.addresses.api else {
            warn!(
                "TIDEGATE_HTTP_ADDR is empty: without the API there is no page, and the demo has no workflows"
            );
            return;
        };
        let demo_thread = Demo::new(api, started.addresses.http)
            .map_err(|failure| failure.text)
            .and_then(|demo| {
                let runtime = current_thread_runtime().map_err(|error| error.to_string())?;
                let run = move || runtime.block_on(stop_token.run_until_cancelled(demo.run()));
                thread::Builder::new()
                    .name("demo".to_owned())
                    .spawn(run)
                    .map_err(|error| error.to_string())
            });
        if let Err(reason) = demo_thread {
            error!("the workers and callers of the demo cannot start: {reason}");
        }
    })
}

/// Runs the server. `on_start` is called after the start. Its token is cancelled when the server
/// begins to stop, since connections of the demo would keep it until the drain timeout.
fn serve_with(
    settings: Result<Settings, SettingsError>,
    on_start: impl FnOnce(&Started, CancellationToken),
) -> ExitCode {
    let settings = match settings {
        Ok(settings) => settings,
        Err(problems) => return print_mistakes(&problems),
    };
    let logging = match logging::start(settings.log) {
        Ok(logging) => logging,
        Err(error) => {
            let _ = writeln!(
                io::stderr(),
                "error: cannot start the thread that writes the log: {error}"
            );
            return ExitCode::FAILURE;
        }
    };
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    let format = settings.log.format;
    let stopping = CancellationToken::new();
    let banner = |started: &Started| {
        match format {
            // The server runs on even if standard output is closed.
            LogFormat::Text | LogFormat::Colourless => drop(print(&started.to_string())),
            LogFormat::Json => started.log(),
        }
        on_start(started, stopping.clone());
    };
    let mut signals = None;
    // Signal handlers need the runtime of the server.
    let next_stop = async || {
        let stop = signals.get_or_insert_with(Signals::listen).next().await;
        stopping.cancel();
        stop
    };
    let exit = match run(settings, next_stop, banner) {
        Ok(()) => {
            info!(target: LIFECYCLE, "stopped");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            error!("{failure}");
            ExitCode::FAILURE
        }
    };
    drop(logging);
    exit
}

/// Prints the mistakes in the settings for a person. Logging is not set up yet.
fn print_mistakes(problems: &SettingsError) -> ExitCode {
    let mut text = format!("error: {problems}\n`tidegate settings` lists all settings\n");
    for warning in &problems.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    let _ = io::stderr().write_all(text.as_bytes());
    Exit::Usage.into()
}

/// The signals that ask the process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// A write above the file size limit (`ulimit -f`, LimitFSIZE) raises a signal that ends the
    /// process. With a handler, the write fails as on a full disk.
    _bound: Signal,
}

impl Signals {
    fn listen() -> Self {
        let listen = |kind| signal(kind).expect("handlers for these signals can be installed");
        Self {
            terminate: listen(SignalKind::terminate()),
            interrupt: listen(SignalKind::interrupt()),
            _bound: listen(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())),
        }
    }

    /// Completes at the next signal.
    async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Manager,
            _ = self.interrupt.recv() => StopSignal::Terminal,
        }
    }
}
