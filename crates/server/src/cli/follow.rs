//! Waiting for the end of a workflow: `tidegate workflow wait`, `watch` and `run`.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use tidegate_workflow::picture::Glyphs;
use tokio::time::{Instant, sleep, timeout_at};

use super::events::Events;
use super::exit::{Exit, Failure};
use super::moment::{Moment, short};
use super::remote::{Ask, Remote};
use super::screen::{Screen, printable};
use super::table::cut;
use super::wire::Summary;
use super::workflow::{path, span_of};
use crate::clock;

/// Longest wait that the server is asked for at once.
const WAIT: Duration = Duration::from_secs(30);
/// Between two looks, when there are no events.
const LOOK: Duration = Duration::from_secs(1);
/// Marks of a bar.
const BAR: usize = 20;
/// A wait without end.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long to wait.
#[derive(Debug, Clone, Args)]
pub(super) struct Until {
    /// Wait this long at most, such as 10m; then the exit code is 3
    #[arg(long, value_name = "SPAN", value_parser = span_of)]
    timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct Wait {
    /// Id of the workflow
    id: String,
    #[command(flatten)]
    until: Until,
}

#[derive(Debug, Args)]
pub(super) struct Watch {
    /// Id of the workflow
    id: String,
    #[command(flatten)]
    until: Until,
}

impl Until {
    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout.unwrap_or(FOR_EVER)
    }
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

/// Waits in silence, and shows the workflow as it is then.
pub(super) async fn wait(wait: &Wait, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    let deadline = wait.until.deadline();
    loop {
        let rest = deadline.saturating_duration_since(Instant::now()).min(WAIT);
        let ask = Ask::get(format!("{}?wait={}ms", path(&wait.id), rest.as_millis())).waiting(rest);
        let text = remote.text(&ask).await?;
        let workflow: Summary = remote.parse(&text)?;
        if workflow.is_over() || Instant::now() >= deadline {
            last(&workflow, &text, screen);
            return Ok(outcome(&workflow));
        }
    }
}

/// Shows progress on a terminal until the workflow is over, then how it ended.
pub(super) async fn end(id: &str, until: &Until, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    if !io::stderr().is_terminal() {
        let wait = Wait { id: id.to_owned(), until: until.clone() };
        return self::wait(&wait, remote, screen).await;
    }
    let mut bar = Bar::default();
    let followed = follow(id, until.deadline(), remote, |workflow, _| bar.draw(workflow, screen)).await;
    bar.clear();
    let (workflow, text) = followed?;
    last(&workflow, &text, screen);
    Ok(outcome(&workflow))
}

/// Shows every change until the workflow is over.
pub(super) async fn watch(watch: &Watch, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    if screen.live && !screen.is_json() {
        return end(&watch.id, &watch.until, remote, screen).await;
    }
    let (workflow, _) = follow(&watch.id, watch.until.deadline(), remote, |workflow, text| {
        if screen.is_json() {
            screen.line(text);
        } else {
            let now = Moment(clock::moment()).to_the_second();
            screen.line(&format!("{now}  {}  {}", workflow.status, progress(workflow, screen)));
        }
    })
    .await?;
    Ok(outcome(&workflow))
}

/// Says how a workflow ended, or how far it came.
fn last(workflow: &Summary, text: &str, screen: &Screen) {
    if screen.is_json() {
        return screen.line(text);
    }
    let status = screen.paint(&workflow.status, &workflow.status);
    let duration = workflow.duration(clock::moment()).map(|duration| format!(" in {}", short(duration)));
    let duration = duration.filter(|_| workflow.is_over()).unwrap_or_default();
    let jobs: Vec<String> = workflow.jobs.present().map(|(word, number)| format!("{number} {word}")).collect();
    let name = printable(&workflow.name);
    screen.line(&format!("{}  {name}  {status}{duration}: {}", workflow.id, jobs.join(", ")));
    if workflow.status == "failed" {
        screen.line(&format!("`tidegate workflow show {} --jobs failed` says why", workflow.id));
    }
}

/// Tells of every change by `on` until the workflow is over or the deadline has passed; returns the workflow as it was last, and
/// the text that says so. Without events it looks again and again.
async fn follow(
    id: &str,
    deadline: Instant,
    remote: &mut Remote,
    mut on: impl FnMut(&Summary, &str),
) -> Result<(Summary, String), Failure> {
    let text = remote.text(&Ask::get(path(id))).await?;
    let mut known: (Summary, String) = (remote.parse(&text)?, text);
    on(&known.0, &known.1);
    while !known.0.is_over() && Instant::now() < deadline {
        if let Ok(body) = remote.stream(&format!("{}/events", path(id))).await {
            let mut events = Events::new(body);
            while let Ok(Some(event)) = timeout_at(deadline, events.next()).await {
                match event.name.as_str() {
                    "workflow" if event.data != known.1 => {
                        known = (remote.parse(&event.data)?, event.data);
                        on(&known.0, &known.1);
                    }
                    "removed" => return Err(Failure::new(Exit::NotFound, format!("workflow {id} was removed"))),
                    _ => {}
                }
                if known.0.is_over() {
                    return Ok(known);
                }
            }
        }
        // The events ended early: the server restarts, or a proxy does not let them through.
        sleep(LOOK.min(deadline.saturating_duration_since(Instant::now()))).await;
        let text = remote.text(&Ask::get(path(id))).await?;
        if text != known.1 {
            known = (remote.parse(&text)?, text);
            on(&known.0, &known.1);
        }
    }
    Ok(known)
}

/// One line on a terminal that is written over and over, to standard error: standard output is for the result.
#[derive(Debug, Default)]
struct Bar {
    drawn: bool,
}

impl Bar {
    fn draw(&mut self, workflow: &Summary, screen: &Screen) {
        let filled = BAR * workflow.jobs.percent() as usize / 100;
        let (full, empty) = if screen.terminal.glyphs == Glyphs::Unicode { ("█", "░") } else { ("#", ".") };
        let bar = format!("{}{}", full.repeat(filled), empty.repeat(BAR - filled));
        let text = format!("{bar} {} {}", workflow.status, progress(workflow, screen));
        // A line that wraps cannot be written over.
        let text = cut(&text, screen.terminal.width.min(200) - 1, screen.dots());
        self.drawn = true;
        // Progress that cannot be shown is no reason to stop.
        let _ = write!(io::stderr(), "\r\u{1b}[2K{text}");
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\u{1b}[2K");
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Such as `42% 3/7: 1 failed, 2 running, 1 waiting`.
fn progress(workflow: &Summary, screen: &Screen) -> String {
    let jobs = &workflow.jobs;
    let states = jobs.present().filter(|&(word, _)| word != "succeeded");
    let states: Vec<String> = states.map(|(word, number)| screen.paint(&format!("{number} {word}"), word)).collect();
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    format!("{}% {}/{}{states}", jobs.percent(), jobs.over(), jobs.total)
}
