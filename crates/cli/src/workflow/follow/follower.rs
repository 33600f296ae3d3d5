//! Follows one workflow by its events, and by polling if there are no events.

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::client::address::escaped;
use crate::client::events::{Event, Events};
use crate::client::exit::{Exit, Failure};
use crate::client::model::{Job, Page, Summary};
use crate::client::remote::{Ask, Remote};
use crate::client::which::path;
use crate::output::Screen;
use crate::output::bar::Bar;
use crate::output::moment::Moment;
use crate::output::printable::printable;

/// Interval between two reads while there are no events.
const LOOK: Duration = Duration::from_secs(1);
/// Time for which a server may be unreachable, for example during an update.
const RECONNECT_TIME: Duration = Duration::from_secs(60);
/// Timeout of a stream of events. The server sends a comment every 15 s; this allows for two late
/// ones.
const SILENCE: Duration = Duration::from_secs(40);
/// Limit of failed jobs that are named; the others are only counted.
const NAMED: usize = 100;

/// Output while a workflow runs.
pub(super) enum Show<'a> {
    Nothing,
    /// A bar on a terminal, with remarks above it.
    Progress(Bar<'a>),
    /// A line for every change, and remarks.
    Changes(Bar<'a>),
}

/// Last known state of a workflow, parsed and as text.
pub(super) struct Last {
    pub(super) id: String,
    pub(super) summary: Summary,
    pub(super) text: String,
}

/// State of the connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Fresh,
    Up,
    /// Lost at this time.
    Down(Instant),
}

/// Follower of one workflow.
pub(super) struct Follower<'a> {
    remote: &'a Remote,
    screen: &'a Screen,
    show: Show<'a>,
    pub(super) last: Last,
    /// Failed jobs that were named in a remark.
    named: HashSet<String>,
    link: Link,
}

#[derive(Debug, Deserialize)]
struct Changed {
    name: String,
    state: String,
}

impl<'a> Follower<'a> {
    pub(super) fn new(remote: &'a Remote, screen: &'a Screen, show: Show<'a>, last: Last) -> Self {
        Self {
            remote,
            screen,
            show,
            last,
            named: HashSet::new(),
            link: Link::Fresh,
        }
    }

    /// Follows events until the workflow is over, and polls if the stream ends early. Tolerates an
    /// unreachable server for `RECONNECT_TIME`. If the future is dropped, `last` is the last known
    /// state.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        self.follow(SILENCE).await
    }

    async fn follow(&mut self, silence: Duration) -> Result<(), Failure> {
        self.draw()?;
        self.failures().await?;
        while !self.last.summary.is_over() {
            if let Ok(body) = self.remote.stream(&format!("{}/events", self.path())).await {
                self.listen(Events::new(body, silence)).await?;
            }
            if !self.last.summary.is_over() {
                // The stream ended early: the server restarts, or a proxy closes idle connections
                // or blocks streams. The connection counts as lost only if this read fails, too.
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
        while !self.last.summary.is_over()
            && let Some(event) = events.next().await
        {
            self.is_up();
            self.hear(event).await?;
        }
        Ok(())
    }

    async fn hear(&mut self, event: Event) -> Result<(), Failure> {
        match event.name.as_str() {
            "workflow" => self.is_now(event.data).await,
            "removed" => Err(Failure::new(
                Exit::NotFound,
                format!("workflow {} was removed", self.last.id),
            )),
            "job" => {
                let job: Changed = self.remote.parse(&event.data)?;
                if job.state == "failed" {
                    return self.name(job.name).await;
                }
                // The job is retried, and may fail again.
                self.named.remove(&job.name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads the workflow without events.
    async fn look(&mut self) -> Result<(), Failure> {
        match self.remote.text(&Ask::get(self.path())).await {
            Ok(text) => {
                if matches!(self.link, Link::Down(_)) {
                    self.is_up();
                }
                self.is_now(text).await
            }
            Err(failure) if failure.exit == Exit::Unavailable => {
                self.is_down();
                match self.link {
                    Link::Down(since) if since.elapsed() >= RECONNECT_TIME => Err(failure),
                    _ => Ok(()),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    async fn is_now(&mut self, text: String) -> Result<(), Failure> {
        if text != self.last.text {
            self.last.summary = self.remote.parse(&text)?;
            self.last.text = text;
            self.draw()?;
        }
        // Events report only changes after the first one. A job that failed between two reads
        // appears only in the counts.
        self.failures().await
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
                Ok(format!(
                    "{now}  {}  {}\n",
                    printable(&workflow.status),
                    workflow.progress()
                ))
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
            self.remark(&format!(
                "the connection to {server} was lost; trying to reconnect for {} s",
                RECONNECT_TIME.as_secs()
            ));
        }
    }

    fn remark(&self, text: &str) {
        match &self.show {
            Show::Nothing => {}
            Show::Progress(bar) | Show::Changes(bar) => bar.remark(text),
        }
    }

    /// Prints a remark for each failed job that was not named yet.
    async fn failures(&mut self) -> Result<(), Failure> {
        let named = self.named.len();
        let is_done = self.last.summary.job_counts.failed <= named as u64 || named >= NAMED;
        if is_done || matches!(self.show, Show::Nothing) {
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

    /// Prints a remark for a failed job, with the first line of its error.
    async fn name(&mut self, job: String) -> Result<(), Failure> {
        if matches!(self.show, Show::Nothing) || self.named.contains(&job) {
            return Ok(());
        }
        if self.named.len() < NAMED {
            let ask = Ask::get(format!("{}/jobs/{}", self.path(), escaped(&job)));
            let error = match self.remote.read::<Job>(&ask).await {
                Ok(job) => job
                    .errors
                    .last()
                    .map(|error| format!(": {}: {}", error.kind, first_line(&error.message))),
                // The job is requested again after the connection is restored.
                Err(failure) if failure.exit == Exit::Unavailable => return Ok(()),
                Err(failure) => return Err(failure),
            };
            self.remark(&printable(&format!(
                "job {job} failed{}",
                error.unwrap_or_default()
            )));
        } else if self.named.len() == NAMED {
            self.remark(&format!(
                "{NAMED} failed jobs were named; the others are only counted"
            ));
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
    use crate::client::address::Target;
    use crate::client::environment::{Colour, Glyphs, Locale};

    const NEW: &str = r#"{"id":"x","name":"n","status":"running","created_at":"2026-11-21T12:00:00Z","job_counts":{}}"#;
    const JOB: &str = r#"{"name":"a","handler":"h","queue":"q","state":"failed","attempt":1}"#;

    fn ended() -> String {
        NEW.replace("running", "succeeded")
    }

    /// Answers requests with what `answer` makes of the path and of the number of streams of events
    /// before. The streams stay open.
    fn serve(listener: &TcpListener, answer: fn(&str, usize) -> String) {
        let mut streams = Vec::new();
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let head = BufReader::new(&stream)
                .lines()
                .map(Result::unwrap)
                .take_while(|line| !line.is_empty());
            let path = head
                .reduce(|first, _| first)
                .unwrap()
                .split(' ')
                .nth(1)
                .unwrap()
                .to_owned();
            let text = answer(&path, streams.len());
            let is_stream = path.ends_with("/events");
            let text = if is_stream {
                format!("event: workflow\ndata: {text}\n\n")
            } else {
                text
            };
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{text}").unwrap();
            if is_stream {
                streams.push(stream);
            }
        }
    }

    /// Follows a workflow at a server that answers so, and gives the jobs that were named and the
    /// last link.
    async fn follow(answer: fn(&str, usize) -> String) -> (Vec<String>, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        std::thread::spawn(move || serve(&listener, answer));
        let remote = Remote::new(target, None, None).unwrap();
        let screen = Screen::new(
            None,
            Locale {
                colour: Colour::None,
                glyphs: Glyphs::Ascii,
            },
        );
        let first = Last {
            id: "x".to_owned(),
            summary: remote.parse(NEW).unwrap(),
            text: NEW.to_owned(),
        };
        let mut follower =
            Follower::new(&remote, &screen, Show::Progress(Bar::new(&screen)), first);
        follower.follow(Duration::from_millis(100)).await.unwrap();
        assert_eq!(follower.last.summary.status, "succeeded");
        (follower.named.into_iter().collect(), follower.link)
    }

    #[tokio::test]
    async fn a_stream_that_says_nothing_for_long_is_left() {
        let answer = |path: &str, streams| {
            if path.ends_with("/events") && streams > 0 {
                ended()
            } else {
                NEW.to_owned()
            }
        };
        assert_eq!(follow(answer).await, (vec![], Link::Up));
    }

    #[tokio::test]
    async fn a_job_that_failed_before_the_first_event_is_named() {
        let answer = |path: &str, _| match path {
            "/v1/workflows/x" => ended(),
            "/v1/workflows/x/events" => NEW.replace("{}", r#"{"failed":1}"#),
            "/v1/workflows/x/jobs/a" => JOB.to_owned(),
            _ => format!(r#"{{"items":[{JOB}],"next_cursor":null}}"#),
        };
        assert_eq!(follow(answer).await.0, ["a"]);
    }
}
