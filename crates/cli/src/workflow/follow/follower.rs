//! Follows one workflow by its events, and by reading it again and again when there are no events.

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep};

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
/// Longest silence of a stream of events. The server says every 15 s that it is still there; twice that may be late.
const SILENCE: Duration = Duration::from_secs(40);
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
    pub(super) id: String,
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
    remote: &'a Remote,
    screen: &'a Screen,
    show: Show<'a>,
    pub(super) last: Last,
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
    pub(super) fn new(remote: &'a Remote, (screen, show): (&'a Screen, Show<'a>), last: Last) -> Self {
        Self { remote, screen, show, last, named: HashSet::new(), link: Link::Fresh }
    }

    /// Listens to events until the workflow is over; without them, it looks again and again. A server that is away for a while is
    /// waited for. If the future is dropped, `last` is what was known by then.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        self.follow(SILENCE).await
    }

    async fn follow(&mut self, silence: Duration) -> Result<(), Failure> {
        self.draw()?;
        while !self.last.summary.is_over() {
            if let Ok(body) = self.remote.stream(&format!("{}/events", self.path())).await {
                self.listen(Events::new(body, silence)).await?;
            }
            if !self.last.summary.is_over() {
                // The events ended early: the server restarts, or a proxy ends what it thinks is idle, or lets no events through.
                // Only if this look fails, too, is there a loss to tell of.
                sleep(LOOK).await;
                self.look().await?;
            }
        }
        self.failures().await
    }

    fn path(&self) -> String {
        path(&self.last.id)
    }

    async fn listen<B>(&mut self, mut events: Events<B>) -> Result<(), Failure>
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Unpin,
    {
        // What failed before is not told by events.
        self.failures().await?;
        let mut failed = Vec::new();
        while !self.last.summary.is_over()
            && let Some(event) = events.next().await
        {
            self.is_up();
            self.hear(event, &mut failed)?;
            for job in failed.drain(..) {
                self.name(job).await?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, event: Event, failed: &mut Vec<String>) -> Result<(), Failure> {
        match event.name.as_str() {
            "workflow" => self.is_now(event.data),
            "removed" => Err(Failure::new(Exit::NotFound, format!("workflow {} was removed", self.last.id))),
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
        match self.remote.text(&Ask::get(self.path())).await {
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
        self.last.summary = self.remote.parse(&text)?;
        self.last.text = text;
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
        let ask = Ask::get(format!("{}/jobs?state=failed&limit={NAMED}", self.path()));
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
            let ask = Ask::get(format!("{}/jobs/{}", self.path(), escaped(&job)));
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::ask::address::Target;
    use crate::ask::environment::{Colour, Glyphs, Locale};

    fn workflow(status: &str) -> String {
        let created = "\"created_at\":\"2026-11-21T12:00:00Z\"";
        format!("{{\"id\":\"x\",\"name\":\"n\",\"status\":\"{status}\",{created},\"job_counts\":{{}}}}")
    }

    /// Answers everything with a workflow that runs, but the second stream of events, which ends it. The streams stay open.
    fn serve(listener: &TcpListener) {
        let mut streams = Vec::new();
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let path = BufReader::new(&stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty());
            let is_stream = path.fold(String::new(), |all, line| all + &line).contains("/events");
            let status = if is_stream && !streams.is_empty() { "succeeded" } else { "running" };
            let (before, after) = if is_stream { ("event: workflow\ndata: ", "\n\n") } else { ("", "") };
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{before}{}{after}", workflow(status)).unwrap();
            if is_stream {
                streams.push(stream);
            }
        }
    }

    #[tokio::test]
    async fn a_stream_that_says_nothing_for_long_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        std::thread::spawn(move || serve(&listener));
        let remote = Remote::new(target, None, None).unwrap();
        let screen = Screen::new(None, Locale { colour: Colour::None, glyphs: Glyphs::Ascii });
        let text = workflow("running");
        let first = Last { id: "x".to_owned(), summary: remote.parse(&text).unwrap(), text };
        let mut follower = Follower::new(&remote, (&screen, Show::Nothing), first);
        follower.follow(Duration::from_millis(100)).await.unwrap();
        assert_eq!((follower.last.summary.status.as_str(), follower.link), ("succeeded", Link::Up));
    }
}
