//! Waiting for the end of a workflow: `tidegate workflow wait`, `watch` and `run`.

use std::collections::HashSet;
use std::time::Duration;

use clap::{Args, ValueHint};
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ask::address::escaped;
use crate::ask::events::{Event, Events};
use crate::ask::exit::{Exit, Failure};
use crate::ask::remote::{Ask, Remote};
use crate::ask::which::{Which, path};
use crate::ask::wire::{Job, Page, Summary};
use crate::screen::Screen;
use crate::screen::bar::Bar;
use crate::screen::moment::{Moment, short, span_of};
use crate::screen::printable::printable;

/// Between two looks, when there are no events.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time that a server may be away, such as for an update.
const AWAY: Duration = Duration::from_secs(60);
/// Failed jobs that are named; the rest is counted.
const NAMED: usize = 100;
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

/// What is shown while a workflow runs.
enum Show<'a> {
    Nothing,
    /// A bar on a terminal, and remarks.
    Progress(Bar<'a>),
    /// A line for every change, and remarks.
    Changes(Bar<'a>),
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
        let line = format!("{}  {}  {status}{duration}: {jobs}\n", workflow.id, printable(&workflow.name));
        let hint = format!("`tidegate workflow show {} --jobs failed` shows why\n", workflow.id);
        Ok(if outcome == Exit::Failed { line + &hint } else { line })
    })?;
    Ok(outcome)
}

/// A workflow as it was last, and the text that says so.
struct Last {
    summary: Summary,
    text: String,
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
    let follower = Follower { id, remote, screen, show, last, named: HashSet::new(), link: Link::Fresh };
    tokio::select! {
        followed = follower.run(until.deadline()) => followed,
        _ = interrupt.recv() => {
            let again = format!("workflow {id} continues; `tidegate workflow watch {id}` follows it again");
            Err(Failure::new(Exit::Interrupted, format!("interrupted: {again}")))
        }
    }
}

/// What is known of the connection that events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Fresh,
    Up,
    /// Since then.
    Down(Instant),
}

/// Somebody who follows one workflow.
struct Follower<'a> {
    id: &'a str,
    remote: &'a Remote,
    screen: &'a Screen,
    show: Show<'a>,
    last: Last,
    /// Failed jobs that were named.
    named: HashSet<String>,
    link: Link,
}

#[derive(Debug, Deserialize)]
struct Changed {
    name: String,
    state: String,
}

impl Follower<'_> {
    /// Listens to events; without them, it looks again and again. A server that is away for a while is waited for.
    async fn run(mut self, deadline: Instant) -> Result<Last, Failure> {
        self.draw()?;
        while !self.is_over(deadline) {
            if let Ok(Ok(body)) = timeout_at(deadline, self.remote.stream(&format!("{}/events", path(self.id)))).await {
                self.listen(Events::new(body), deadline).await?;
            }
            if !self.is_over(deadline) {
                // The events ended early: the server restarts, or a proxy does not let them through.
                sleep(LOOK.min(deadline.saturating_duration_since(Instant::now()))).await;
                self.look().await?;
            }
        }
        self.failures().await?;
        Ok(self.last)
    }

    fn is_over(&self, deadline: Instant) -> bool {
        self.last.summary.is_over() || Instant::now() >= deadline
    }

    async fn listen<B>(&mut self, mut events: Events<B>, deadline: Instant) -> Result<(), Failure>
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Unpin,
    {
        // What failed before is not told by events.
        self.failures().await?;
        let mut failed = Vec::new();
        while let Ok(Some(event)) = timeout_at(deadline, events.next()).await {
            self.is_up();
            self.hear(event, &mut failed)?;
            for job in failed.drain(..) {
                self.name(job).await?;
            }
            if self.last.summary.is_over() {
                return Ok(());
            }
        }
        if self.link == Link::Up && !self.is_over(deadline) {
            self.is_down();
        }
        Ok(())
    }

    fn hear(&mut self, event: Event, failed: &mut Vec<String>) -> Result<(), Failure> {
        match event.name.as_str() {
            "workflow" => self.is_now(event.data),
            "removed" => Err(Failure::new(Exit::NotFound, format!("workflow {} was removed", self.id))),
            "job" => {
                let job: Changed = self.remote.parse(&event.data)?;
                if job.state == "failed" {
                    failed.push(job.name);
                } else {
                    // It may fail once more.
                    self.named.remove(&job.name);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Looks at the workflow, as who has no events.
    async fn look(&mut self) -> Result<(), Failure> {
        match self.remote.text(&Ask::get(path(self.id))).await {
            Ok(text) => {
                if matches!(self.link, Link::Down(_)) {
                    self.is_up();
                }
                self.is_now(text)
            }
            Err(failure) if failure.exit == Exit::Unavailable => {
                self.is_down();
                match self.link {
                    Link::Down(since) if since.elapsed() >= AWAY => Err(failure),
                    _ => Ok(()),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    fn is_now(&mut self, text: String) -> Result<(), Failure> {
        if text == self.last.text {
            return Ok(());
        }
        self.last = Last { summary: self.remote.parse(&text)?, text };
        self.draw()
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let workflow = &self.last.summary;
        match &mut self.show {
            Show::Nothing => Ok(()),
            Show::Progress(bar) => {
                bar.draw(workflow);
                Ok(())
            }
            Show::Changes(_) => self.screen.object(&self.last.text, &workflow.id, || {
                let now = Moment::now().to_the_second();
                Ok(format!("{now}  {}  {}\n", workflow.status, workflow.progress()))
            }),
        }
    }

    fn is_up(&mut self) {
        if let Link::Down(_) = self.link {
            self.remark("connected again");
        }
        self.link = Link::Up;
    }

    fn is_down(&mut self) {
        if !matches!(self.link, Link::Down(_)) {
            self.link = Link::Down(Instant::now());
            let server = self.remote.shown();
            self.remark(&format!("the connection to {server} was lost; trying to reconnect for {} s", AWAY.as_secs()));
        }
    }

    fn remark(&self, text: &str) {
        match &self.show {
            Show::Nothing => {}
            Show::Progress(bar) | Show::Changes(bar) => bar.remark(text),
        }
    }

    /// Names the failed jobs that were not named yet.
    async fn failures(&mut self) -> Result<(), Failure> {
        if matches!(self.show, Show::Nothing) || self.last.summary.job_counts.failed <= self.named.len() as u64 {
            return Ok(());
        }
        let ask = Ask::get(format!("{}/jobs?state=failed&limit={NAMED}", path(self.id)));
        let page = match self.remote.read::<Page>(&ask).await {
            Err(failure) if failure.exit == Exit::Unavailable => return Ok(()),
            page => page?,
        };
        for item in page.items {
            let job: Job = self.remote.parse(item.get())?;
            self.name(job.name).await?;
        }
        Ok(())
    }

    /// Names a job that failed, with the first line of its error.
    async fn name(&mut self, job: String) -> Result<(), Failure> {
        if matches!(self.show, Show::Nothing) || self.named.contains(&job) {
            return Ok(());
        }
        if self.named.len() < NAMED {
            let ask = Ask::get(format!("{}/jobs/{}", path(self.id), escaped(&job)));
            let error = match self.remote.read::<Job>(&ask).await {
                Ok(job) => job.errors.last().map(|error| format!(": {}: {}", error.kind, first_line(&error.message))),
                // It is asked for again when the server is there again.
                Err(failure) if failure.exit == Exit::Unavailable => return Ok(()),
                Err(failure) => return Err(failure),
            };
            self.remark(&printable(&format!("job {job} failed{}", error.unwrap_or_default())));
        } else if self.named.len() == NAMED {
            self.remark(&format!("{NAMED} failed jobs were named; the others are only counted"));
        }
        self.named.insert(job);
        Ok(())
    }
}

fn first_line(text: &str) -> &str {
    text.trim_start().lines().next().unwrap_or_default()
}
