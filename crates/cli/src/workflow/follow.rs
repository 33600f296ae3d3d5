//! Waiting for the end of a workflow: `tidegate workflow wait`, `watch` and `run`.

mod bounds;
mod follower;

use clap::{Args, ValueHint};

use crate::client::exit::{Exit, Failure};
use crate::client::model::Summary;
use crate::client::remote::{Ask, Remote};
use crate::client::which::{Which, path};
use crate::output::Screen;
use crate::output::bar::Bar;
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;
pub(crate) use bounds::{WaitLimit, WaitOptions};
use follower::{Follower, Last, Show};

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(value_hint = ValueHint::Other)]
    id: Which,
    #[command(flatten)]
    until: WaitOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(value_hint = ValueHint::Other)]
    id: Which,
    #[command(flatten)]
    until: WaitOptions,
}

/// Waits without output, and prints the outcome at the end.
pub(crate) async fn wait(wait: &Wait, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let mut bounds = WaitLimit::new(&wait.until);
    let first = found(&wait.id, &mut bounds, remote).await?;
    let last = followed(first, &mut bounds, remote, screen, Show::Nothing).await?;
    ended(&last, screen)
}

/// Follows a workflow until it is over. Shows progress on a terminal, and otherwise a line for
/// every change.
pub(crate) async fn watch(
    watch: &Watch,
    remote: &Remote,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let mut bounds = WaitLimit::new(&watch.until);
    let first = found(&watch.id, &mut bounds, remote).await?;
    if screen.live && screen.is_table() {
        return progress(first, &mut bounds, remote, screen).await;
    }
    let last = followed(
        first,
        &mut bounds,
        remote,
        screen,
        Show::Changes(Bar::new(screen)),
    )
    .await?;
    Ok(outcome(&last.summary))
}

/// Runs `create`, which returns an id, then follows the workflow and prints its outcome. Shows
/// progress on a terminal.
pub(crate) async fn run(
    create: impl Future<Output = Result<String, Failure>>,
    until: &WaitOptions,
    remote: &Remote,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let mut bounds = WaitLimit::new(until);
    let doubt = "; the workflow may or may not have been created and started";
    let first = Box::pin(async { look(create.await?, remote).await });
    let first = bounds.first(remote.shown(), doubt, first).await?;
    progress(first, &mut bounds, remote, screen).await
}

async fn progress(
    first: Last,
    bounds: &mut WaitLimit,
    remote: &Remote,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let last = followed(
        first,
        bounds,
        remote,
        screen,
        Show::Progress(Bar::new(screen)),
    )
    .await?;
    ended(&last, screen)
}

/// Resolves the reference, and reads the workflow.
async fn found(which: &Which, bounds: &mut WaitLimit, remote: &Remote) -> Result<Last, Failure> {
    let first = Box::pin(async { look(which.id(remote).await?, remote).await });
    bounds.first(remote.shown(), "", first).await
}

async fn look(id: String, remote: &Remote) -> Result<Last, Failure> {
    let text = remote.text(&Ask::get(path(&id))).await?;
    Ok(Last {
        summary: remote.parse(&text)?,
        id,
        text,
    })
}

/// Follows a workflow until it is over or the time limit is reached.
async fn followed(
    first: Last,
    bounds: &mut WaitLimit,
    remote: &Remote,
    screen: &Screen,
    show: Show<'_>,
) -> Result<Last, Failure> {
    let id = first.id.clone();
    let mut follower = Follower::new(remote, screen, show, first);
    // After a timeout, the last known state counts.
    bounds.wait(&id, Box::pin(follower.run())).await?;
    Ok(follower.last)
}

/// Exit code for the status of a workflow.
fn outcome(workflow: &Summary) -> Exit {
    match workflow.status.as_str() {
        "succeeded" => Exit::Done,
        "failed" => Exit::Failed,
        "cancelled" => Exit::Cancelled,
        _ => Exit::TimedOut,
    }
}

/// Prints the outcome of a workflow, or its progress if it is not over.
fn ended(
    Last {
        summary: workflow,
        text,
        ..
    }: &Last,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let outcome = outcome(workflow);
    screen.object(text, &workflow.id, || {
        let status = screen.paint(&workflow.status, &workflow.status);
        let duration = workflow
            .duration(Moment::now())
            .map(|duration| format!(" in {}", short(duration)));
        let duration = duration.filter(|_| workflow.is_over()).unwrap_or_default();
        let counts = &workflow.job_counts;
        let others = workflow.listed(|word| word != "succeeded" && word != "failed");
        let others = if others.is_empty() {
            others
        } else {
            format!(", {others}")
        };
        let jobs = format!(
            "{} succeeded, {} failed{others}",
            counts.succeeded, counts.failed
        );
        let id = printable(&workflow.id);
        let line = format!(
            "{id}  {}  {status}{duration}: {jobs}\n",
            printable(&workflow.name)
        );
        let hint = format!("`tidegate workflow show {id} --jobs failed` shows why\n");
        Ok(if outcome == Exit::Failed {
            line + &hint
        } else {
            line
        })
    })?;
    Ok(outcome)
}
