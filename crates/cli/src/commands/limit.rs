//! `tidegate limit`: rate limits of requests and jobs.

mod check;
mod job_limit;
mod list;
mod overrides;
mod target;
mod top;

use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

pub(crate) use job_limit::JobLimit as LimitOfJob;

use crate::client::api_client::ApiClient;
use crate::output::Screen;
use crate::output::exit::{Exit, Failure};
use crate::output::moment::span_of;
use target::LimitTarget;

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

#[derive(Debug, Args)]
struct LimitListArgs {
    /// Only of this queue
    #[arg(long, value_name = "QUEUE", value_hint = ValueHint::Other)]
    queue: Option<String>,
    /// At most this many, by queue and handler
    #[arg(long, value_name = "NUMBER", value_hint = ValueHint::Other, default_value_t = 100)]
    limit: usize,
}

#[derive(Debug, Args)]
struct Pause {
    #[command(flatten)]
    target: LimitTarget,
    /// Refuses requests, too
    #[arg(long)]
    gateway: bool,
    #[command(flatten)]
    terms: OverrideOptions,
}

#[derive(Debug, Args)]
struct Scale {
    #[command(flatten)]
    target: LimitTarget,
    /// The factor, 0 to 1000
    #[arg(long, value_name = "FACTOR", value_hint = ValueHint::Other)]
    by: f64,
    #[command(flatten)]
    terms: OverrideOptions,
}

#[derive(Debug, Args)]
struct Check {
    /// The domain
    #[arg(value_name = "DOMAIN", value_hint = ValueHint::Other)]
    domain: String,
    /// The entries of one descriptor
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = target::entry, value_hint = ValueHint::Other)]
    entries: Vec<(String, String)>,
    /// Number of hits
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_hint = ValueHint::Other)]
    hits: u32,
}

/// Duration of an override, and the reason for it.
#[derive(Debug, Args)]
struct OverrideOptions {
    /// Ends after this time; without it, when it is removed
    #[arg(long = "for", value_name = "TIME", value_parser = span_of, value_hint = ValueHint::Other)]
    lasts: Option<Duration>,
    /// Why, for those who see it
    #[arg(long, value_name = "TEXT", value_hint = ValueHint::Other)]
    reason: Option<String>,
}

impl LimitCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> Result<Exit, Failure> {
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
