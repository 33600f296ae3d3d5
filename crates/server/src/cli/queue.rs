//! `tidegate queue`: what waits for workers.

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::address::escaped;
use super::exit::{Exit, Failure};
use super::moment::short;
use super::options::Options;
use super::remote::{Ask, Remote};
use super::screen::{Screen, print, printable};
use super::table::{Cell, Table};
use super::wire;
use super::workflow::for_each;
use crate::clock;

/// Shows queues, and stops and starts them.
#[derive(Debug, Args)]
pub(super) struct Queue {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Lists queues, and how much waits in each
    List,
    /// Stops handing out jobs of queues; what runs goes on
    Pause(Names),
    /// Hands out jobs of queues again
    Resume(Names),
}

#[derive(Debug, Args)]
struct Names {
    /// Names of queues
    #[arg(required = true, value_name = "QUEUE")]
    names: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Queues {
    items: Vec<wire::Queue>,
}

impl Queue {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        match self.verb {
            Verb::List => list(&mut remote, &screen).await,
            Verb::Pause(names) => names.set("pause", &mut remote, &screen).await,
            Verb::Resume(names) => names.set("resume", &mut remote, &screen).await,
        }
    }
}

async fn list(remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    if screen.is_json() {
        let page: wire::Page = remote.read(&Ask::get("/v1/queues")).await?;
        screen.line(&super::list::array(&page.items))?;
        return Ok(Exit::Done);
    }
    let queues: Queues = remote.read(&Ask::get("/v1/queues")).await?;
    if queues.items.is_empty() {
        screen.line("no queues: they come with the first jobs that name them")?;
        return Ok(Exit::Done);
    }
    let now = clock::moment();
    let mut table = Table::new(&["QUEUE", "STATE", "READY", "OLDEST", "WAITING WORKERS"]);
    for queue in &queues.items {
        let oldest = queue.oldest_ready_at.map(|at| short(now.since(at.0))).unwrap_or_default();
        let state = if queue.paused { Cell::of_state("paused", "paused") } else { Cell::from("open") };
        table.row(vec![
            Cell::from(&queue.name),
            state,
            queue.ready.to_string().into(),
            oldest.into(),
            queue.waiting_workers.to_string().into(),
        ]);
    }
    print(&table.text(screen))?;
    Ok(Exit::Done)
}

impl Names {
    async fn set(&self, verb: &str, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
        for_each(&self.names, async |name| {
            let text = remote.text(&Ask::post(format!("/v1/queues/{}:{verb}", escaped(name)), "")).await?;
            if screen.is_json() {
                screen.line(&text)?;
            } else {
                screen.line(&format!("{}  {verb}d", printable(name)))?;
            }
            Ok(Exit::Done)
        })
        .await
    }
}
