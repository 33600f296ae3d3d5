//! `tidegate job log`: lines that workers wrote to the log of a job.

use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::JobRef;
use crate::client::address::Query;
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::model::{self, LogPage};
use crate::output::exit::{CommandResult, Exit};
use crate::output::printable::{indented, printable};
use crate::output::{Format, ListItem, Screen};

/// Interval between two reads of a log that is followed.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of collected lines, above the number that a server keeps.
const MAX_LINES: usize = 100_000;

#[derive(Debug, Args)]
pub(super) struct JobLogArgs {
    #[command(flatten)]
    named: JobRef,
    /// Go on until the job has ended: each line comes within a second
    #[arg(long)]
    follow: bool,
}

impl JobLogArgs {
    pub(super) async fn run(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        let job = self.named.path(remote).await?;
        if self.follow {
            follow(&job, remote, screen).await
        } else {
            whole(&job, remote, screen).await
        }
    }
}

/// Reads the lines after a position, or from the first line that is kept.
async fn page(job: &str, after: Option<&String>, remote: &ApiClient) -> CommandResult<LogPage> {
    remote
        .get_json(
            Query::default()
                .with("after", after)
                .append_to(&format!("{job}/log")),
        )
        .await
}

async fn whole(job: &str, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let mut items = Vec::new();
    let mut after = None;
    let mut dropped = 0;
    while items.len() < MAX_LINES {
        let LogPage {
            items: found,
            dropped: before,
            next,
        } = page(job, after.as_ref(), remote).await?;
        dropped += before;
        if found.is_empty() || after.as_ref() == Some(&next) {
            break;
        }
        (after, items) = (Some(next), [items, found].concat());
    }
    let more = (dropped > 0).then(|| not_kept(dropped));
    screen.list::<model::LogLine>(&items, more.as_deref(), |item| remote.parse(item))
}

impl ListItem for model::LogLine {
    const NOTHING: &str = "no lines\n";

    fn name(&self) -> String {
        self.text.clone()
    }

    fn text(items: &[Self], _screen: &Screen) -> String {
        items.iter().map(line).collect()
    }
}

async fn follow(job: &str, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let mut after = None;
    let mut is_over = false;
    loop {
        let LogPage {
            items,
            dropped,
            next,
        } = page(job, after.as_ref(), remote).await?;
        if dropped > 0 && screen.is_table() {
            screen.line(&format!("{} {}", screen.dots(), not_kept(dropped)))?;
        }
        show(&items, remote, screen)?;
        let has_new_lines = !items.is_empty() && after.as_ref() != Some(&next);
        after = Some(next);
        match (has_new_lines, is_over) {
            (true, _) => {}
            (false, true) => return Ok(Exit::Done),
            (false, false) => {
                // A worker sends the last lines before it reports the end of the job: one more read
                // finds them.
                is_over = remote
                    .read::<model::Job>(&ApiRequest::get_full(job))
                    .await?
                    .is_over();
                if !is_over {
                    sleep(FOLLOW_INTERVAL).await;
                }
            }
        }
    }
}

fn not_kept(lines: u64) -> String {
    format!("{lines} earlier lines are not kept any more")
}

/// Prints new lines. In JSON, each is on a line of its own.
fn show(items: &[Box<RawValue>], remote: &ApiClient, screen: &Screen) -> CommandResult {
    if items.is_empty() {
        return Ok(Exit::Done);
    }
    if screen.format == Format::Json {
        for item in items {
            screen.object(item.get(), "", || Ok(String::new()))?;
        }
        return Ok(Exit::Done);
    }
    screen.list::<model::LogLine>(items, None, |item| remote.parse(item))
}

/// A line for people, with its time and attempt.
fn line(line: &model::LogLine) -> String {
    let head = format!("{}  {}  ", line.at.to_the_second(), line.attempt);
    let text = indented(&line.text, head.chars().count());
    format!("{}{text}\n", printable(&head))
}
