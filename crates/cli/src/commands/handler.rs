//! `tidegate handler`: limits of handlers.

use clap::{Args, Subcommand};

use super::queue::policies::{PolicyArgs, PolicyKind};
use crate::client::api_client::ApiClient;
use crate::output::Screen;
use crate::output::exit::CommandResult;

/// Show and set what handlers give their jobs.
#[derive(Debug, Args)]
pub struct HandlerCommand {
    #[command(subcommand)]
    verb: HandlerVerb,
}

#[derive(Debug, Subcommand)]
enum HandlerVerb {
    /// Show, set or remove the limits that all new jobs of a handler get
    Limits(PolicyArgs),
}

impl HandlerCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        match self.verb {
            HandlerVerb::Limits(terms) => {
                terms.run(PolicyKind::HandlerLimits, remote, screen).await
            }
        }
    }
}
