//! Follows one workflow by its events, and by polling if there are no events.

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::client::address::escaped;
use crate::client::api_client::ApiClient;
use crate::client::events::{Event, EventStream};
use crate::client::model::{Job, Page, WorkflowSummary};
use crate::client::workflow_ref::path;
use crate::output::Screen;
use crate::output::bar::Bar;
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::moment::Moment;
use crate::output::printable::printable;

/// Interval between two reads while there are no events.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a server may be unreachable, for example during an update.
const RECONNECT_TIME: Duration = Duration::from_secs(60);
/// Timeout of a stream of events. The server sends a comment every 15 s; this allows for two late
/// ones.
const STREAM_TIMEOUT: Duration = Duration::from_secs(40);
/// Limit of failed jobs that are named; the others are only counted.
const MAX_NAMED_JOBS: usize = 100;

/// Output while a workflow runs.
pub(super) enum ProgressDisplay<'a> {
    Nothing,
    /// A bar on a terminal, with remarks above it.
    Progress(Bar<'a>),
    /// A line for every change, and remarks.
    Changes(Bar<'a>),
}

/// Last known state of a workflow, parsed and as text.
pub(super) struct LastState {
    pub(super) id: String,
    pub(super) summary: WorkflowSummary,
    pub(super) text: String,
}

/// State of the connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Fresh,
    Up,
    /// Lost at this time.
    Down(Instant),
}

/// Follower of one workflow.
pub(super) struct Follower<'a> {
    remote: &'a ApiClient,
    screen: &'a Screen,
    show: ProgressDisplay<'a>,
    pub(super) last: LastState,
    /// Failed jobs that were named in a remark.
    named_jobs: HashSet<String>,
    link: ConnectionState,
}

#[derive(Debug, Deserialize)]
struct JobEvent {
    name: String,
    state: String,
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        remote: &'a ApiClient,
        screen: &'a Screen,
        show: ProgressDisplay<'a>,
        last: LastState,
    ) -> Self {
        Self {
            remote,
            screen,
            show,
            last,
            named_jobs: HashSet::new(),
            link: ConnectionState::Fresh,
        }
    }

    /// Follows events until the workflow is over, and polls if the stream ends early. Tolerates an
    /// unreachable server for `RECONNECT_TIME`. If the future is dropped, `last` is the last known
    /// state.
    pub(super) async fn run(&mut self) -> CommandResult<()> {
        self.follow(STREAM_TIMEOUT).await
    }

    async fn follow(&mut self, stream_timeout: Duration) -> CommandResult<()> {
        self.draw()?;
        self.name_failed_jobs().await?;
        while !self.last.summary.is_over() {
            if let Ok(body) = self.remote.stream(&format!("{}/events", self.path())).await {
                self.follow_events(EventStream::new(body, stream_timeout))
                    .await?;
            }
            if !self.last.summary.is_over() {
                // The stream ended early: the server restarts, or a proxy closes idle connections
                // or blocks streams. The connection counts as lost only if this read fails, too.
                sleep(POLL_INTERVAL).await;
                self.poll().await?;
            }
        }
        self.name_failed_jobs().await
    }

    fn path(&self) -> String {
        path(&self.last.id)
    }

    async fn follow_events<B>(&mut self, mut events: EventStream<B>) -> CommandResult<()>
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Unpin,
    {
        while !self.last.summary.is_over()
            && let Some(event) = events.next().await
        {
            self.on_connected();
            self.on_event(event).await?;
        }
        Ok(())
    }

    async fn on_event(&mut self, event: Event) -> CommandResult<()> {
        match event.name.as_str() {
            "workflow" => self.update(event.data).await,
            "removed" => Err(Failure::new(
                Exit::NotFound,
                format!("workflow {} was removed", self.last.id),
            )),
            "job" => {
                let job: JobEvent = self.remote.parse(&event.data)?;
                if job.state == "failed" {
                    return self.name_failed_job(job.name).await;
                }
                // The job is retried, and may fail again.
                self.named_jobs.remove(&job.name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads the workflow without events.
    async fn poll(&mut self) -> CommandResult<()> {
        match self.remote.get(self.path()).await {
            Ok(text) => {
                if matches!(self.link, ConnectionState::Down(_)) {
                    self.on_connected();
                }
                self.update(text).await
            }
            Err(failure) if failure.exit == Exit::Unavailable => {
                self.on_connection_lost();
                match self.link {
                    ConnectionState::Down(since) if since.elapsed() >= RECONNECT_TIME => {
                        Err(failure)
                    }
                    _ => Ok(()),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    async fn update(&mut self, text: String) -> CommandResult<()> {
        if text != self.last.text {
            self.last.summary = self.remote.parse(&text)?;
            self.last.text = text;
            self.draw()?;
        }
        // Events report only changes after the first one. A job that failed between two reads
        // appears only in the counts.
        self.name_failed_jobs().await
    }

    fn draw(&mut self) -> CommandResult<()> {
        let workflow = &self.last.summary;
        match &mut self.show {
            ProgressDisplay::Nothing => {}
            ProgressDisplay::Progress(bar) => bar.draw(
                workflow.job_counts.percent(),
                &workflow.status,
                &workflow.progress(),
            ),
            ProgressDisplay::Changes(_) => {
                self.screen.object(&self.last.text, &workflow.id, || {
                    let now = Moment::now().to_the_second();
                    Ok(format!(
                        "{now}  {}  {}\n",
                        printable(&workflow.status),
                        workflow.progress()
                    ))
                })?;
            }
        }
        Ok(())
    }

    fn on_connected(&mut self) {
        if let ConnectionState::Down(_) = self.link {
            self.remark("connected again");
        }
        self.link = ConnectionState::Up;
    }

    fn on_connection_lost(&mut self) {
        if !matches!(self.link, ConnectionState::Down(_)) {
            self.link = ConnectionState::Down(Instant::now());
            let server = self.remote.address();
            self.remark(&format!(
                "the connection to {server} was lost; trying to reconnect for {} s",
                RECONNECT_TIME.as_secs()
            ));
        }
    }

    fn remark(&self, text: &str) {
        match &self.show {
            ProgressDisplay::Nothing => {}
            ProgressDisplay::Progress(bar) | ProgressDisplay::Changes(bar) => bar.remark(text),
        }
    }

    /// Prints a remark for each failed job that was not named yet.
    async fn name_failed_jobs(&mut self) -> CommandResult<()> {
        let named = self.named_jobs.len();
        let is_done =
            self.last.summary.job_counts.failed <= named as u64 || named >= MAX_NAMED_JOBS;
        if is_done || matches!(self.show, ProgressDisplay::Nothing) {
            return Ok(());
        }
        let path = format!("{}/jobs?state=failed&limit={MAX_NAMED_JOBS}", self.path());
        let page = match self.remote.get_json::<Page>(path).await {
            Err(failure) if failure.exit == Exit::Unavailable => return Ok(()),
            page => page?,
        };
        for item in page.items {
            let job: Job = self.remote.parse(item.get())?;
            self.name_failed_job(job.name).await?;
        }
        Ok(())
    }

    /// Prints a remark for a failed job, with the first line of its error.
    async fn name_failed_job(&mut self, job: String) -> CommandResult<()> {
        if matches!(self.show, ProgressDisplay::Nothing) || self.named_jobs.contains(&job) {
            return Ok(());
        }
        if self.named_jobs.len() < MAX_NAMED_JOBS {
            let path = format!("{}/jobs/{}", self.path(), escaped(&job));
            let error = match self.remote.get_json::<Job>(path).await {
                Ok(job) => last_error(&job),
                // The job is requested again after the connection is restored.
                Err(failure) if failure.exit == Exit::Unavailable => return Ok(()),
                Err(failure) => return Err(failure),
            };
            self.remark(&printable(&format!("job {job} failed{error}")));
        } else if self.named_jobs.len() == MAX_NAMED_JOBS {
            self.remark(&format!(
                "{MAX_NAMED_JOBS} failed jobs were named; the others are only counted"
            ));
        }
        self.named_jobs.insert(job);
        Ok(())
    }
}

/// The first line of the last error of a job, after a colon. Empty if it has none.
fn last_error(job: &Job) -> String {
    let Some(error) = job.errors.last() else {
        return String::new();
    };
    let first_line = error.message.trim_start().lines().next();
    format!(": {}: {}", error.kind, first_line.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::client::address::ServerAddress;
    use crate::client::api_client::Token;
    use crate::environment::{Colour, Glyphs, Locale};

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
    async fn follow(answer: fn(&str, usize) -> String) -> (Vec<String>, ConnectionState) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = ServerAddress::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        std::thread::spawn(move || serve(&listener, answer));
        let remote = ApiClient::new(target, Token::default(), None).unwrap();
        let screen = Screen::new(
            None,
            Locale {
                colour: Colour::None,
                glyphs: Glyphs::Ascii,
            },
        );
        let first = LastState {
            id: "x".to_owned(),
            summary: remote.parse(NEW).unwrap(),
            text: NEW.to_owned(),
        };
        let mut follower = Follower::new(
            &remote,
            &screen,
            ProgressDisplay::Progress(Bar::new(&screen)),
            first,
        );
        follower.follow(Duration::from_millis(100)).await.unwrap();
        assert_eq!(follower.last.summary.status, "succeeded");
        (follower.named_jobs.into_iter().collect(), follower.link)
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
        assert_eq!(follow(answer).await, (vec![], ConnectionState::Up));
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
