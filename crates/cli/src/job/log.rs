//! `tidegate job log`: lines that workers wrote to the log of a job.

use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::Named;
use crate::client::address::Query;
use crate::client::exit::{Exit, Failure};
use crate::client::model::{self, LogPage};
use crate::client::remote::{Ask, Remote};
use crate::output::printable::{indented, printable};
use crate::output::{Format, Listed, Screen};

/// Interval between two reads of a log that is followed.
const LOOK: Duration = Duration::from_secs(1);
/// Limit of collected lines, above the number that a server keeps.
const MOST: usize = 100_000;

#[derive(Debug, Args)]
pub(super) struct Log {
    #[command(flatten)]
    named: Named,
    /// Go on until the job has ended: each line comes within a second
    #[arg(long)]
    follow: bool,
}

impl Log {
    pub(super) async fn run(&self, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        let job = self.named.path(remote).await?;
        if self.follow {
            follow(&job, remote, screen).await
        } else {
            whole(&job, remote, screen).await
        }
    }
}

/// Reads the lines after a position, or from the first line that is kept.
async fn page(job: &str, after: Option<&String>, remote: &Remote) -> Result<LogPage, Failure> {
    remote
        .read(&Ask::get(
            Query::default()
                .with("after", after)
                .of(&format!("{job}/log")),
        ))
        .await
}

async fn whole(job: &str, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let mut items = Vec::new();
    let mut after = None;
    let mut dropped = 0;
    while items.len() < MOST {
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
    screen.list::<model::LogLine>(&items, more.as_deref(), |item| remote.parse(item))?;
    Ok(Exit::Done)
}

impl Listed for model::LogLine {
    const NOTHING: &str = "no lines\n";

    fn name(&self) -> String {
        self.text.clone()
    }

    fn text(items: &[Self], _screen: &Screen) -> String {
        items.iter().map(line).collect()
    }
}

async fn follow(job: &str, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let mut after = None;
    let mut over = false;
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
        let news = !items.is_empty() && after.as_ref() != Some(&next);
        after = Some(next);
        match (news, over) {
            (true, _) => {}
            (false, true) => return Ok(Exit::Done),
            (false, false) => {
                // A worker sends the last lines before it reports the end of the job: one more read
                // finds them.
                over = remote.read::<model::Job>(&Ask::whole(job)).await?.is_over();
                if !over {
                    sleep(LOOK).await;
                }
            }
        }
    }
}

fn not_kept(lines: u64) -> String {
    format!("{lines} earlier lines are not kept any more")
}

/// Prints new lines. In JSON, each is on a line of its own.
fn show(items: &[Box<RawValue>], remote: &Remote, screen: &Screen) -> Result<(), Failure> {
    if items.is_empty() {
        return Ok(());
    }
    if screen.format == Format::Json {
        let nothing = || Ok(String::new());
        return items
            .iter()
            .try_for_each(|item| screen.object(item.get(), "", nothing));
    }
    screen.list::<model::LogLine>(items, None, |item| remote.parse(item))
}

/// A line for people, with its time and attempt.
fn line(line: &model::LogLine) -> String {
    let head = format!("{}  {}  ", line.at.to_the_second(), line.attempt);
    let text = indented(&line.text, head.chars().count());
    format!("{}{text}\n", printable(&head))
}
