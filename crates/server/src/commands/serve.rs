//! Without a subcommand: the server.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, warn};

use crate::operate::logging;
use crate::settings::{LogFormat, Settings};
use crate::{Started, Stop, run};
use tidegate_cli::Exit;
use tidegate_cli::print;

pub(crate) fn serve() -> ExitCode {
    let settings = match Settings::from_environment() {
        Ok(settings) => settings,
        Err(problems) => {
            // Before logging is set up, and for a person.
            let mut text = format!("error: {problems}\n`tidegate settings` lists all settings\n");
            for warning in &problems.warnings {
                let _ = writeln!(text, "warning: {warning}");
            }
            let _ = io::stderr().write_all(text.as_bytes());
            return Exit::Usage.into();
        }
    };
    let logging = match logging::start(settings.log) {
        Ok(logging) => logging,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: cannot start the thread that writes the log: {error}");
            return ExitCode::FAILURE;
        }
    };
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    let format = settings.log.format;
    let banner = |started: &Started| match format {
        // A server needs no reader.
        LogFormat::Text | LogFormat::Colourless => drop(print(&started.to_string())),
        LogFormat::Json => started.log(),
    };
    let mut signals = None;
    // Handlers can only be installed where the server runs.
    let asked = async || signals.get_or_insert_with(Signals::listen).next().await;
    let ended = run(settings, asked, banner);
    if let Err(failure) = &ended {
        error!("{failure}");
    }
    drop(logging);
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The signals that ask the process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// A write beyond a bound of the size of files (`ulimit -f`, LimitFSIZE) would end the process. With a handler it fails, as on a full disk.
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

    /// Completes at the next of them.
    async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.terminate.recv() => Stop::Manager,
            _ = self.interrupt.recv() => Stop::Terminal,
        }
    }
}
