//! People at a terminal: commands that ask a server through its public API.
//!
//! A command goes through its arguments (a file for each noun) to `ask` (HTTP), and its answer through `screen` to the terminal.
//! docs/cli.md says what users may rely on.
//!
//! **Invariant:** what is printed of names and texts of others went through `printable`.
//!
//! **Invariant:** no other crate of ours: this is what any client can do. No store is opened here, and the only variables read
//! are those of [`Environment`].

mod ask;
mod definition;
mod examples;
mod gush;
mod job;
mod queue;
mod screen;
mod workflow;

use clap::Subcommand;

pub use ask::environment::{DEFAULT_SERVER, Environment};
pub use ask::exit::{Exit, Failure, complain};
pub use ask::options::Output;
pub use examples::with_examples;
pub use screen::moment::span_of;
pub use screen::table::{Cell, Table};
pub use screen::{Screen, print, printable};

/// The commands that ask a server.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Creates, follows and steers workflows
    #[command(visible_alias = "wf")]
    Workflow(workflow::Workflow),
    /// Shows and steers single jobs of a workflow
    Job(job::Job),
    /// Shows queues, and stops and starts them
    Queue(queue::Queue),
    /// The verbs of Gush.
    #[command(flatten)]
    Gush(gush::Gush),
}

impl Command {
    /// Does what the command says, and returns how the program ends.
    ///
    /// # Errors
    /// It was not done; the failure says why and names the exit code.
    pub async fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Workflow(workflow) => workflow.run().await,
            Self::Job(job) => job.run().await,
            Self::Queue(queue) => queue.run().await,
            Self::Gush(gush) => gush.said_again().run().await,
        }
    }
}
