//! `tidegate queue`: queues, their limits and their weights.

use clap::{Args, Subcommand, ValueHint};

use crate::client::address::{Query, escaped};
use crate::client::exit::{Exit, Failure};
use crate::client::model;
use crate::client::pages::pages;
use crate::client::remote::{Ask, Remote};
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;
use crate::output::table::{Cell, Table};
use crate::output::{Listed, Screen};
use crate::policies::{Of, Terms};
use crate::workflow::for_each;

/// Shows queues, pauses and resumes them, and sets their limits and weights.
#[derive(Debug, Args)]
pub struct Queue {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Lists queues and the number of ready jobs in each
    List(List),
    /// Pauses queues: their jobs are not given to workers; running jobs continue
    Pause(Names),
    /// Resumes paused queues
    Resume(Names),
    /// Shows, sets or removes the limits that all new jobs of a queue get
    Limits(Terms),
    /// Shows, sets or removes the weights of keys of a queue
    Weights(Terms),
}

#[derive(Debug, Args)]
struct List {
    /// At most this many, by name
    #[arg(long, value_name = "NUMBER", value_hint = ValueHint::Other, default_value_t = 1_000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct Names {
    /// Names of queues
    #[arg(required = true, value_name = "QUEUE", value_hint = ValueHint::Other)]
    names: Vec<String>,
}

impl Queue {
    pub(crate) async fn run(self, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        match self.verb {
            Verb::List(wanted) => list(&wanted, remote, screen).await,
            Verb::Pause(names) => names.set("pause", remote, screen).await,
            Verb::Resume(names) => names.set("resume", remote, screen).await,
            Verb::Limits(terms) => terms.run(Of::QueueLimits, remote, screen).await,
            Verb::Weights(terms) => terms.run(Of::QueueWeights, remote, screen).await,
        }
    }
}

async fn list(wanted: &List, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let pages = pages("/v1/queues", &Query::default(), wanted.limit, remote).await?;
    pages.show::<model::Queue>("limit", remote, screen)
}

impl Listed for model::Queue {
    const NOTHING: &str = "no queues: a queue exists from the first job that names it\n";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(items: &[Self], screen: &Screen) -> String {
        table(items).text(screen)
    }
}

fn table(queues: &[model::Queue]) -> Table {
    let now = Moment::now();
    let mut table = Table::new(&["QUEUE", "STATE", "READY", "OLDEST", "WAITING WORKERS"]);
    for queue in queues {
        let oldest = queue
            .oldest_ready_at
            .map(|at| short(now.since(at)))
            .unwrap_or_default();
        let state = if queue.paused {
            Cell::of_state("paused", "paused")
        } else {
            Cell::from("open")
        };
        table.row(vec![
            Cell::from(&queue.name),
            state,
            queue.ready.to_string().into(),
            oldest.into(),
            queue.waiting_workers.to_string().into(),
        ]);
    }
    table
}

impl Names {
    async fn set(&self, verb: &str, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        for_each(&self.names, async |name| {
            let text = remote
                .text(&Ask::post(
                    format!("/v1/queues/{}:{verb}", escaped(name)),
                    "",
                ))
                .await?;
            screen.object(&text, name, || {
                Ok(format!("{}  {verb}d\n", printable(name)))
            })?;
            Ok(Exit::Done)
        })
        .await
    }
}
