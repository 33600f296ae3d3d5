//! `tidegate workflow`: everything that is done to workflows from a terminal.

pub(crate) mod follow;
pub(crate) mod list;
pub(crate) mod show;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::ask::address::escaped;
use crate::ask::exit::{Exit, Failure};
use crate::ask::options::Options;
use crate::ask::remote::{Ask, Remote};
use crate::ask::wire::Acted;
use crate::definition::{Begin, Source};
use crate::screen::moment::span_of;
use crate::screen::{Screen, printable};
use follow::{Wait, Watch};
use list::{Count, List};
use show::{Graph, Show};

/// Creates, follows and steers workflows.
#[derive(Debug, Args)]
pub struct Workflow {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Creates a workflow from a definition, and says its id
    Create(Create),
    /// Starts workflows that were created with --manual
    Start(Ids),
    /// Creates a workflow, starts it and waits for its end; the exit code tells the outcome
    Run(Run),
    /// Lists workflows, the newest first
    List(List),
    /// Shows a workflow: its graph, its jobs, and why each of them is not running
    Show(Show),
    /// Waits until a workflow is over; the exit code tells the outcome
    Wait(Wait),
    /// Follows a workflow until it is over; the exit code tells the outcome
    Watch(Watch),
    /// Cancels workflows: what runs is given up, nothing more starts
    Cancel(Ids),
    /// Pauses workflows: what runs may finish, nothing more starts
    Pause(Ids),
    /// Lets paused workflows go on
    Resume(Ids),
    /// Runs the failed and cancelled jobs of workflows again
    Retry(Ids),
    /// Runs chosen jobs of a workflow again, whatever became of them
    Restart(Restart),
    /// Removes workflows that are over
    Rm(Ids),
    /// Says how long workflows are kept
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
pub struct Ids {
    /// Ids of workflows
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    until: follow::Until,
}

#[derive(Debug, Args)]
pub(crate) struct Restart {
    /// Id of the workflow
    pub(crate) id: String,
    /// Names of its jobs
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Also all jobs after them
    #[arg(long)]
    pub(crate) cascade: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Expire {
    /// Ids of workflows
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Keep it this long after its end, such as 7d; 0s removes it when it is over
    #[arg(long, value_name = "SPAN", value_parser = span_of, required_unless_present = "never")]
    after: Option<Duration>,
    /// Keep it for ever
    #[arg(long, conflicts_with = "after")]
    never: bool,
}

/// Something done to a workflow that needs no more words: what the API calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Start,
    Cancel,
    Pause,
    Resume,
    Retry,
}

impl Deed {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Retry => "retry",
        }
    }
}

/// The path of a workflow.
pub(crate) fn path(id: &str) -> String {
    format!("/v1/workflows/{}", escaped(id))
}

impl Workflow {
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        let remote = &mut remote;
        match self.verb {
            Verb::Create(create) => create.run(remote, &screen).await,
            Verb::Start(ids) => ids.each(Deed::Start, remote, &screen).await,
            Verb::Run(run) => run.run(remote, &screen).await,
            Verb::List(list) => list::list(&list, remote, &screen).await,
            Verb::Show(show) => show::show(&show, remote, &screen).await,
            Verb::Wait(wait) => follow::wait(&wait, remote, &screen).await,
            Verb::Watch(watch) => follow::watch(&watch, remote, &screen).await,
            Verb::Cancel(ids) => ids.each(Deed::Cancel, remote, &screen).await,
            Verb::Pause(ids) => ids.each(Deed::Pause, remote, &screen).await,
            Verb::Resume(ids) => ids.each(Deed::Resume, remote, &screen).await,
            Verb::Retry(ids) => ids.each(Deed::Retry, remote, &screen).await,
            Verb::Restart(restart) => {
                let body = json!({ "jobs": restart.jobs, "cascade": restart.cascade }).to_string();
                act(&Ask::post(format!("{}:restart", path(&restart.id)), body), remote, &screen).await
            }
            Verb::Rm(ids) => ids.remove(remote, &screen).await,
            Verb::Expire(expire) => expire.run(remote, &screen).await,
            Verb::Graph(graph) => show::graph(&graph, remote, &screen).await,
            Verb::Count(count) => list::count(&count, remote, &screen).await,
        }
    }
}

/// Asks for something to be done, and shows what the workflow is doing then.
pub(crate) async fn act(ask: &Ask, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    say(&remote.text(ask).await?, remote, screen)
}

fn say(text: &str, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    if screen.is_json() {
        screen.line(text)?;
    } else {
        screen.line(&said(&remote.parse(text)?, screen))?;
    }
    Ok(Exit::Done)
}

fn said(acted: &Acted, screen: &Screen) -> String {
    let status = screen.paint(&acted.status, &acted.status);
    let note = if acted.existing { "  (it was there: the key has been used)" } else { "" };
    format!("{}  {status}{note}", acted.id)
}

/// Does the same for each of `items`, and goes on when it fails for one of them. The last failure counts.
pub(crate) async fn for_each<T>(
    items: &[T],
    mut one: impl AsyncFnMut(&T) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let mut outcome = Ok(Exit::Done);
    for item in items {
        if let Err(failure) = one(item).await {
            let fatal = failure.exit == Exit::Unavailable;
            if let Err(earlier) = std::mem::replace(&mut outcome, Err(failure)) {
                crate::ask::exit::complain(&earlier);
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
        Self { source, start: false, manual: true }
    }

    pub(crate) fn started(source: Source) -> Self {
        Self { source, start: true, manual: false }
    }

    async fn run(&self, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
        let begin = match self {
            Self { manual: true, .. } => Begin::Manual,
            Self { start: true, .. } => Begin::Now,
            _ => Begin::Unsaid,
        };
        say(&self.source.create(begin, remote).await?, remote, screen)
    }
}

impl Ids {
    async fn each(&self, deed: Deed, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
        for_each(&self.ids, async |id| {
            act(&Ask::post(format!("{}:{}", path(id), deed.word()), ""), remote, screen).await
        })
        .await
    }

    async fn remove(&self, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
        for_each(&self.ids, async |id| {
            remote.text(&Ask::delete(path(id))).await?;
            if screen.is_json() {
                screen.line(&json!({ "id": id, "removed": true }).to_string())?;
            } else {
                screen.line(&format!("{}  removed", printable(id)))?;
            }
            Ok(Exit::Done)
        })
        .await
    }
}

impl Expire {
    async fn run(&self, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
        let body = match self.after {
            Some(after) => json!({ "after": after.as_millis() as u64 }),
            None => json!({ "after": "never" }),
        };
        let body = body.to_string();
        for_each(&self.ids, async |id| {
            act(&Ask::post(format!("{}:expire", path(id)), body.clone()), remote, screen).await
        })
        .await
    }
}

impl Run {
    async fn run(&self, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
        let text = self.source.create(Begin::Now, remote).await?;
        let created: Acted = remote.parse(&text)?;
        if !screen.is_json() {
            let name = created.name.as_deref().unwrap_or_default();
            screen.line(&format!("{}  {}", said(&created, screen), printable(name)))?;
        }
        // A key that was used before may belong to one that was never started.
        if created.status == "pending" {
            remote.text(&Ask::post(format!("{}:start", path(&created.id)), "")).await?;
        }
        follow::run(&created.id, &self.until, remote, screen).await
    }
}
