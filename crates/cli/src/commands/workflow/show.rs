//! `tidegate workflow show` and `graph`.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::list::status;
use crate::client::address::{Query, escaped};
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::complete;
use crate::client::model::{Job, STATES, WorkflowSummary};
use crate::client::workflow_ref::{WorkflowRef, path};
use crate::environment::{Colour, Glyphs};
use crate::output::counted::counted;
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::moment::{Moment, short};
use crate::output::printable::{self, printable};
use crate::output::table::{Cell, Table};
use crate::output::{Format, Screen, facts, file, print};

/// Limit of jobs that are shown by default: more than a screen, and few enough to scroll back.
const DEFAULT_JOB_LIMIT: usize = 100;
/// Widths of a drawing that the server accepts.
const MIN_DRAWING_WIDTH: usize = 20;
const MAX_DRAWING_WIDTH: usize = 10_000;
/// Limit of failed jobs whose error is requested.
const MAX_SHOWN_ERRORS: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct WorkflowShowArgs {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    pub(crate) id: WorkflowRef,
    /// Only jobs of these states, with commas between them; all shows all of them, none shows none
    #[arg(long, value_delimiter = ',', value_name = "STATE", value_parser = shown_states())]
    pub(crate) jobs: Vec<String>,
    /// Leave out the graph
    #[arg(long)]
    pub(crate) no_graph: bool,
    /// Leave out everything but graph and jobs
    #[arg(long, hide = true)]
    pub(crate) no_overview: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    pub(crate) id: WorkflowRef,
    /// Form of the drawing
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    pub(crate) form: DrawingFormat,
    /// Write it to a file
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// Format of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DrawingFormat {
    /// For a terminal
    Text,
    /// For a page or a viewer of pictures
    Svg,
    /// For Graphviz
    Dot,
    /// For Mermaid
    Mermaid,
    /// Places and states, for programs
    Json,
}

impl DrawingFormat {
    /// The extension of the file at the server. Drawings for a terminal also depend on its width.
    fn extension(self) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Svg => Some("svg"),
            Self::Dot => Some("dot"),
            Self::Mermaid => Some("mmd"),
            Self::Json => Some("json"),
        }
    }
}

impl WorkflowShowArgs {
    /// Whether jobs of this state are shown.
    fn wants(&self, state: &str) -> bool {
        self.jobs.is_empty() || self.jobs.iter().any(|word| word == state || word == "all")
    }

    fn jobs<'a>(&self, workflow: &'a WorkflowSummary) -> Vec<&'a Job> {
        workflow
            .jobs
            .iter()
            .filter(|job| self.wants(&job.state))
            .collect()
    }
}

pub(crate) fn shown_states() -> PossibleValuesParser {
    PossibleValuesParser::new(["all", "none"].into_iter().chain(STATES))
}

pub(crate) async fn show(
    show: &WorkflowShowArgs,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let path = show.id.path(remote).await?;
    let view = if screen.is_table() { "jobs" } else { "full" };
    let text = remote
        .text(&ApiRequest::get_full(format!("{path}?view={view}")))
        .await?;
    let workflow: WorkflowSummary = remote.parse(&text)?;
    let shown = if screen.is_table() {
        workflow_text(show, &workflow, remote, screen).await?
    } else {
        String::new()
    };
    let text = if show.jobs.is_empty() || screen.is_table() {
        text
    } else {
        select_jobs(&text, show, remote)?
    };
    screen.object(&text, &workflow.id, || Ok(shown))
}

/// The answer of the server, reduced to the jobs that are shown. The rest of the text stays
/// unchanged.
fn select_jobs(text: &str, show: &WorkflowShowArgs, remote: &ApiClient) -> CommandResult<String> {
    #[derive(Deserialize)]
    struct FullAnswer<'a> {
        #[serde(borrow)]
        jobs: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct JobWithState {
        state: String,
    }
    let whole: FullAnswer<'_> = remote.parse(text)?;
    let jobs = whole.jobs.get();
    let items: Vec<&RawValue> = remote.parse(jobs)?;
    let mut kept = Vec::new();
    for item in items {
        if show.wants(&remote.parse::<JobWithState>(item.get())?.state) {
            kept.push(item.get());
        }
    }
    // `jobs` is a slice of `text`, so the difference of their addresses is its offset.
    let start = jobs.as_ptr() as usize - text.as_ptr() as usize;
    Ok(format!(
        "{}[{}]{}",
        &text[..start],
        kept.join(","),
        &text[start + jobs.len()..]
    ))
}

async fn workflow_text(
    show: &WorkflowShowArgs,
    workflow: &WorkflowSummary,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult<String> {
    let now = Moment::now();
    let mut parts = Vec::new();
    if !show.no_overview {
        parts.push(overview(workflow, now, screen));
    }
    if !show.no_graph {
        parts.push(drawing(&path(&workflow.id), remote, screen).await?);
    }
    let chosen = show.jobs(workflow);
    if show.jobs.iter().any(|word| word == "none") {
        // Neither the jobs nor a remark about them is shown.
    } else if chosen.is_empty() {
        parts.push(format!("no job is {}\n", show.jobs.join(" or ")));
    } else {
        let most = if show.jobs.is_empty() {
            DEFAULT_JOB_LIMIT
        } else {
            usize::MAX
        };
        let errors = errors(&workflow.id, &chosen, remote).await?;
        parts.push(jobs(&chosen[..chosen.len().min(most)], &errors, now, screen).text(screen));
        if chosen.len() > most {
            parts.push(format!(
                "{} {}: --jobs all\n",
                screen.dots(),
                counted((chosen.len() - most) as u64, "more job")
            ));
        }
    }
    Ok(parts.join("\n"))
}

fn overview(workflow: &WorkflowSummary, now: Moment, screen: &Screen) -> String {
    let moment = |moment: Moment| moment.with_distance(now);
    let status = screen.paint(&status(workflow), &workflow.status);
    let lines = [
        ("workflow", Some(printable(&workflow.id))),
        ("name", Some(printable(&workflow.name))),
        ("tags", Some(printable(&workflow.tags.join(", ")))),
        ("status", Some(status)),
        ("jobs", Some(job_numbers(workflow, screen))),
        ("created", Some(moment(workflow.created_at))),
        ("started", workflow.started_at.map(moment)),
        ("finished", workflow.finished_at.map(moment)),
        ("duration", workflow.duration(now).map(short)),
        ("kept until", workflow.expires_at.map(moment)),
    ];
    facts(10, lines)
}

/// Number of jobs in all, and in each state.
fn job_numbers(workflow: &WorkflowSummary, screen: &Screen) -> String {
    let states: Vec<String> = workflow
        .states_with_jobs()
        .map(|(word, number)| screen.paint(&format!("{number} {word}"), word))
        .collect();
    format!("{}: {}", workflow.job_counts.total, states.join(", "))
}

/// The graph as text, as wide as the screen. The server draws it, but only the client knows the
/// terminal.
async fn drawing(path: &str, remote: &ApiClient, screen: &Screen) -> CommandResult<String> {
    let query = Query::default()
        .with(
            "width",
            Some(screen.width.clamp(MIN_DRAWING_WIDTH, MAX_DRAWING_WIDTH)),
        )
        .with("ascii", Some(screen.glyphs == Glyphs::Ascii))
        .with("colour", Some(screen.colour == Colour::Ansi));
    let text = remote
        .get(query.append_to(&format!("{path}/graph.txt")))
        .await?;
    Ok(printable::drawing(&text, screen.colour))
}

/// The last error of each of the first failed jobs, in order.
async fn errors(id: &str, jobs: &[&Job], remote: &ApiClient) -> CommandResult<Vec<String>> {
    let mut errors = Vec::new();
    for job in jobs
        .iter()
        .filter(|job| job.state == "failed")
        .take(MAX_SHOWN_ERRORS)
    {
        let full: Job = remote
            .get_json(format!("{}/jobs/{}", path(id), escaped(&job.name)))
            .await?;
        let error = full.errors.last();
        errors.push(
            error
                .map(|error| format!("{}: {}", error.kind, error.message))
                .unwrap_or_default(),
        );
    }
    Ok(errors)
}

/// A row for each job. The reason why it is not running, or its error, is a note below it or a
/// column of a wide table.
pub(crate) fn jobs(jobs: &[&Job], errors: &[String], now: Moment, screen: &Screen) -> Table {
    let mut table = Table::new(if screen.is_wide() {
        &[
            "JOB", "STATE", "HANDLER", "QUEUE", "ATTEMPT", "WORKER", "READY", "STARTED",
            "FINISHED", "DURATION", "WHY",
        ]
    } else {
        &["JOB", "STATE", "ATTEMPT", "WORKER", "DURATION"]
    });
    let mut errors = errors.iter();
    for job in jobs {
        let error = (job.state == "failed").then(|| errors.next()).flatten();
        let listed = job.error.as_ref().map(ToString::to_string);
        let why = job.why_not_running.as_ref().map(|why| why.text.clone());
        let why = why.or(error.cloned()).or(listed).unwrap_or_default();
        if screen.is_wide() {
            table.add_row(wide_row(job, &why, now));
        } else {
            table.add_row(vec![
                Cell::from(&job.name),
                Cell::of_state(job.word(), job.word()),
                attempt(job).into(),
                job.worker.clone().unwrap_or_default().into(),
                job.duration(now).map(short).unwrap_or_default().into(),
            ]);
            table.add_note(&why);
        }
    }
    table
}

/// The row of a job in a wide table.
fn wide_row(job: &Job, why: &str, now: Moment) -> Vec<Cell> {
    vec![
        Cell::from(&job.name),
        Cell::of_state(job.word(), job.word()),
        Cell::from(&job.handler),
        Cell::from(&job.queue),
        attempt(job).into(),
        job.worker.clone().unwrap_or_default().into(),
        Cell::moment(job.ready_at),
        Cell::moment(job.started_at),
        Cell::moment(job.finished_at),
        job.duration(now).map(short).unwrap_or_default().into(),
        Cell::lines(why),
    ]
}

/// The attempt in words, such as `2/4`: the second of at most four.
pub(crate) fn attempt(job: &Job) -> String {
    let lost = match job.lost {
        0 if job.lost_total == 0 => String::new(),
        0 => format!(", {} lost", job.lost_total),
        lost => format!(", lost {lost} of {} in a row", job.max_lost),
    };
    match job.attempt {
        0 if lost.is_empty() => String::new(),
        attempt => format!("{attempt}/{}{lost}", job.retries.saturating_add(1)),
    }
}

pub(crate) async fn graph(graph: &GraphArgs, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let GraphArgs { id, form, file } = graph;
    if matches!(
        screen.requested,
        Some(Format::Json | Format::Yaml | Format::Name)
    ) {
        return Err(Failure::usage(
            "--output: a graph has its own forms: --form text, svg, dot, mermaid or json",
        ));
    }
    let path = id.path(remote).await?;
    let text = match form.extension() {
        None => drawing(&path, remote, screen).await?,
        Some(extension) => remote.get(format!("{path}/graph.{extension}")).await?,
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match file {
        None if screen.is_terminal && *form != DrawingFormat::Text => {
            print(&(printable::drawing(&text, Colour::None) + end))?
        }
        None => print(&format!("{text}{end}"))?,
        Some(file) => save(file, &format!("{text}{end}"), screen)?,
    }
    Ok(Exit::Done)
}

/// Writes a drawing to a file.
fn save(file: &Path, text: &str, screen: &Screen) -> CommandResult<()> {
    let shown = file.display();
    file::write(file, text).map_err(|error| {
        Failure::new(Exit::Output, format!("{shown} cannot be written: {error}"))
    })?;
    if screen.is_table() {
        screen.line(&format!("written to {}", printable(&shown.to_string())))?;
    }
    Ok(())
}
