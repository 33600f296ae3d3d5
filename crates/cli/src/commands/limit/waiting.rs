//! `tidegate limit waiting`: jobs that wait for a limit.

use clap::Args;
use serde::Deserialize;

use super::super::watch::WatchOption;
use super::overrides::Override;
use crate::client::address::Query;
use crate::client::api_client::ApiClient;
use crate::client::complete;
use crate::client::model::JobLimit;
use crate::client::pages::read_pages_of_size;
use crate::output::counted::counted;
use crate::output::exit::CommandResult;
use crate::output::moment::{Moment, short};
use crate::output::table::{Cell, Table};
use crate::output::{ListItem, Screen};

/// Page size limit of the server for this list, in items.
const MAX_PAGE_ITEMS: usize = 100;

/// Ready jobs of one queue and one handler that have the same limits.
#[derive(Debug, Deserialize)]
struct LimitedJobs {
    queue: String,
    handler: String,
    waiting: u64,
    oldest_ready_at: Option<Moment>,
    limits: Vec<LimitWithUse>,
    full: Option<ExhaustedLimit>,
}

#[derive(Debug, Deserialize)]
struct LimitWithUse {
    #[serde(flatten)]
    limit: JobLimit,
    r#use: Option<RateUse>,
    running: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct RateUse {
    used: u64,
    requests_per_unit: u64,
    unit: String,
}

#[derive(Debug, Deserialize)]
struct ExhaustedLimit {
    index: usize,
    until: Moment,
    paused: Option<Override>,
}

#[derive(Debug, Args)]
pub(super) struct LimitWaitingArgs {
    /// Only of this queue
    #[arg(long, value_name = "QUEUE", add = complete::queue())]
    queue: Option<String>,
    /// At most this many, by queue and handler
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    watch: WatchOption,
}

pub(super) async fn list(
    wanted: &LimitWaitingArgs,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let query = Query::default().with("queue", wanted.queue.as_ref());
    let show = async || {
        let pages =
            read_pages_of_size(MAX_PAGE_ITEMS, "/v1/limits", &query, wanted.limit, remote).await?;
        pages.show::<LimitedJobs>("limit", remote, screen)
    };
    wanted.watch.run(screen, show).await
}

impl ListItem for LimitedJobs {
    const NOTHING: &str = "no job with a limit waits\n";

    /// The queue, the handler and the limits, which identify the group.
    fn name(&self) -> String {
        let limits = self.limits.iter().map(|in_use| in_use.limit.to_string());
        [self.queue.clone(), self.handler.clone()]
            .into_iter()
            .chain(limits)
            .collect::<Vec<_>>()
            .join("  ")
    }

    fn text(items: &[Self], screen: &Screen) -> String {
        let now = Moment::now();
        let mut table = Table::new(&[
            "QUEUE", "HANDLER", "WAITING", "OLDEST", "LIMIT", "USED", "STATE",
        ]);
        for key in items {
            let oldest = key
                .oldest_ready_at
                .map(|at| short(now.since(at)))
                .unwrap_or_default();
            for (index, in_use) in key.limits.iter().enumerate() {
                let first = |text: &str| Cell::from(if index == 0 { text } else { "" });
                let full = key.full.as_ref().filter(|full| full.index == index);
                table.add_row(vec![
                    first(&key.queue),
                    first(&key.handler),
                    first(&key.waiting.to_string()),
                    first(&oldest),
                    Cell::from(in_use.limit.to_string()),
                    Cell::from(in_use.used()),
                    Cell::from(
                        full.map(|full| full.state(in_use, screen, now))
                            .unwrap_or_default(),
                    ),
                ]);
            }
        }
        table.text(screen)
    }
}

impl ExhaustedLimit {
    /// Why jobs wait, and until when, such as `full, free in 27s`. A limit of concurrency is free when a
    /// job ends, at an unknown time.
    fn state(&self, limit: &LimitWithUse, screen: &Screen, now: Moment) -> String {
        match &self.paused {
            Some(paused) => paused.state(screen, now),
            None if limit.running.is_some() => "full".to_owned(),
            None => format!("full, free {}", screen.moment(self.until, now)),
        }
    }
}

impl LimitWithUse {
    fn used(&self) -> String {
        match (&self.r#use, self.running) {
            (
                Some(RateUse {
                    used,
                    requests_per_unit,
                    unit,
                }),
                _,
            ) => format!("{used} of {requests_per_unit} per {unit}"),
            (None, Some(running)) => format!("{} at work", counted(running, "job")),
            (None, None) => "no such limit".to_owned(),
        }
    }
}
