//! Waiting for the end of a workflow: `tidegate workflow wait`, `watch` and `run`.

mod follower;
mod wait_limit;

use clap::Args;

use crate::client::api_client::ApiClient;
use crate::client::complete;
use crate::client::model::WorkflowSummary;
use crate::client::workflow_ref::{WorkflowRef, path};
use crate::output::Screen;
use crate::output::bar::Bar;
use crate::output::exit::{CommandResult, Exit};
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;
use follower::{Follower, LastState, ProgressDisplay};
pub(crate) use wait_limit::{WaitLimit, WaitOptions};

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    id: WorkflowRef,
    #[command(flatten)]
    until: WaitOptions,
}

/// Waits without output, and prints the outcome at the end.
pub(crate) async fn wait(wait: &Wait, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let mut limit = WaitLimit::new(&wait.until);
    let first = resolve(&wait.id, &mut limit, remote).await?;
    let last =
        follow_until_over(first, &mut limit, remote, screen, ProgressDisplay::Nothing).await?;
    print_outcome(&last, screen)
}

/// Follows a workflow until it is over. Shows progress on a terminal, and otherwise a line for
/// every change.
pub(crate) async fn watch(watch: &Wait, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let mut limit = WaitLimit::new(&watch.until);
    let first = resolve(&watch.id, &mut limit, remote).await?;
    if screen.is_terminal && screen.is_table() {
        return follow_with_progress(first, &mut limit, remote, screen).await;
    }
    let last = follow_until_over(
        first,
        &mut limit,
        remote,
        screen,
        ProgressDisplay::Changes(Bar::new(screen)),
    )
    .await?;
    Ok(exit_code(&last.summary))
}

/// Runs `create`, which returns an id, then follows the workflow and prints its outcome. Shows
/// progress on a terminal.
pub(crate) async fn run(
    create: impl Future<Output = CommandResult<String>>,
    until: &WaitOptions,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let mut limit = WaitLimit::new(until);
    let doubt = "; the workflow may or may not have been created and started";
    let first = Box::pin(async { read_workflow(create.await?, remote).await });
    let first = limit.first(remote.address(), doubt, first).await?;
    follow_with_progress(first, &mut limit, remote, screen).await
}

async fn follow_with_progress(
    first: LastState,
    limit: &mut WaitLimit,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let last = follow_until_over(
        first,
        limit,
        remote,
        screen,
        ProgressDisplay::Progress(Bar::new(screen)),
    )
    .await?;
    print_outcome(&last, screen)
}

/// Resolves the reference, and reads the workflow.
async fn resolve(
    reference: &WorkflowRef,
    limit: &mut WaitLimit,
    remote: &ApiClient,
) -> CommandResult<LastState> {
    let first = Box::pin(async { read_workflow(reference.id(remote).await?, remote).await });
    limit.first(remote.address(), "", first).await
}

async fn read_workflow(id: String, remote: &ApiClient) -> CommandResult<LastState> {
    let text = remote.get(path(&id)).await?;
    Ok(LastState {
        summary: remote.parse(&text)?,
        id,
        text,
    })
}

/// Follows a workflow until it is over or the time limit is reached.
async fn follow_until_over(
    first: LastState,
    limit: &mut WaitLimit,
    remote: &ApiClient,
    screen: &Screen,
    show: ProgressDisplay<'_>,
) -> CommandResult<LastState> {
    let id = first.id.clone();
    let mut follower = Follower::new(remote, screen, show, first);
    // After a timeout, the last known state counts.
    limit.wait(&id, Box::pin(follower.run())).await?;
    Ok(follower.last)
}

/// Exit code for the status of a workflow.
fn exit_code(workflow: &WorkflowSummary) -> Exit {
    match workflow.status.as_str() {
        "succeeded" => Exit::Done,
        "failed" => Exit::Failed,
        "cancelled" => Exit::Cancelled,
        _ => Exit::TimedOut,
    }
}

/// Prints the outcome of a workflow, or its progress if it is not over.
fn print_outcome(
    LastState {
        summary: workflow,
        text,
        ..
    }: &LastState,
    screen: &Screen,
) -> CommandResult {
    let outcome = exit_code(workflow);
    screen.object(text, &workflow.id, || {
        let line = outcome_line(workflow, screen);
        Ok(if outcome == Exit::Failed {
            let id = printable(&workflow.id);
            line + &format!("`tidegate workflow show {id} --jobs failed` shows why\n")
        } else {
            line
        })
    })?;
    Ok(outcome)
}

/// The status of a workflow, with its duration if it is over, and the numbers of its jobs.
fn outcome_line(workflow: &WorkflowSummary, screen: &Screen) -> String {
    let status = screen.paint(&workflow.status, &workflow.status);
    let duration = workflow
        .duration(Moment::now())
        .map(|duration| format!(" in {}", short(duration)));
    let duration = duration.filter(|_| workflow.is_over()).unwrap_or_default();
    let counts = &workflow.job_counts;
    let others = workflow.listed(|word| word != "succeeded" && word != "failed");
    let jobs = format!(
        "{} succeeded, {} failed{others}",
        counts.succeeded, counts.failed
    );
    let id = printable(&workflow.id);
    let name = printable(&workflow.name);
    format!("{id}  {name}  {status}{duration}: {jobs}\n")
}
