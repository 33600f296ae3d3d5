//! `tidegate limit`: rate limits of requests and jobs.

mod check;
mod list;
mod overrides;
mod target;
mod top;

use clap::{Args, Subcommand};

use self::check::Check;
use self::list::LimitListArgs;
use self::overrides::{Pause, Scale};
use self::target::LimitTarget;
use crate::client::api_client::ApiClient;
use crate::output::Screen;
use crate::output::exit::CommandResult;

/// Shows limits and who waits under them, pauses and scales rate limits, and checks requests.
#[derive(Debug, Args)]
pub struct LimitCommand {
    #[command(subcommand)]
    verb: LimitVerb,
}

#[derive(Debug, Subcommand)]
enum LimitVerb {
    /// Lists the limits that jobs wait under: what is used of each, and how many wait
    List(LimitListArgs),
    /// Lists limits and keys that are paused, throttled or scaled
    Overrides,
    /// Pauses a limit or a key: its jobs wait
    Pause(Pause),
    /// Removes all that overrides a limit or a key
    Resume(LimitTarget),
    /// Multiplies what a limit allows, for jobs and requests
    Scale(Scale),
    /// Says what a request would be answered, and charges nothing
    Check(Check),
    /// Shows the keys with the most hits at this server, and its latest refusals
    Top,
}

impl LimitCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        match self.verb {
            LimitVerb::List(wanted) => list::list(&wanted, remote, screen).await,
            LimitVerb::Overrides => overrides::list(remote, screen).await,
            LimitVerb::Pause(pause) => overrides::pause(&pause, remote, screen).await,
            LimitVerb::Resume(target) => overrides::resume(&target, remote, screen).await,
            LimitVerb::Scale(scale) => overrides::scale(&scale, remote, screen).await,
            LimitVerb::Check(check) => check::check(&check, remote, screen).await,
            LimitVerb::Top => top::show(remote, screen).await,
        }
    }
}
