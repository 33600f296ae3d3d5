//! `tidegate queue`: queues, their limits and their weights.

pub(super) mod policies;

use clap::{Args, Subcommand};

use self::policies::{PolicyArgs, PolicyKind};
use super::watch::WatchOption;
use super::workflow::for_each;
use crate::client::address::{Query, escaped};
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::complete;
use crate::client::model;
use crate::client::pages::read_pages;
use crate::output::exit::CommandResult;
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;
use crate::output::table::{Cell, Table};
use crate::output::{ListItem, Screen};

/// Show queues, pause and resume them, and set their limits and weights.
#[derive(Debug, Args)]
pub struct QueueCommand {
    #[command(subcommand)]
    verb: QueueVerb,
}

#[derive(Debug, Subcommand)]
enum QueueVerb {
    /// List queues and the number of ready jobs in each
    List(QueueListArgs),
    /// Pause queues: their jobs are not given to workers; running jobs continue
    Pause(QueueNames),
    /// Resume paused queues
    Resume(QueueNames),
    /// Show, set or remove the limits that all new jobs of a queue get
    Limits(PolicyArgs),
    /// Show, set or remove the weights of keys of a queue
    Weights(PolicyArgs),
}

#[derive(Debug, Args)]
struct QueueListArgs {
    /// At most this many, by name
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    watch: WatchOption,
}

#[derive(Debug, Args)]
struct QueueNames {
    /// Names of queues
    #[arg(required = true, value_name = "QUEUE", add = complete::queue())]
    names: Vec<String>,
}

impl QueueCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        match self.verb {
            QueueVerb::List(wanted) => list(&wanted, remote, screen).await,
            QueueVerb::Pause(names) => names.set("pause", remote, screen).await,
            QueueVerb::Resume(names) => names.set("resume", remote, screen).await,
            QueueVerb::Limits(terms) => terms.run(PolicyKind::QueueLimits, remote, screen).await,
            QueueVerb::Weights(terms) => terms.run(PolicyKind::QueueWeights, remote, screen).await,
        }
    }
}

async fn list(wanted: &QueueListArgs, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let show = async || {
        let pages = read_pages("/v1/queues", &Query::default(), wanted.limit, remote).await?;
        pages.show::<model::Queue>("limit", remote, screen)
    };
    wanted.watch.run(screen, show).await
}

impl ListItem for model::Queue {
    const NOTHING: &str = "no queues: a queue exists from the first job that names it\n";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(items: &[Self], screen: &Screen) -> String {
        let now = Moment::now();
        let mut table = Table::new(&["QUEUE", "STATE", "READY", "OLDEST", "WAITING WORKERS"]);
        for queue in items {
            let oldest = queue
                .oldest_ready_at
                .map(|at| short(now.since(at)))
                .unwrap_or_default();
            let state = if queue.paused {
                Cell::of_state("paused", "paused")
            } else {
                Cell::from("open")
            };
            table.add_row(vec![
                Cell::from(&queue.name),
                state,
                queue.ready.to_string().into(),
                oldest.into(),
                queue.waiting_workers.to_string().into(),
            ]);
        }
        table.text(screen)
    }
}

impl QueueNames {
    async fn set(&self, verb: &str, remote: &ApiClient, screen: &Screen) -> CommandResult {
        for_each(&self.names, screen, async |name| {
            let text = remote
                .text(&ApiRequest::post(
                    format!("/v1/queues/{}:{verb}", escaped(name)),
                    "",
                ))
                .await?;
            screen.object(&text, name, || {
                Ok(format!("{}  {verb}d\n", printable(name)))
            })
        })
        .await
    }
}
