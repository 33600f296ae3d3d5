//! `tidegate workflow`: creation, control and display of workflows.

pub(crate) mod bulk;
pub(crate) mod failure_filter;
pub(crate) mod follow;
pub(crate) mod list;
mod logs;
pub(crate) mod show;
pub(crate) mod targets;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::complete;
use crate::client::model::ActionAnswer;
use crate::client::workflow_ref::{self, WorkflowRef};
use crate::definition::Definition;
use crate::definition::source::{Source, StartTime};
use crate::output::Screen;
use crate::output::exit::{CommandResult, Exit, print_failure, print_warning};
use crate::output::moment::span_of;
use crate::output::printable::printable;
use follow::Wait;
use list::{WorkflowCountArgs, WorkflowListArgs};
use show::{GraphArgs, WorkflowShowArgs};
use targets::{BulkAction, Retention, Targets};

/// Create, follow and control workflows.
#[derive(Debug, Args)]
pub struct WorkflowCommand {
    #[command(subcommand)]
    pub(crate) verb: WorkflowVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowVerb {
    /// Create a workflow from a definition, and print its id
    Create(Create),
    /// Start workflows that were created with --manual
    Start(Targets),
    /// Create a workflow, start it and wait for its end; the exit code is the outcome
    Run(Run),
    /// List workflows, the newest first
    List(WorkflowListArgs),
    /// Show a workflow: its graph, its jobs, and why each of them is not running
    Show(WorkflowShowArgs),
    /// Wait until a workflow is over; the exit code is the outcome
    Wait(Wait),
    /// Follow a workflow until it is over; the exit code is the outcome
    Watch(Wait),
    /// Cancel workflows: running jobs are cancelled, no other job starts
    Cancel(Targets),
    /// Pause workflows: running jobs finish, no other job starts
    Pause(Targets),
    /// Resume paused workflows
    Resume(Targets),
    /// Run the failed and cancelled jobs of workflows again
    Retry(Targets),
    /// Run chosen jobs of a workflow that have ended again
    Restart(Restart),
    /// Remove workflows that are over
    Rm(Targets),
    /// Set how long workflows are kept
    Expire(Expire),
    /// Draw the graph of a workflow
    Graph(GraphArgs),
    /// Show what workers wrote to the logs of all jobs of a workflow
    Logs(logs::WorkflowLogsArgs),
    /// Count workflows by status
    Count(WorkflowCountArgs),
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
    #[arg(add = complete::workflow())]
    pub(crate) id: WorkflowRef,
    /// Names of its jobs
    #[arg(required = true, value_name = "JOB", add = complete::job())]
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
    #[arg(long, value_name = "SPAN", value_parser = span_of, required_unless_present = "forever")]
    after: Option<Duration>,
    /// Keep them for ever
    #[arg(long, alias = "never", conflicts_with = "after")]
    forever: bool,
}

impl WorkflowCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        match self.verb {
            WorkflowVerb::Create(create) => create.run(remote, screen).await,
            WorkflowVerb::Start(targets) => {
                targets.run_action(BulkAction::Start, remote, screen).await
            }
            WorkflowVerb::Run(run) => run.run(remote, screen).await,
            WorkflowVerb::List(list) => list::list(&list, remote, screen).await,
            WorkflowVerb::Show(show) => show::show(&show, remote, screen).await,
            WorkflowVerb::Wait(wait) => follow::wait(&wait, remote, screen).await,
            WorkflowVerb::Watch(watch) => follow::watch(&watch, remote, screen).await,
            WorkflowVerb::Cancel(targets) => {
                targets.run_action(BulkAction::Cancel, remote, screen).await
            }
            WorkflowVerb::Pause(targets) => {
                targets.run_action(BulkAction::Pause, remote, screen).await
            }
            WorkflowVerb::Resume(targets) => {
                targets.run_action(BulkAction::Resume, remote, screen).await
            }
            WorkflowVerb::Retry(targets) => {
                targets.run_action(BulkAction::Retry, remote, screen).await
            }
            WorkflowVerb::Restart(restart) => restart.run(remote, screen).await,
            WorkflowVerb::Rm(targets) => {
                targets.run_action(BulkAction::Remove, remote, screen).await
            }
            WorkflowVerb::Expire(expire) => expire.run(remote, screen).await,
            WorkflowVerb::Graph(graph) => show::graph(&graph, remote, screen).await,
            WorkflowVerb::Logs(wanted) => logs::logs(&wanted, remote, screen).await,
            WorkflowVerb::Count(count) => list::count(&count, remote, screen).await,
        }
    }
}

/// Requests an action, and prints the status of the workflow after it.
pub(crate) async fn act(
    path: String,
    body: String,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let text = remote.text(&ApiRequest::post(path, body)).await?;
    print_action(&text, remote, screen)
}

fn print_action(text: &str, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let acted: ActionAnswer = remote.parse(text)?;
    screen.object(text, &acted.id, || {
        Ok(format!("{}\n", action_text(&acted, screen)))
    })?;
    print_warnings(&acted);
    Ok(Exit::Done)
}

fn print_warnings(created: &ActionAnswer) {
    for warning in &created.warnings {
        print_warning(&format!("job '{}': {}", warning.job, warning.text));
    }
}

fn action_text(acted: &ActionAnswer, screen: &Screen) -> String {
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
    screen: &Screen,
    mut action: impl AsyncFnMut(&T) -> CommandResult,
) -> CommandResult {
    let mut outcome = Ok(Exit::Done);
    for item in items {
        if let Err(failure) = action(item).await {
            let fatal = failure.exit == Exit::Unavailable;
            if let Err(earlier) = std::mem::replace(&mut outcome, Err(failure)) {
                print_failure(&earlier, screen.failure_details());
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

    async fn run(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        let begin = match self {
            Self { manual: true, .. } => StartTime::Manual,
            Self { start: true, .. } => StartTime::Now,
            _ => StartTime::AsDefined,
        };
        let definition = self.source.read(begin)?;
        print_action(
            &self.source.create(&definition, remote).await?,
            remote,
            screen,
        )
    }
}

impl Restart {
    async fn run(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        let body = json!({ "jobs": self.jobs, "cascade": self.cascade }).to_string();
        act(
            format!("{}:restart", self.id.path(remote).await?),
            body,
            remote,
            screen,
        )
        .await
    }
}

impl Expire {
    async fn run(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        let keep = self.after.map_or(Retention::Forever, Retention::For);
        self.targets
            .run_action(BulkAction::Expire(keep), remote, screen)
            .await
    }
}

impl Run {
    async fn run(&self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        // Reading standard input blocks, so it comes before Ctrl-C is handled.
        let definition = self.source.read(StartTime::Now)?;
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
        remote: &ApiClient,
        screen: &Screen,
    ) -> CommandResult<String> {
        let text = self.source.create(definition, remote).await?;
        let created: ActionAnswer = remote.parse(&text)?;
        if screen.is_table() {
            let name = created.name.as_deref().unwrap_or_default();
            screen.line(&format!(
                "{}  {}",
                action_text(&created, screen),
                printable(name)
            ))?;
        }
        print_warnings(&created);
        // A key that was used before may belong to a workflow that was never started.
        if created.status == "pending" {
            remote
                .text(&ApiRequest::post(
                    format!("{}:start", workflow_ref::path(&created.id)),
                    "",
                ))
                .await?;
        }
        Ok(created.id)
    }
}
