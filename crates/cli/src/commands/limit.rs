//! `tidegate limit`: rate limits of requests and jobs.

mod check;
mod list;
mod overrides;
mod target;
mod top;
mod waiting;

use clap::{Args, Subcommand};

use self::check::Check;
use self::list::LimitListArgs;
use self::overrides::{Pause, Scale};
use self::target::LimitTarget;
use self::waiting::LimitWaitingArgs;
use super::watch::WatchOption;
use crate::client::api_client::ApiClient;
use crate::output::Screen;
use crate::output::exit::CommandResult;

/// Show, pause, scale and test rate limits, and show the busiest keys.
#[derive(Debug, Args)]
pub struct LimitCommand {
    #[command(subcommand)]
    verb: LimitVerb,
}

#[derive(Debug, Subcommand)]
enum LimitVerb {
    /// Show the limits as a tree, with their use and who paused them
    List(LimitListArgs),
    /// List jobs that wait for a limit: what is used of it, and when there is room
    Waiting(LimitWaitingArgs),
    /// List limits and keys that are paused, throttled or scaled
    Overrides,
    /// Pause a limit or a key: its jobs wait
    Pause(Pause),
    /// Remove pauses and scaling of a limit or a key
    Resume(LimitTarget),
    /// Multiply what a limit allows, for jobs and requests
    Scale(Scale),
    /// Test a request without counting it
    Check(Check),
    /// Show the busiest keys of this server, and its latest refusals
    Top(WatchOption),
}

impl LimitCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        match self.verb {
            LimitVerb::List(wanted) => list::list(&wanted, remote, screen).await,
            LimitVerb::Waiting(wanted) => waiting::list(&wanted, remote, screen).await,
            LimitVerb::Overrides => overrides::list(remote, screen).await,
            LimitVerb::Pause(pause) => overrides::pause(&pause, remote, screen).await,
            LimitVerb::Resume(target) => overrides::resume(&target, remote, screen).await,
            LimitVerb::Scale(scale) => overrides::scale(&scale, remote, screen).await,
            LimitVerb::Check(check) => check::check(&check, remote, screen).await,
            LimitVerb::Top(watch) => {
                watch
                    .run(screen, async || top::show(remote, screen).await)
                    .await
            }
        }
    }
}
