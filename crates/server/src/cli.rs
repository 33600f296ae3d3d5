//! The command line: without a subcommand the server, with one a client of it, or a tool beside it.
//!
//! A command goes `cli` (arguments) -> one file for each noun -> `remote` (HTTP) or `store`, and comes back as text through `screen`.
//!
//! **Invariant:** what is printed of names and texts of others went through `printable`.

mod audit;
mod check;
mod definition;
mod events;
mod exit;
mod follow;
mod gush;
mod import;
mod job;
mod list;
mod moment;
mod queue;
mod remote;
mod screen;
mod serve;
mod show;
mod store;
mod table;
mod wire;
mod workflow;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::{cores, settings};
use exit::{Exit, Failure};
use screen::print;

/// A rate limit service for Envoy, and a workflow server.
///
/// Without a subcommand it serves. Its settings are environment variables; `tidegate settings` lists them.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, max_term_width = 100, infer_subcommands = false)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reads configuration files as the server would, and reports every mistake in them
    Check(Check),
    /// Prints every setting with its value
    Settings(Show),
    /// Creates, follows and steers workflows
    #[command(visible_alias = "wf")]
    Workflow(workflow::Workflow),
    /// Shows and steers single jobs of a workflow
    Job(job::Job),
    /// Shows queues, and stops and starts them
    Queue(queue::Queue),
    /// Looks after the store of the workflows
    Store(store::Store),
    /// Takes over workflows of other programs
    Import(import::Import),
    /// Prints a script that completes commands in a shell
    Completion(Completion),
    /// Creates a workflow and does not start it, as Gush does
    #[command(hide = true)]
    Create(gush::New),
    /// Starts a workflow, or runs jobs of it again
    #[command(hide = true)]
    Start(gush::Start),
    /// Creates a workflow and starts it
    #[command(hide = true, name = "create_and_start")]
    CreateAndStart(gush::New),
    /// Pauses workflows
    #[command(hide = true)]
    Stop(gush::Several),
    /// Shows a workflow
    #[command(hide = true)]
    Show(gush::Show),
    /// Removes workflows
    #[command(hide = true)]
    Rm(gush::Several),
    /// Lists workflows
    #[command(hide = true)]
    List(gush::Listing),
    /// Draws a workflow into a file
    #[command(hide = true)]
    Viz(gush::Picture),
    /// Brings the store to the layout of this version
    #[command(hide = true)]
    Migrate(remote::Options),
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

/// Runs the program and says how it ended, by the codes in docs/cli.md.
#[must_use]
pub fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Help and the version are no mistakes; an output that takes nothing is nobody's.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    match command {
        None => serve::serve(),
        Some(Command::Check(arguments)) => {
            let report = check::check(&arguments);
            print(&report.text);
            if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some(Command::Settings(Show { markdown })) => {
            print(&if markdown { settings::markdown() } else { settings::effective() });
            ExitCode::SUCCESS
        }
        Some(Command::Completion(Completion { shell })) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
            print(&String::from_utf8_lossy(&script));
            ExitCode::SUCCESS
        }
        Some(command) => ended(command),
    }
}

/// Runs a command that talks to a server or a store.
fn ended(command: Command) -> ExitCode {
    let done = match cores::runtime() {
        Ok(runtime) => runtime.block_on(dispatch(command)),
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

async fn dispatch(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Workflow(workflow) => workflow.run().await,
        Command::Job(job) => job.run().await,
        Command::Queue(queue) => queue.run().await,
        Command::Store(store) => store.run().await,
        Command::Import(import) => import.run().await,
        Command::Create(new) => new.create().await,
        Command::CreateAndStart(new) => new.create_and_start().await,
        Command::Start(start) => start.run().await,
        Command::Stop(several) => several.stop().await,
        Command::Show(show) => show.run().await,
        Command::Rm(several) => several.remove().await,
        Command::List(listing) => listing.run().await,
        Command::Viz(picture) => picture.run().await,
        Command::Migrate(options) => store::run(store::Verb::Migrate, &options.screen()).await,
        Command::Check(_) | Command::Settings(_) | Command::Completion(_) => {
            unreachable!("these talk to nobody and are done already")
        }
    }
}

/// Tells a person why something was not done.
fn complain(failure: &Failure) {
    // Nobody is left to tell when this fails.
    let _ = writeln!(io::stderr(), "{failure}");
}
