//! The command line.

mod check;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, warn};

use crate::settings::{self, Settings};
use crate::{ServeError, logging, run};

/// A rate limit service for Envoy.
///
/// Without a subcommand it serves. Its settings are environment variables; `tidegate settings` lists them.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reads configuration files as the server would, and reports every mistake in them.
    Check(Check),
    /// Prints every setting with its value.
    Settings(Show),
}

#[derive(Debug, Args)]
struct Check {
    /// Files, or folders of files.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Allow several files for one domain, as MERGE_DOMAIN_CONFIG does.
    #[arg(long)]
    merge_domain_configs: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// Print the page of the documentation instead.
    #[arg(long)]
    markdown: bool,
}

/// Settings are wrong, as in sysexits.h.
const EXIT_USAGE: u8 = 64;

/// Runs the program and says how it ended: 0 as asked, 1 not, 64 when settings are wrong.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        None => serve(),
        Some(Command::Check(arguments)) => {
            let report = check::check(&arguments);
            print(&report.text);
            if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some(Command::Settings(Show { markdown: true })) => print(&settings::markdown()),
        Some(Command::Settings(Show { markdown: false })) => print(&settings::effective()),
    }
}

fn serve() -> ExitCode {
    let settings = match Settings::from_environment() {
        Ok(settings) => settings,
        Err(problems) => {
            // Before logging is set up, and for a person.
            let _ = writeln!(io::stderr(), "error: {problems}\n`tidegate settings` lists all settings");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    logging::start(settings.log);
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    let shown = run(settings, terminated(), |started| {
        print(&started.to_string());
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure);
            ExitCode::FAILURE
        }
    }
}

fn report(failure: &ServeError) {
    error!("{failure}");
}

/// Completes when the process is asked to end.
async fn terminated() {
    let listen = |kind| signal(kind).expect("handlers for these signals can be installed");
    let mut terminate = listen(SignalKind::terminate());
    let mut interrupt = listen(SignalKind::interrupt());
    let mut hangup = listen(SignalKind::hangup());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// Writes to standard output; a reader that went away is no failure.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
