//! `tidegate workflow show` and `graph`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate_workflow::picture::Picture;
use tidegate_workflow::{Definition, Graph as Built, JobDefinition, JobState, Timestamp};

use super::address::escaped;
use super::exit::{Exit, Failure};
use super::list::status;
use super::moment::{Moment, short};
use super::remote::{Ask, Remote};
use super::screen::{Screen, print, printable};
use super::table::{Cell, Table};
use super::wire::{Job, Summary};
use super::workflow::path;
use crate::clock;

/// Jobs that are shown to who did not ask for all: more than a screen, and few enough to scroll back.
const USUAL: usize = 100;
/// Failed jobs whose error is asked for.
const ERRORS: usize = 20;

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Id of the workflow
    pub(super) id: String,
    /// Only jobs of these states; all shows all of them, none shows none
    #[arg(long, value_delimiter = ',', value_name = "STATE")]
    pub(super) jobs: Vec<String>,
    /// Leave out the graph
    #[arg(long)]
    pub(super) no_graph: bool,
    /// Leave out everything but graph and jobs
    #[arg(long, hide = true)]
    pub(super) no_overview: bool,
}

#[derive(Debug, Args)]
pub(super) struct Graph {
    /// Id of the workflow
    pub(super) id: String,
    /// text, svg, dot, mermaid or json (places and states)
    #[arg(long, short, value_name = "FORM", default_value = "text", hide_possible_values = true)]
    pub(super) form: Form,
    /// Write it to a file
    #[arg(long)]
    pub(super) file: Option<PathBuf>,
}

/// How a graph is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For a terminal.
    Text,
    /// For a page or a viewer of pictures.
    Svg,
    /// For Graphviz.
    Dot,
    /// For Mermaid.
    Mermaid,
    /// Places and states, for programs.
    Json,
}

impl Show {
    /// Whether a job is to be shown, when it has this state.
    fn wants(&self, state: &str) -> bool {
        self.jobs.is_empty() || self.jobs.iter().any(|word| word == state || word == "all")
    }

    fn check(&self) -> Result<(), Failure> {
        let known = |word: &&String| JobState::WORDS.contains(&word.as_str()) || *word == "all" || *word == "none";
        match self.jobs.iter().find(|word| !known(word)) {
            Some(word) => {
                let words = JobState::WORDS.join(", ");
                Err(Failure::usage(format!("--jobs '{word}': expected all, none, or states: {words}")))
            }
            None => Ok(()),
        }
    }
}

pub(super) async fn show(show: &Show, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    show.check()?;
    let view = if screen.is_json() { "full" } else { "jobs" };
    let text = remote.text(&Ask::get(format!("{}?view={view}", path(&show.id)))).await?;
    if screen.is_json() {
        screen.line(&text)?;
        return Ok(Exit::Done);
    }
    let workflow: Summary = remote.parse(&text)?;
    let now = clock::moment();
    let mut parts = Vec::new();
    if !show.no_overview {
        parts.push(overview(&workflow, now, screen));
    }
    if !show.no_graph {
        parts.extend(drawing(&workflow, screen));
    }
    let chosen: Vec<&Job> = workflow.jobs_list.iter().filter(|job| show.wants(&job.state)).collect();
    if show.jobs.iter().any(|word| word == "none") {
        // Neither jobs nor a word about them.
    } else if chosen.is_empty() {
        parts.push(format!("no job is {}\n", show.jobs.join(" or ")));
    } else {
        let most = if show.jobs.is_empty() { USUAL } else { usize::MAX };
        let errors = errors(&workflow.id, &chosen, remote).await?;
        parts.push(jobs(&chosen[..chosen.len().min(most)], &errors, (now, screen)).text(screen));
        if chosen.len() > most {
            parts.push(format!("{} {} more jobs: --jobs all\n", screen.dots(), chosen.len() - most));
        }
    }
    print(&parts.join("\n"))?;
    Ok(Exit::Done)
}

fn overview(workflow: &Summary, now: Timestamp, screen: &Screen) -> String {
    let moment = |moment: Moment| format!("{}  {}", moment.to_the_second(), moment.relative(now));
    let jobs: Vec<String> =
        workflow.jobs.present().map(|(word, number)| screen.paint(&format!("{number} {word}"), word)).collect();
    let mut lines = vec![
        ("workflow", workflow.id.clone()),
        ("name", printable(&workflow.name)),
        ("tags", printable(&workflow.tags.join(", "))),
        ("status", screen.paint(&status(workflow), &workflow.status)),
        ("jobs", format!("{}: {}", workflow.jobs.total, jobs.join(", "))),
        ("created", moment(workflow.created_at)),
    ];
    let more = [("started", workflow.started_at), ("finished", workflow.finished_at)];
    lines.extend(more.into_iter().filter_map(|(name, at)| Some((name, moment(at?)))));
    lines.extend(workflow.duration(now).map(|duration| ("duration", short(duration))));
    lines.extend(workflow.expires_at.map(|at| ("removed", moment(at))));
    let line =
        |(name, text): (&str, String)| if text.is_empty() { String::new() } else { format!("{name:<9} {text}\n") };
    lines.into_iter().map(line).collect()
}

/// The graph, drawn here since only this end knows the terminal.
fn drawing(workflow: &Summary, screen: &Screen) -> Option<String> {
    let jobs = workflow.jobs_list.iter().map(|job| {
        let definition = JobDefinition::new(&job.name, &job.handler);
        JobDefinition { after: job.after.clone(), ..definition }
    });
    let definition = Definition { name: workflow.name.clone(), jobs: jobs.collect(), ..Definition::default() };
    // A graph that only a later version understands is not drawn.
    let graph = Built::build(definition).ok()?;
    let states: Vec<JobState> = workflow.jobs_list.iter().map(state).collect();
    Some(Picture::new(&graph, Some(&states)).text(&screen.terminal))
}

fn state(job: &Job) -> JobState {
    let moment = |moment: Option<Moment>| moment.map(|moment| moment.0).unwrap_or_default();
    match job.state.as_str() {
        "scheduled" => JobState::Scheduled { due: moment(job.due_at) },
        "ready" => JobState::Ready,
        "running" => JobState::Running { expires: moment(None) },
        "succeeded" => JobState::Succeeded,
        "failed" => JobState::Failed,
        "cancelled" => JobState::Cancelled,
        "skipped" => JobState::Skipped,
        _ => JobState::Waiting,
    }
}

/// The last error of the first failed jobs, in their order.
async fn errors(id: &str, jobs: &[&Job], remote: &mut Remote) -> Result<Vec<String>, Failure> {
    let mut errors = Vec::new();
    for job in jobs.iter().filter(|job| job.state == "failed").take(ERRORS) {
        let full: Job = remote.read(&Ask::get(format!("{}/jobs/{}", path(id), escaped(&job.name)))).await?;
        let error = full.errors.last();
        errors.push(error.map(|error| format!("{}: {}", error.kind, error.message)).unwrap_or_default());
    }
    Ok(errors)
}

/// A row for each job; the last column says why it is not running, or what went wrong.
pub(super) fn jobs(jobs: &[&Job], errors: &[String], (now, screen): (Timestamp, &Screen)) -> Table {
    let mut table = Table::new(if screen.is_wide() {
        &["JOB", "STATE", "HANDLER", "QUEUE", "ATTEMPT", "WORKER", "READY", "STARTED", "FINISHED", "DURATION", "WHY"]
    } else {
        &["JOB", "STATE", "ATTEMPT", "WORKER", "DURATION", "WHY"]
    });
    let mut errors = errors.iter();
    for job in jobs {
        let error = if job.state == "failed" { errors.next().cloned().unwrap_or_default() } else { String::new() };
        let why = job.why_not_running.as_ref().map_or(error, |why| why.text.clone());
        let duration = job.duration(now).map(short).unwrap_or_default();
        let worker = job.worker.clone().unwrap_or_default();
        let mut row = vec![Cell::from(&job.name), Cell::of_state(&job.state, &job.state)];
        if screen.is_wide() {
            let exact = |moment: Option<Moment>| Cell::from(moment.map(Moment::to_the_second).unwrap_or_default());
            row.extend([Cell::from(&job.handler), Cell::from(&job.queue), attempt(job).into(), worker.into()]);
            row.extend([exact(job.ready_at), exact(job.started_at), exact(job.finished_at)]);
        } else {
            row.extend([Cell::from(attempt(job)), worker.into()]);
        }
        row.extend([duration.into(), why.into()]);
        table.row(row);
    }
    table
}

/// Such as `2/4`: the second of four at most.
pub(super) fn attempt(job: &Job) -> String {
    let lost = if job.lost > 0 { format!(", {} lost", job.lost) } else { String::new() };
    match job.attempt {
        0 if job.lost == 0 => String::new(),
        attempt => format!("{attempt}/{}{lost}", job.retries + 1),
    }
}

pub(super) async fn graph(graph: &Graph, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    let Graph { id, form, file } = graph;
    let text = match form {
        Form::Text => {
            let workflow: Summary = remote.read(&Ask::get(format!("{}?view=jobs", path(id)))).await?;
            drawing(&workflow, screen).unwrap_or_default()
        }
        Form::Svg => remote.text(&Ask::get(format!("{}/graph.svg", path(id)))).await?,
        Form::Dot => remote.text(&Ask::get(format!("{}/graph.dot", path(id)))).await?,
        Form::Mermaid => remote.text(&Ask::get(format!("{}/graph.mmd", path(id)))).await?,
        Form::Json => remote.text(&Ask::get(format!("{}/graph.json", path(id)))).await?,
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match file {
        None => print(&format!("{text}{end}"))?,
        Some(file) => {
            let shown = file.display();
            let written = std::fs::write(file, format!("{text}{end}"));
            written.map_err(|error| Failure::new(Exit::Output, format!("{shown} cannot be written: {error}")))?;
            if !screen.is_json() {
                screen.line(&format!("written to {}", printable(&shown.to_string())))?;
            }
        }
    }
    Ok(Exit::Done)
}
