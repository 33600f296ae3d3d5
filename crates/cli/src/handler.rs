//! `tidegate handler`: limits of handlers.

use clap::{Args, Subcommand};

use crate::client::exit::{Exit, Failure};
use crate::client::remote::Remote;
use crate::output::Screen;
use crate::policies::{Of, Terms};

/// Shows and sets what handlers give their jobs.
#[derive(Debug, Args)]
pub struct Handler {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Shows, sets or removes the limits that all new jobs of a handler get
    Limits(Terms),
}

impl Handler {
    pub(crate) async fn run(self, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Limits(terms) => terms.run(Of::HandlerLimits, remote, screen).await,
        }
    }
}
