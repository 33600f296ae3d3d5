//! Waiting for the end of a workflow: `tidegate workflow wait`, `watch` and `run`.

mod follower;

use std::time::Duration;

use clap::{Args, ValueHint};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::ask::exit::{Exit, Failure};
use crate::ask::remote::{Ask, Remote};
use crate::ask::which::{Which, path};
use crate::ask::wire::Summary;
use crate::screen::Screen;
use crate::screen::bar::Bar;
use crate::screen::moment::{Moment, short, span_of};
use crate::screen::printable::printable;
use follower::{Follower, Last, Show};

/// A wait without end.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long to wait.
#[derive(Debug, Clone, Args)]
pub(crate) struct Until {
    /// Wait this long at most, such as 10m; then the exit code is 3
    #[arg(long, value_name = "SPAN", value_parser = span_of, value_hint = ValueHint::Other)]
    timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this name
    #[arg(value_hint = ValueHint::Other)]
    id: Which,
    #[command(flatten)]
    until: Until,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this name
    #[arg(value_hint = ValueHint::Other)]
    id: Which,
    #[command(flatten)]
    until: Until,
}

impl Until {
    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout.unwrap_or(FOR_EVER)
    }
}

/// Waits in silence, and says how the workflow ended.
pub(crate) async fn wait(wait: &Wait, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let id = wait.id.id(remote).await?;
    let last = followed(&id, &wait.until, remote, (screen, Show::Nothing)).await?;
    ended(&last, screen)
}

/// Shows progress, if there is a terminal, until the workflow is over, and says how it ended.
pub(crate) async fn run(id: &str, until: &Until, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let last = followed(id, until, remote, (screen, Show::Progress(Bar::new(screen)))).await?;
    ended(&last, screen)
}

/// Shows progress on a terminal, and elsewhere every change, until the workflow is over.
pub(crate) async fn watch(watch: &Watch, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let id = watch.id.id(remote).await?;
    if screen.live && screen.is_table() {
        return run(&id, &watch.until, remote, screen).await;
    }
    let last = followed(&id, &watch.until, remote, (screen, Show::Changes(Bar::new(screen)))).await?;
    Ok(outcome(&last.summary))
}

/// What the end of a workflow means for the exit code.
fn outcome(workflow: &Summary) -> Exit {
    match workflow.status.as_str() {
        "succeeded" => Exit::Done,
        "failed" => Exit::Failed,
        "cancelled" => Exit::Cancelled,
        _ => Exit::TimedOut,
    }
}

/// Says how a workflow ended, or how far it came.
fn ended(Last { summary: workflow, text }: &Last, screen: &Screen) -> Result<Exit, Failure> {
    let outcome = outcome(workflow);
    screen.object(text, &workflow.id, || {
        let status = screen.paint(&workflow.status, &workflow.status);
        let duration = workflow.duration(Moment::now()).map(|duration| format!(" in {}", short(duration)));
        let duration = duration.filter(|_| workflow.is_over()).unwrap_or_default();
        let counts = &workflow.job_counts;
        let others = workflow.listed(|word| word != "succeeded" && word != "failed");
        let others = if others.is_empty() { others } else { format!(", {others}") };
        let jobs = format!("{} succeeded, {} failed{others}", counts.succeeded, counts.failed);
        let id = printable(&workflow.id);
        let line = format!("{id}  {}  {status}{duration}: {jobs}\n", printable(&workflow.name));
        let hint = format!("`tidegate workflow show {id} --jobs failed` shows why\n");
        Ok(if outcome == Exit::Failed { line + &hint } else { line })
    })?;
    Ok(outcome)
}

/// Follows a workflow until it is over, the time is, or somebody interrupts.
async fn followed(
    id: &str,
    until: &Until,
    remote: &Remote,
    (screen, show): (&Screen, Show<'_>),
) -> Result<Last, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).expect("a handler for this signal can be installed");
    let text = remote.text(&Ask::get(path(id))).await?;
    let last = Last { summary: remote.parse(&text)?, text };
    let follower = Follower::new(id, remote, (screen, show), last);
    tokio::select! {
        followed = follower.run(until.deadline()) => followed,
        _ = interrupt.recv() => {
            let again = format!("workflow {id} continues; `tidegate workflow watch {id}` follows it again");
            Err(Failure::new(Exit::Interrupted, format!("interrupted: {again}")))
        }
    }
}
