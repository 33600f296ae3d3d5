//! `tidegate worker`: the processes that run jobs.

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::watch::WatchOption;
use super::workflow::for_each;
use crate::client::address::{Query, escaped};
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::complete;
use crate::client::pages::{Pages, read_pages_of_size};
use crate::client::workflow_ref::{SHORT_ID_LENGTH, short_id};
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;
use crate::output::table::{Cell, Table};
use crate::output::{ListItem, Screen, facts};

/// Page size limit of the server for this list, in items.
const MAX_PAGE_ITEMS: usize = 100;

/// Show workers and what they run, and drain them.
#[derive(Debug, Args)]
pub struct WorkerCommand {
    #[command(subcommand)]
    verb: WorkerVerb,
}

#[derive(Debug, Subcommand)]
enum WorkerVerb {
    /// List workers and the job that each has run for longest
    List(WorkerListArgs),
    /// Show a worker: its queues, its handlers and its jobs
    Show(WorkerName),
    /// Drain workers: they finish their jobs and get no others
    Drain(WorkerNames),
    /// Give drained workers jobs again
    Undrain(WorkerNames),
}

#[derive(Debug, Args)]
struct WorkerListArgs {
    /// At most this many, by name
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    watch: WatchOption,
}

#[derive(Debug, Args)]
struct WorkerName {
    /// Name of the worker
    #[arg(value_name = "WORKER", add = complete::worker())]
    name: String,
}

#[derive(Debug, Args)]
struct WorkerNames {
    /// Names of workers
    #[arg(required = true, value_name = "WORKER", add = complete::worker())]
    names: Vec<String>,
}

/// A worker, as the server lists it.
#[derive(Debug, Deserialize)]
struct Worker {
    name: String,
    seen_at: Option<Moment>,
    #[serde(default)]
    queues: Vec<String>,
    /// `None`: the worker runs all handlers.
    handlers: Option<Vec<String>>,
    running: u64,
    #[serde(default)]
    jobs: Vec<WorkerJob>,
    draining_since: Option<Moment>,
    draining_by: Option<String>,
}

/// A job that a worker runs.
#[derive(Debug, Deserialize)]
struct WorkerJob {
    workflow_id: String,
    job: String,
    handler: String,
    since: Moment,
}

impl WorkerCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        match self.verb {
            WorkerVerb::List(wanted) => {
                let show = async || {
                    let pages = read(wanted.limit, remote).await?;
                    pages.show::<Worker>("limit", remote, screen)
                };
                wanted.watch.run(screen, show).await
            }
            WorkerVerb::Show(worker) => worker.show(remote, screen).await,
            WorkerVerb::Drain(workers) => workers.set("drain", remote, screen).await,
            WorkerVerb::Undrain(workers) => workers.set("undrain", remote, screen).await,
        }
    }
}

async fn read(limit: usize, remote: &ApiClient) -> CommandResult<Pages> {
    read_pages_of_size(
        MAX_PAGE_ITEMS,
        "/v1/workers",
        &Query::default(),
        limit,
        remote,
    )
    .await
}

impl ListItem for Worker {
    const NOTHING: &str = "no workers in the last two minutes\n";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(items: &[Self], screen: &Screen) -> String {
        let now = Moment::now();
        let mut table = Table::new(&["WORKER", "STATE", "RUNNING", "JOB", "FOR", "QUEUES", "SEEN"]);
        for worker in items {
            let job = worker.jobs.first();
            table.add_row(vec![
                Cell::short(&worker.name),
                worker.state(),
                worker.running.to_string().into(),
                job.map(|job| job.job.clone()).unwrap_or_default().into(),
                job.map(|job| short(now.since(job.since)))
                    .unwrap_or_default()
                    .into(),
                worker.queues.join(",").into(),
                worker.seen(screen, now).into(),
            ]);
        }
        table.text(screen)
    }
}

impl Worker {
    fn state(&self) -> Cell {
        if self.draining_since.is_some() {
            Cell::of_state("draining", "paused")
        } else {
            Cell::short("active")
        }
    }

    fn seen(&self, screen: &Screen, now: Moment) -> String {
        self.seen_at
            .map(|at| screen.moment(at, now))
            .unwrap_or_default()
    }

    /// All that is known of the worker, with a table of its jobs.
    fn details(&self, screen: &Screen) -> String {
        let now = Moment::now();
        let by = self.draining_by.as_deref();
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        let draining = self
            .draining_since
            .map(|since| format!("{}{by}", since.with_distance(now)));
        let handlers = match &self.handlers {
            None => "all".to_owned(),
            Some(handlers) => handlers.join(", "),
        };
        let mut out = facts(
            9,
            [
                ("worker", Some(printable(&self.name))),
                ("draining", draining.as_deref().map(printable)),
                ("queues", Some(printable(&self.queues.join(", ")))),
                ("handlers", Some(printable(&handlers))),
                ("seen", self.seen_at.map(|at| at.with_distance(now))),
                ("running", Some(self.running.to_string())),
            ],
        );
        if !self.jobs.is_empty() {
            let mut table = Table::new(&["WORKFLOW", "JOB", "HANDLER", "FOR"]);
            for job in &self.jobs {
                table.add_row(vec![
                    Cell::whole(&short_id(&job.workflow_id, SHORT_ID_LENGTH)),
                    Cell::short(&job.job),
                    Cell::from(&job.handler),
                    short(now.since(job.since)).into(),
                ]);
            }
            out += "\n";
            out += &table.text(screen);
        }
        out
    }
}

impl WorkerName {
    async fn show(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        // The API has no call for one worker; there are at most some thousands.
        let pages = read(usize::MAX, remote).await?;
        for item in pages.items() {
            let worker: Worker = remote.parse(item.get())?;
            if worker.name == self.name {
                return screen.object(item.get(), &self.name, || Ok(worker.details(screen)));
            }
        }
        Err(Failure::new(
            Exit::NotFound,
            format!(
                "no worker '{}' has called in the last two minutes; `tidegate worker list` names those that have",
                self.name
            ),
        ))
    }
}

impl WorkerNames {
    async fn set(&self, verb: &str, remote: &ApiClient, screen: &Screen) -> CommandResult {
        for_each(&self.names, screen, async |name| {
            let path = format!("/v1/workers/{}:{verb}", escaped(name));
            let text = remote.text(&ApiRequest::post(path, "")).await?;
            screen.object(&text, name, || {
                Ok(format!("{}  {verb}ed\n", printable(name)))
            })
        })
        .await
    }
}
