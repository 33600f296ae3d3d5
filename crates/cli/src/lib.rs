//! The commands that call a server through its public API.
//!
//! A command is parsed in the file of its noun and sent to the server by `client`. Its answer is
//! shown by `output`.
//! docs/cli.md says what users may rely on.
//!
//! **Invariant:** names and texts from outside pass through `printable` before they are printed.
//!
//! **Invariant:** the crate uses no other crate of this project except the YAML reader, so any
//! client can do the same. It opens no store, and reads only the variables of [`Environment`].

mod client;
mod commands;
mod definition;
mod demo;
mod environment;
mod output;

use clap::{Arg, Subcommand, ValueHint};

pub use client::options::{Options, without_options};
pub use commands::examples::with_examples;
pub use definition::{Definition, Mistake, field_names, file_name};
pub use demo::Demo;
pub use environment::{DEFAULT_SERVER, Environment};
pub use output::counted::counted;
pub use output::exit::{CommandResult, Details, Exit, Failure, print_failure};
pub use output::moment::span_of;
pub use output::printable::printable;
pub use output::table::{Cell, Table};
pub use output::{Screen, print, write_failure};

/// The commands of a client.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give servers names, and choose the one that commands call
    Context(commands::context::ContextCommand),
    /// A command that calls a server.
    #[command(flatten)]
    Call(Call),
}

/// The commands that call a server.
#[derive(Debug, Subcommand)]
pub enum Call {
    /// Show whether the server, its limits and its store are well
    Status,
    /// Create, follow and control workflows
    #[command(visible_alias = "wf")]
    Workflow(commands::workflow::WorkflowCommand),
    /// Show and control single jobs of a workflow
    Job(commands::job::JobCommand),
    /// List failures by handler and kind of error, and retry them
    Failure(commands::failure::FailureCommand),
    /// Show and pause queues, and set their limits and weights
    Queue(commands::queue::QueueCommand),
    /// Show and set the limits that handlers give their jobs
    Handler(commands::handler::HandlerCommand),
    /// Show workers and what they run, and drain them
    Worker(commands::worker::WorkerCommand),
    /// Show, pause, scale and test rate limits, and show busy keys
    Limit(commands::limit::LimitCommand),
    /// The verbs of Gush.
    #[command(flatten)]
    Gush(commands::gush::Gush),
}

impl Command {
    /// Runs the command, and returns the exit code of the program.
    ///
    /// # Errors
    /// The command was not carried out; the failure has the reason and the exit code.
    pub async fn run(self, options: &Options) -> CommandResult {
        match self {
            Self::Context(context) => context.run(options),
            Self::Call(call) => call.run(options).await,
        }
    }
}

impl Call {
    async fn run(self, options: &Options) -> CommandResult {
        let (remote, screen) = options.open()?;
        let remote = &remote;
        let screen = &screen;
        match self {
            Self::Status => commands::status::show(remote, screen).await,
            Self::Worker(worker) => worker.run(remote, screen).await,
            Self::Workflow(workflow) => workflow.run(remote, screen).await,
            Self::Job(job) => job.run(remote, screen).await,
            Self::Failure(failure) => failure.run(remote, screen).await,
            Self::Queue(queue) => queue.run(remote, screen).await,
            Self::Handler(handler) => handler.run(remote, screen).await,
            Self::Limit(limit) => limit.run(remote, screen).await,
            Self::Gush(gush) => gush.into_workflow_command().run(remote, screen).await,
        }
    }
}

/// Tells shells that the values of a client's command are no files, except those of arguments that
/// say so.
#[must_use]
pub fn without_file_names(command: clap::Command) -> clap::Command {
    let client = Command::augment_subcommands(clap::Command::new("client"));
    client.get_subcommands().fold(command, |command, known| {
        command.mut_subcommand(known.get_name(), values_are_no_files)
    })
}

fn values_are_no_files(command: clap::Command) -> clap::Command {
    let hinted = |argument: Arg| {
        let is_open = argument.get_value_hint() == ValueHint::Unknown
            && argument.get_action().takes_values()
            && argument.get_possible_values().is_empty();
        if is_open {
            argument.value_hint(ValueHint::Other)
        } else {
            argument
        }
    };
    command
        .mut_args(hinted)
        .mut_subcommands(values_are_no_files)
}
