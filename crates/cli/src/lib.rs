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
mod definition;
mod demo;
mod examples;
mod gush;
mod handler;
mod job;
mod limit;
mod output;
mod policies;
mod queue;
mod workflow;

use clap::Subcommand;

pub use client::environment::{DEFAULT_SERVER, Environment};
pub use client::exit::{Exit, Failure, complain};
pub use client::options::{Options, without_options};
pub use definition::{Definition, Mistake, fields_of, text_of};
pub use demo::Demo;
pub use examples::with_examples;
pub use output::counted::counted;
pub use output::moment::span_of;
pub use output::printable::printable;
pub use output::table::{Cell, Table};
pub use output::{Screen, print, unwritten};

/// The commands that call a server.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Creates, follows and controls workflows
    #[command(visible_alias = "wf")]
    Workflow(workflow::Workflow),
    /// Shows and controls single jobs of a workflow
    Job(job::Job),
    /// Shows queues, pauses and resumes them, and sets their limits and weights
    Queue(queue::Queue),
    /// Shows and sets the limits that handlers give their jobs
    Handler(handler::Handler),
    /// Pauses, scales and checks rate limits, and shows which keys are asked for most
    Limit(limit::Limit),
    /// The verbs of Gush.
    #[command(flatten)]
    Gush(gush::Gush),
}

impl Command {
    /// Runs the command, and returns the exit code of the program.
    ///
    /// # Errors
    /// The command was not carried out; the failure has the reason and the exit code.
    pub async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let (remote, screen) = options.open()?;
        let remote = &remote;
        let screen = &screen;
        match self {
            Self::Workflow(workflow) => workflow.run(remote, screen).await,
            Self::Job(job) => job.run(remote, screen).await,
            Self::Queue(queue) => queue.run(remote, screen).await,
            Self::Handler(handler) => handler.run(remote, screen).await,
            Self::Limit(limit) => limit.run(remote, screen).await,
            Self::Gush(gush) => gush.said_again().run(remote, screen).await,
        }
    }
}
