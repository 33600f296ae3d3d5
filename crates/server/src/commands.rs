//! The command line: without a subcommand the server, with one a client of it (the crate `cli`) or a tool beside it.

mod audit;
mod check;
mod import;
mod rows;
mod serve;
mod store;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use tidegate_cli::{Exit, Failure, Output, complain, print, with_examples};

use crate::edge::cores;
use crate::settings::{self, Settings};

/// A rate limit service for Envoy, and a workflow server. Without a command it serves.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reads configuration files as the server would, and reports every mistake in them
    Check(Check),
    /// Prints every setting with its value
    Settings(Show),
    #[command(flatten)]
    Client(tidegate_cli::Command),
    /// Looks after the store of the workflows
    Store(store::Store),
    /// Takes over workflows of other programs
    Import(import::Import),
    /// Prints a script that completes commands in a shell
    Completion(Completion),
    /// Brings the store to the layout of this version
    #[command(hide = true)]
    Migrate(Output),
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

#[derive(Debug, Args)]
struct Completion {
    /// The shell
    shell: Shell,
}

/// The command line with all of its help.
fn command() -> clap::Command {
    let about = format!(
        "\
Settings are environment variables, and `tidegate settings` lists them. Commands that ask a server read TIDEGATE_SERVER and
TIDEGATE_TOKEN. The verbs of Gush are understood, too: create, create_and_start, start, stop, show, rm, list, viz, migrate.

Exit codes:
{}",
        Exit::listed()
    );
    with_examples(Arguments::command().after_help(about))
}

/// Runs the program and says how it ended, by the codes in docs/cli.md.
#[must_use]
pub fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    match parsed {
        Ok(Arguments { command: None }) => serve::serve(),
        Ok(Arguments { command: Some(command) }) => ended(command),
        Err(error) => {
            // Help and the version are no mistakes; an output that takes nothing is nobody's.
            let _ = error.print();
            if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS }
        }
    }
}

fn ended(command: Command) -> ExitCode {
    let done = match cores::runtime() {
        Ok(runtime) => runtime.block_on(run(command)),
        Err(error) => Err(Failure::unavailable(format!("the system refuses what a client needs: {error}"))),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            complain(&failure);
            failure.exit.into()
        }
    }
}

/// Prints the values in force, and what a server would say about them.
fn show_settings() -> Result<Exit, Failure> {
    print(&settings::effective())?;
    let settings = Settings::from_environment().map_err(|problems| Failure::usage(problems.to_string()))?;
    for warning in settings.warnings {
        // A closed standard error must not change how the command ends.
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    Ok(Exit::Done)
}

async fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Check(arguments) => {
            let report = check::check(&arguments);
            print(&report.text)?;
            Ok(if report.errors == 0 { Exit::Done } else { Exit::Failed })
        }
        Command::Settings(Show { markdown: true }) => print(&settings::markdown()).map(|()| Exit::Done),
        Command::Settings(Show { markdown: false }) => show_settings(),
        Command::Completion(Completion { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "tidegate", &mut script);
            print(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Done)
        }
        Command::Client(command) => command.run().await,
        Command::Store(store) => store.run().await,
        Command::Import(import) => import.run().await,
        Command::Migrate(output) => store::run(store::Verb::Migrate, &output.screen()).await,
    }
}
