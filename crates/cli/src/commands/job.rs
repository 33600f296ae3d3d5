//! `tidegate job`: the jobs of a workflow.

mod log;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::json;
use serde_json::value::RawValue;

use super::watch::WatchOption;
use super::workflow::{act, show};
use crate::client::address::{Query, escaped};
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::complete;
use crate::client::model::{self, LISTED_STATES};
use crate::client::pages::read_pages;
use crate::client::workflow_ref::WorkflowRef;
use crate::output::exit::{CommandResult, Failure};
use crate::output::moment::{Moment, short};
use crate::output::printable::{indented, printable};
use crate::output::{ListItem, Screen, facts};

/// Show and control single jobs of a workflow.
#[derive(Debug, Args)]
pub struct JobCommand {
    #[command(subcommand)]
    verb: JobVerb,
}

#[derive(Debug, Subcommand)]
enum JobVerb {
    /// List the jobs of a workflow
    List(JobListArgs),
    /// Show progress, params, output and errors of a job
    Show(JobRef),
    /// Show the log of a job: each line with its time and attempt
    Log(log::JobLogArgs),
    /// Run a failed or cancelled job again
    Retry(JobRef),
    /// Skip a job; the jobs after it follow their rule: with none_failed or all_done they run, with
    /// all_success they are skipped, too
    Skip(JobRef),
    /// Mark a job as succeeded, with an output if one is given
    MarkSucceeded(MarkSucceededArgs),
    /// Cancel a job
    Cancel(JobRef),
}

#[derive(Debug, Args)]
struct JobListArgs {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    id: WorkflowRef,
    /// Only those of these states, with commas between them
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(LISTED_STATES))]
    state: Vec<String>,
    /// At most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    watch: WatchOption,
}

#[derive(Debug, Args)]
struct JobRef {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    id: WorkflowRef,
    /// Name of the job
    #[arg(add = complete::job())]
    job: String,
}

#[derive(Debug, Args)]
struct MarkSucceededArgs {
    #[command(flatten)]
    named: JobRef,
    /// Its output as JSON; the jobs after it get it
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
}

impl JobRef {
    async fn path(&self, remote: &ApiClient) -> CommandResult<String> {
        Ok(format!(
            "{}/jobs/{}",
            self.id.path(remote).await?,
            escaped(&self.job)
        ))
    }

    async fn act(
        &self,
        verb: &str,
        body: String,
        remote: &ApiClient,
        screen: &Screen,
    ) -> CommandResult {
        act(
            format!("{}:{verb}", self.path(remote).await?),
            body,
            remote,
            screen,
        )
        .await
    }

    async fn show(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        let text = remote
            .text(&ApiRequest::get_full(self.path(remote).await?))
            .await?;
        screen.object(&text, &self.job, || {
            Ok(job_text(&remote.parse(&text)?, screen))
        })
    }
}

impl JobCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        match self.verb {
            JobVerb::List(list) => list.run(remote, screen).await,
            JobVerb::Show(named) => named.show(remote, screen).await,
            JobVerb::Log(log) => log.run(remote, screen).await,
            JobVerb::Retry(named) => named.act("retry", String::new(), remote, screen).await,
            JobVerb::Skip(named) => named.act("skip", String::new(), remote, screen).await,
            JobVerb::MarkSucceeded(mark) => mark.run(remote, screen).await,
            JobVerb::Cancel(named) => named.act("cancel", String::new(), remote, screen).await,
        }
    }
}

impl MarkSucceededArgs {
    async fn run(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        let wrong = |error| Failure::usage(format!("--result is not JSON: {error}"));
        let output = self
            .result
            .as_deref()
            .map(serde_json::from_str::<&RawValue>)
            .transpose()
            .map_err(wrong)?;
        self.named
            .act(
                "mark_succeeded",
                json!({ "output": output }).to_string(),
                remote,
                screen,
            )
            .await
    }
}

impl JobListArgs {
    async fn run(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        let states = Some(self.state.join(",")).filter(|states| !states.is_empty());
        let query = Query::default().with("state", states);
        let path = format!("{}/jobs", self.id.path(remote).await?);
        let show = async || {
            let pages = read_pages(&path, &query, self.limit, remote).await?;
            pages.show::<model::Job>("limit", remote, screen)
        };
        self.watch.run(screen, show).await
    }
}

impl ListItem for model::Job {
    const NOTHING: &str = "no jobs\n";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(items: &[Self], screen: &Screen) -> String {
        let jobs: Vec<&Self> = items.iter().collect();
        show::jobs(&jobs, &[], Moment::now(), screen).text(screen)
    }
}

/// Progress of a job in words, as its worker reported it last.
fn progress_text(progress: &model::Progress, job: &model::Job, now: Moment) -> String {
    let model::Progress {
        percent,
        text,
        at,
        attempt,
    } = progress;
    let before = if *attempt == job.attempt {
        String::new()
    } else {
        format!(" in attempt {attempt}")
    };
    let text = if text.is_empty() {
        String::new()
    } else {
        format!("  {}", printable(text))
    };
    format!("{percent}%{text}  {}{before}", at.relative(now))
}

/// Columns before the value in each line.
const MARGIN: usize = 10;

fn job_text(job: &model::Job, screen: &Screen) -> String {
    let now = Moment::now();
    let moment = |moment: Option<Moment>| moment.map(|moment| moment.with_distance(now));
    let limits: Vec<String> = job.limits.iter().map(model::JobLimit::to_string).collect();
    let plan = [
        ("after", Some(printable(&job.after.join(", ")))),
        ("limits", Some(limits.join(&format!("\n{:MARGIN$}", "")))),
        ("ready", moment(job.ready_at)),
        ("started", moment(job.started_at)),
        ("finished", moment(job.finished_at)),
        ("duration", job.duration(now).map(short)),
        ("params", job.params.as_deref().map(json_text)),
        ("output", job.output.as_deref().map(json_text)),
    ];
    let mut out = state_text(job, now, screen) + &facts(MARGIN - 1, plan);
    out.extend(job.errors.iter().map(|error| attempt_error(error, now)));
    out
}

fn json_text(json: &RawValue) -> String {
    indented(json.get(), MARGIN)
}

/// Lines that name a job, and say how far it is.
fn state_text(job: &model::Job, now: Moment, screen: &Screen) -> String {
    let why = job.why_not_running.as_ref();
    let progress = job.progress.as_ref();
    let state = [
        ("job", Some(printable(&job.name))),
        ("handler", Some(printable(&job.handler))),
        ("queue", Some(printable(&job.queue))),
        ("state", Some(screen.paint(job.word(), job.word()))),
        ("why", why.map(|why| indented(&why.text, MARGIN))),
        ("attempt", Some(show::attempt(job))),
        (
            "progress",
            progress.map(|progress| progress_text(progress, job, now)),
        ),
        ("worker", job.worker.as_deref().map(printable)),
    ];
    facts(MARGIN - 1, state)
}

fn attempt_error(error: &model::AttemptError, now: Moment) -> String {
    let worker = error.worker.as_deref();
    let by = worker
        .map(|worker| format!(" by {worker}"))
        .unwrap_or_default();
    let head = format!("attempt {}{by}, {}", error.attempt, error.at.relative(now));
    let message = indented(&format!("{}: {}", error.kind, error.message), 2);
    let mut text = format!("\n{}\n  {message}\n", printable(&head));
    if let Some(trace) = &error.trace {
        text += &format!("    {}\n", indented(trace, 4));
    }
    text
}
