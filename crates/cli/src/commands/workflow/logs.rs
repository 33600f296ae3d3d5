//! `tidegate workflow logs`: what workers wrote to the logs of all jobs of a workflow, by time.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::client::address::{Query, escaped};
use crate::client::api_client::ApiClient;
use crate::client::complete;
use crate::client::model::{Job, LogPage, WorkflowSummary};
use crate::client::pages::read_pages;
use crate::client::workflow_ref::{WorkflowRef, path};
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::moment::Moment;
use crate::output::printable::{indented, printable};
use crate::output::{Format, ListItem, Screen};

/// Interval between two reads of logs that are followed.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of jobs whose logs are read, since each needs a request.
const MAX_JOBS: usize = 1_000;

#[derive(Debug, Args)]
pub(crate) struct WorkflowLogsArgs {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    id: WorkflowRef,
    /// Go on until the workflow is over: each line comes within about a second
    #[arg(long, short)]
    follow: bool,
}

/// A line of a log, with the job that it belongs to.
#[derive(Debug, Deserialize)]
struct WorkflowLogLine {
    job: String,
    at: Moment,
    attempt: u64,
    text: String,
}

/// Reader of the logs of one workflow.
struct LogReader<'a> {
    remote: &'a ApiClient,
    path: String,
    jobs: HashMap<String, JobLog>,
}

/// How far the log of a job was read.
#[derive(Debug, Default)]
struct JobLog {
    after: Option<String>,
    /// The job was over before the last read, so there are no other lines.
    is_complete: bool,
}

pub(crate) async fn logs(
    wanted: &WorkflowLogsArgs,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let id = wanted.id.id(remote).await?;
    let mut reader = LogReader {
        remote,
        path: path(&id),
        jobs: HashMap::new(),
    };
    if !wanted.follow {
        let lines = reader.new_lines().await?;
        return screen.list::<WorkflowLogLine>(&lines, None, |item| remote.parse(item));
    }
    loop {
        // Read before the lines: those of a workflow that is over are all there.
        let workflow: WorkflowSummary = remote.get_json(&reader.path).await?;
        let lines = reader.new_lines().await?;
        print_new(&lines, remote, screen)?;
        if workflow.is_over() {
            return Ok(Exit::Done);
        }
        sleep(FOLLOW_INTERVAL).await;
    }
}

/// Prints lines that are new. In JSON, each is on a line of its own.
fn print_new(lines: &[Box<RawValue>], remote: &ApiClient, screen: &Screen) -> CommandResult {
    if lines.is_empty() {
        return Ok(Exit::Done);
    }
    if screen.format == Format::Json {
        for line in lines {
            screen.line(line.get())?;
        }
        return Ok(Exit::Done);
    }
    screen.list::<WorkflowLogLine>(lines, None, |item| remote.parse(item))
}

impl LogReader<'_> {
    /// Lines that were not read before, of all jobs that have begun, by time.
    async fn new_lines(&mut self) -> CommandResult<Vec<Box<RawValue>>> {
        let jobs = format!("{}/jobs", self.path);
        let pages = read_pages(&jobs, &Query::default(), MAX_JOBS, self.remote).await?;
        let mut lines = Vec::new();
        for item in pages.items() {
            let job: Job = self.remote.parse(item.get())?;
            if job.attempt > 0 {
                self.read_job(&job, &mut lines).await?;
            }
        }
        lines.sort_by_key(|(at, _)| *at);
        Ok(lines.into_iter().map(|(_, line)| line).collect())
    }

    async fn read_job(
        &mut self,
        job: &Job,
        lines: &mut Vec<(Moment, Box<RawValue>)>,
    ) -> CommandResult<()> {
        let log = self.jobs.entry(job.name.clone()).or_default();
        if log.is_complete && job.is_over() {
            return Ok(());
        }
        loop {
            let query = Query::default().with("after", log.after.as_ref());
            let address = format!("{}/jobs/{}/log", self.path, escaped(&job.name));
            let page: LogPage = self.remote.get_json(query.append_to(&address)).await?;
            let is_last = page.items.is_empty() || log.after.as_ref() == Some(&page.next);
            log.after = Some(page.next);
            for item in &page.items {
                lines.push(with_job(&job.name, item, self.remote)?);
            }
            if is_last {
                log.is_complete = job.is_over();
                return Ok(());
            }
        }
    }
}

/// The time of a line, and the line with the name of its job.
fn with_job(
    job: &str,
    line: &RawValue,
    remote: &ApiClient,
) -> CommandResult<(Moment, Box<RawValue>)> {
    let mut fields: Map<String, Value> = remote.parse(line.get())?;
    fields.insert("job".to_owned(), job.into());
    let wrong = |error| Failure::unavailable(format!("a line of a log cannot be read: {error}"));
    let text = to_raw_value(&fields).map_err(wrong)?;
    let parsed: WorkflowLogLine = remote.parse(text.get())?;
    Ok((parsed.at, text))
}

impl ListItem for WorkflowLogLine {
    const NOTHING: &str = "no lines\n";

    fn name(&self) -> String {
        self.text.clone()
    }

    fn text(items: &[Self], _screen: &Screen) -> String {
        items.iter().map(Self::line).collect()
    }
}

impl WorkflowLogLine {
    /// The line for people, with its time, job and attempt.
    fn line(&self) -> String {
        let head = format!(
            "{}  {} {}  ",
            self.at.to_the_second(),
            self.job,
            self.attempt
        );
        let text = indented(&self.text, head.chars().count());
        format!("{}{text}\n", printable(&head))
    }
}
