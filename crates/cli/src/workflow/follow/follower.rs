//! Follows one workflow by its events, and by reading it again and again when there are no events.

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};

use crate::ask::address::escaped;
use crate::ask::events::{Event, Events};
use crate::ask::exit::{Exit, Failure};
use crate::ask::remote::{Ask, Remote};
use crate::ask::which::path;
use crate::ask::wire::{Job, Page, Summary};
use crate::screen::Screen;
use crate::screen::bar::Bar;
use crate::screen::moment::Moment;
use crate::screen::printable::printable;

/// The pause between two reads, when there are no events.
const LOOK: Duration = Duration::from_secs(1);
/// How long a server may be unreachable, for example during an update.
const AWAY: Duration = Duration::from_secs(60);
/// Failed jobs that are named; the rest is counted.
const NAMED: usize = 100;

/// What is shown while a workflow runs.
pub(super) enum Show<'a> {
    Nothing,
    /// A bar on a terminal, and remarks.
    Progress(Bar<'a>),
    /// A line for every change, and remarks.
    Changes(Bar<'a>),
}

/// A workflow as it was last, and the text that says so.
pub(super) struct Last {
    pub(super) summary: Summary,
    pub(super) text: String,
}

/// The connection that events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Fresh,
    Up,
    /// Since then.
    Down(Instant),
}

/// Follows one workflow.
pub(super) struct Follower<'a> {
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

impl<'a> Follower<'a> {
    pub(super) fn new(id: &'a str, remote: &'a Remote, (screen, show): (&'a Screen, Show<'a>), last: Last) -> Self {
        Self { id, remote, screen, show, last, named: HashSet::new(), link: Link::Fresh }
    }

    /// Listens to events; without them, it looks again and again. A server that is away for a while is waited for.
    pub(super) async fn run(mut self, deadline: Instant) -> Result<Last, Failure> {
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

    /// Reads the workflow, when there are no events.
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
                Ok(format!("{now}  {}  {}\n", printable(&workflow.status), workflow.progress()))
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
                // It is asked for again after the connection is restored.
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
