//! `tidegate queue`: what waits for workers.

use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::ask::address::escaped;
use crate::ask::exit::{Exit, Failure};
use crate::ask::options::Options;
use crate::ask::remote::{Ask, Remote};
use crate::ask::wire;
use crate::screen::moment::{Moment, short};
use crate::screen::table::{Cell, Table};
use crate::screen::{Screen, print, printable};
use crate::workflow::for_each;

/// Shows queues, and stops and starts them.
#[derive(Debug, Args)]
pub struct Queue {
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
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
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
        screen.line(&crate::workflow::list::array(&page.items))?;
        return Ok(Exit::Done);
    }
    let queues: Queues = remote.read(&Ask::get("/v1/queues")).await?;
    if queues.items.is_empty() {
        screen.line("no queues: they come with the first jobs that name them")?;
        return Ok(Exit::Done);
    }
    let now = Moment::now();
    let mut table = Table::new(&["QUEUE", "STATE", "READY", "OLDEST", "WAITING WORKERS"]);
    for queue in &queues.items {
        let oldest = queue.oldest_ready_at.map(|at| short(now.since(at))).unwrap_or_default();
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
