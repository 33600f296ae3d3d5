//! `tidegate workflow`: creation, control and display of workflows.

pub(crate) mod bulk;
pub(crate) mod follow;
pub(crate) mod list;
pub(crate) mod show;
pub(crate) mod targets;

use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use serde_json::json;

use crate::client::exit::{Exit, Failure, complain, warn};
use crate::client::model::Acted;
use crate::client::remote::{Ask, Remote};
use crate::client::which::{self, Which};
use crate::definition::Definition;
use crate::definition::source::{Begin, Source};
use crate::output::Screen;
use crate::output::moment::span_of;
use crate::output::printable::printable;
use follow::{Wait, Watch};
use list::{Count, List};
use show::{Graph, Show};
use targets::{BulkAction, Keep, Targets};

/// Creates, follows and controls workflows.
#[derive(Debug, Args)]
pub struct Workflow {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Creates a workflow from a definition, and prints its id
    Create(Create),
    /// Starts workflows that were created with --manual
    Start(Targets),
    /// Creates a workflow, starts it and waits for its end; the exit code is the outcome
    Run(Run),
    /// Lists workflows, the newest first
    List(List),
    /// Shows a workflow: its graph, its jobs, and why each of them is not running
    Show(Show),
    /// Waits until a workflow is over; the exit code is the outcome
    Wait(Wait),
    /// Follows a workflow until it is over; the exit code is the outcome
    Watch(Watch),
    /// Cancels workflows: running jobs are cancelled, no other job starts
    Cancel(Targets),
    /// Pauses workflows: running jobs finish, no other job starts
    Pause(Targets),
    /// Resumes paused workflows
    Resume(Targets),
    /// Runs the failed and cancelled jobs of workflows again
    Retry(Targets),
    /// Runs chosen jobs of a workflow that have ended again
    Restart(Restart),
    /// Removes workflows that are over
    Rm(Targets),
    /// Sets how long workflows are kept
    Expire(Expire),
    /// Draws the graph of a workflow
    Graph(Graph),
    /// Counts workflows by status
    Count(Count),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    source: Source,
    /// Start it at once, whatever its definition says
    #[arg(long, conflicts_with = "manual")]
    start: bool,
    /// Do not start it, whatever its definition says
    #[arg(long)]
    manual: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    until: follow::WaitOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Restart {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(value_hint = ValueHint::Other)]
    pub(crate) id: Which,
    /// Names of its jobs
    #[arg(required = true, value_name = "JOB", value_hint = ValueHint::Other)]
    pub(crate) jobs: Vec<String>,
    /// Restart all jobs after them as well
    #[arg(long)]
    pub(crate) cascade: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Expire {
    #[command(flatten)]
    targets: Targets,
    /// Keep them this long after their end, such as 7d; 0s removes them when they are over
    #[arg(long, value_name = "SPAN", value_parser = span_of, value_hint = ValueHint::Other, required_unless_present = "forever")]
    after: Option<Duration>,
    /// Keep them for ever
    #[arg(long, alias = "never", conflicts_with = "after")]
    forever: bool,
}

impl Workflow {
    pub(crate) async fn run(self, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Create(create) => create.run(remote, screen).await,
            Verb::Start(targets) => targets.each(BulkAction::Start, remote, screen).await,
            Verb::Run(run) => run.run(remote, screen).await,
            Verb::List(list) => list::list(&list, remote, screen).await,
            Verb::Show(show) => show::show(&show, remote, screen).await,
            Verb::Wait(wait) => follow::wait(&wait, remote, screen).await,
            Verb::Watch(watch) => follow::watch(&watch, remote, screen).await,
            Verb::Cancel(targets) => targets.each(BulkAction::Cancel, remote, screen).await,
            Verb::Pause(targets) => targets.each(BulkAction::Pause, remote, screen).await,
            Verb::Resume(targets) => targets.each(BulkAction::Resume, remote, screen).await,
            Verb::Retry(targets) => targets.each(BulkAction::Retry, remote, screen).await,
            Verb::Restart(restart) => restart.run(remote, screen).await,
            Verb::Rm(targets) => targets.each(BulkAction::Remove, remote, screen).await,
            Verb::Expire(expire) => expire.run(remote, screen).await,
            Verb::Graph(graph) => show::graph(&graph, remote, screen).await,
            Verb::Count(count) => list::count(&count, remote, screen).await,
        }
    }
}

/// Requests an action, and prints the status of the workflow after it.
pub(crate) async fn act(ask: &Ask, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    say(&remote.text(ask).await?, remote, screen)
}

fn say(text: &str, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let acted: Acted = remote.parse(text)?;
    screen.object(text, &acted.id, || {
        Ok(format!("{}\n", said(&acted, screen)))
    })?;
    print_warnings(&acted);
    Ok(Exit::Done)
}

fn print_warnings(created: &Acted) {
    for warning in &created.warnings {
        warn(&format!("job '{}': {}", warning.job, warning.text));
    }
}

fn said(acted: &Acted, screen: &Screen) -> String {
    let status = screen.paint(&acted.status, &acted.status);
    let note = if acted.existing {
        "  (it exists: the key was used before)"
    } else {
        ""
    };
    format!("{}  {status}{note}", printable(&acted.id))
}

/// Runs `action` for each item, and continues after a failure. Returns the last failure; stops if
/// the server is unavailable.
pub(crate) async fn for_each<T>(
    items: &[T],
    mut one: impl AsyncFnMut(&T) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let mut outcome = Ok(Exit::Done);
    for item in items {
        if let Err(failure) = one(item).await {
            let fatal = failure.exit == Exit::Unavailable;
            if let Err(earlier) = std::mem::replace(&mut outcome, Err(failure)) {
                complain(&earlier);
            }
            if fatal {
                break;
            }
        }
    }
    outcome
}

impl Create {
    pub(crate) fn manual(source: Source) -> Self {
        Self {
            source,
            start: false,
            manual: true,
        }
    }

    pub(crate) fn started(source: Source) -> Self {
        Self {
            source,
            start: true,
            manual: false,
        }
    }

    async fn run(&self, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        let begin = match self {
            Self { manual: true, .. } => Begin::Manual,
            Self { start: true, .. } => Begin::Now,
            _ => Begin::Unsaid,
        };
        let definition = self.source.read(begin)?;
        say(
            &self.source.create(&definition, remote).await?,
            remote,
            screen,
        )
    }
}

impl Restart {
    async fn run(&self, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        let body = json!({ "jobs": self.jobs, "cascade": self.cascade }).to_string();
        act(
            &Ask::post(format!("{}:restart", self.id.path(remote).await?), body),
            remote,
            screen,
        )
        .await
    }
}

impl Expire {
    async fn run(&self, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        let keep = self.after.map_or(Keep::Forever, Keep::For);
        self.targets
            .each(BulkAction::Expire(keep), remote, screen)
            .await
    }
}

impl Run {
    async fn run(&self, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        // Reading standard input blocks, so it comes before Ctrl-C is handled.
        let definition = self.source.read(Begin::Now)?;
        follow::run(
            self.started(&definition, remote, screen),
            &self.until,
            remote,
            screen,
        )
        .await
    }

    /// Creates the workflow, and returns its id.
    async fn started(
        &self,
        definition: &Definition,
        remote: &Remote,
        screen: &Screen,
    ) -> Result<String, Failure> {
        let text = self.source.create(definition, remote).await?;
        let created: Acted = remote.parse(&text)?;
        if screen.is_table() {
            let name = created.name.as_deref().unwrap_or_default();
            screen.line(&format!("{}  {}", said(&created, screen), printable(name)))?;
        }
        print_warnings(&created);
        // A key that was used before may belong to a workflow that was never started.
        if created.status == "pending" {
            remote
                .text(&Ask::post(
                    format!("{}:start", which::path(&created.id)),
                    "",
                ))
                .await?;
        }
        Ok(created.id)
    }
}
