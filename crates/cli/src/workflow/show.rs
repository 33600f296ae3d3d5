//! `tidegate workflow show` and `graph`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::ask::address::{Query, escaped};
use crate::ask::environment::{Colour, Glyphs};
use crate::ask::exit::{Exit, Failure};
use crate::ask::remote::{Ask, Remote};
use crate::ask::wire::{Job, STATES, Summary};
use crate::screen::moment::{Moment, short};
use crate::screen::table::{Cell, Table};
use crate::screen::{Screen, print, printable};
use crate::workflow::list::status;
use crate::workflow::path;

/// Jobs that are shown to who did not ask for all: more than a screen, and few enough to scroll back.
const USUAL: usize = 100;
/// The widths that the server draws for.
const LEAST_WIDTH: usize = 20;
const MOST_WIDTH: usize = 10_000;
/// Failed jobs whose error is asked for.
const ERRORS: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Id of the workflow
    pub(crate) id: String,
    /// Only jobs of these states; all shows all of them, none shows none
    #[arg(long, value_delimiter = ',', value_name = "STATE")]
    pub(crate) jobs: Vec<String>,
    /// Leave out the graph
    #[arg(long)]
    pub(crate) no_graph: bool,
    /// Leave out everything but graph and jobs
    #[arg(long, hide = true)]
    pub(crate) no_overview: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Graph {
    /// Id of the workflow
    pub(crate) id: String,
    /// text, svg, dot, mermaid or json (places and states)
    #[arg(long, short, value_name = "FORM", default_value = "text", hide_possible_values = true)]
    pub(crate) form: Form,
    /// Write it to a file
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
}

/// How a graph is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
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
        let known = |word: &&String| STATES.contains(&word.as_str()) || *word == "all" || *word == "none";
        match self.jobs.iter().find(|word| !known(word)) {
            Some(word) => {
                let words = STATES.join(", ");
                Err(Failure::usage(format!("--jobs '{word}': expected all, none, or states: {words}")))
            }
            None => Ok(()),
        }
    }
}

pub(crate) async fn show(show: &Show, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    show.check()?;
    let view = if screen.is_json() { "full" } else { "jobs" };
    let text = remote.text(&Ask::get(format!("{}?view={view}", path(&show.id)))).await?;
    if screen.is_json() {
        screen.line(&text)?;
        return Ok(Exit::Done);
    }
    let workflow: Summary = remote.parse(&text)?;
    let now = Moment::now();
    let mut parts = Vec::new();
    if !show.no_overview {
        parts.push(overview(&workflow, now, screen));
    }
    if !show.no_graph {
        parts.push(drawing(&show.id, remote, screen).await?);
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

fn overview(workflow: &Summary, now: Moment, screen: &Screen) -> String {
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

/// The graph as text, as wide as the screen. The server draws it; only this end knows the terminal.
async fn drawing(id: &str, remote: &mut Remote, screen: &Screen) -> Result<String, Failure> {
    let query = Query::default()
        .with("width", Some(screen.terminal.width.clamp(LEAST_WIDTH, MOST_WIDTH).to_string()))
        .with("ascii", Some((screen.terminal.glyphs == Glyphs::Ascii).to_string()))
        .with("colour", Some((screen.terminal.colour == Colour::Ansi).to_string()));
    remote.text(&Ask::get(query.of(&format!("{}/graph.txt", path(id))))).await
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
pub(crate) fn jobs(jobs: &[&Job], errors: &[String], (now, screen): (Moment, &Screen)) -> Table {
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
pub(crate) fn attempt(job: &Job) -> String {
    let lost = if job.lost > 0 { format!(", {} lost", job.lost) } else { String::new() };
    match job.attempt {
        0 if job.lost == 0 => String::new(),
        attempt => format!("{attempt}/{}{lost}", job.retries + 1),
    }
}

pub(crate) async fn graph(graph: &Graph, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    let Graph { id, form, file } = graph;
    let text = match form {
        Form::Text => drawing(id, remote, screen).await?,
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
