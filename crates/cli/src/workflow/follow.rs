//! Waiting for the end of a workflow: `tidegate workflow wait`, `watch` and `run`.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ask::environment::Glyphs;
use crate::ask::events::Events;
use crate::ask::exit::{Exit, Failure};
use crate::ask::remote::{Ask, Remote};
use crate::ask::wire::Summary;
use crate::screen::moment::span_of;
use crate::screen::moment::{Moment, short};
use crate::screen::table::cut;
use crate::screen::{Screen, columns, printable};
use crate::workflow::path;

/// Between two looks, when there are no events.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time that a server may be away, such as for an update.
const AWAY: Duration = Duration::from_secs(60);
/// Marks of a bar.
const BAR: usize = 20;
/// A wait without end.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long to wait.
#[derive(Debug, Clone, Args)]
pub(crate) struct Until {
    /// Wait this long at most, such as 10m; then the exit code is 3
    #[arg(long, value_name = "SPAN", value_parser = span_of)]
    timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Id of the workflow
    id: String,
    #[command(flatten)]
    until: Until,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
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

/// Waits in silence, and says how the workflow ended.
pub(crate) async fn wait(wait: &Wait, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    let followed = follow(&wait.id, &wait.until, remote, |_, _| Ok(())).await;
    ended(followed?, screen)
}

/// Shows progress, if there is a terminal, until the workflow is over, and says how it ended.
pub(crate) async fn run(id: &str, until: &Until, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    let mut bar = Bar::new(screen);
    let followed = follow(id, until, remote, |workflow, _| {
        bar.draw(workflow);
        Ok(())
    })
    .await;
    drop(bar);
    ended(followed?, screen)
}

/// Shows progress on a terminal, and elsewhere every change, until the workflow is over.
pub(crate) async fn watch(watch: &Watch, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
    if screen.live && !screen.is_json() {
        return run(&watch.id, &watch.until, remote, screen).await;
    }
    let followed = follow(&watch.id, &watch.until, remote, |workflow, text| {
        if screen.is_json() {
            return screen.line(text);
        }
        let now = Moment::now().to_the_second();
        screen.line(&format!("{now}  {}  {}", workflow.status, progress(workflow)))
    });
    Ok(outcome(&followed.await?.0))
}

/// Says how a workflow ended, or how far it came.
fn ended((workflow, text): (Summary, String), screen: &Screen) -> Result<Exit, Failure> {
    let outcome = outcome(&workflow);
    if screen.is_json() {
        return screen.line(&text).map(|()| outcome);
    }
    let status = screen.paint(&workflow.status, &workflow.status);
    let duration = workflow.duration(Moment::now()).map(|duration| format!(" in {}", short(duration)));
    let duration = duration.filter(|_| workflow.is_over()).unwrap_or_default();
    let name = printable(&workflow.name);
    screen.line(&format!("{}  {name}  {status}{duration}: {}", workflow.id, workflow.jobs.listed(|_| true)))?;
    if outcome == Exit::Failed {
        screen.line(&format!("`tidegate workflow show {} --jobs failed` says why", workflow.id))?;
    }
    Ok(outcome)
}

/// Tells of every change by `on` until the workflow is over, the time is, or somebody interrupts; returns the workflow as it was last,
/// and the text that says so.
async fn follow(
    id: &str,
    until: &Until,
    remote: &mut Remote,
    on: impl FnMut(&Summary, &str) -> Result<(), Failure>,
) -> Result<(Summary, String), Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).expect("a handler for this signal can be installed");
    tokio::select! {
        followed = changes(id, until.deadline(), remote, on) => followed,
        _ = interrupt.recv() => {
            let again = format!("workflow {id} goes on; `tidegate workflow watch {id}` follows it again");
            Err(Failure::new(Exit::Interrupted, format!("interrupted: {again}")))
        }
    }
}

/// Listens to events; without them, it looks again and again. A server that is away for a while is waited for.
async fn changes(
    id: &str,
    deadline: Instant,
    remote: &mut Remote,
    mut on: impl FnMut(&Summary, &str) -> Result<(), Failure>,
) -> Result<(Summary, String), Failure> {
    let text = remote.text(&Ask::get(path(id))).await?;
    let mut known: (Summary, String) = (remote.parse(&text)?, text);
    let mut heard = Instant::now();
    on(&known.0, &known.1)?;
    while !known.0.is_over() && Instant::now() < deadline {
        if let Ok(Ok(body)) = timeout_at(deadline, remote.stream(&format!("{}/events", path(id)))).await {
            let mut events = Events::new(body);
            while let Ok(Some(event)) = timeout_at(deadline, events.next()).await {
                match event.name.as_str() {
                    "workflow" if event.data != known.1 => {
                        known = (remote.parse(&event.data)?, event.data);
                        on(&known.0, &known.1)?;
                    }
                    "removed" => return Err(Failure::new(Exit::NotFound, format!("workflow {id} was removed"))),
                    _ => {}
                }
                if known.0.is_over() {
                    return Ok(known);
                }
            }
            heard = Instant::now();
        }
        // The events ended early: the server restarts, or a proxy does not let them through.
        sleep(LOOK.min(deadline.saturating_duration_since(Instant::now()))).await;
        match remote.text(&Ask::get(path(id))).await {
            Ok(text) if text == known.1 => heard = Instant::now(),
            Ok(text) => {
                heard = Instant::now();
                known = (remote.parse(&text)?, text);
                on(&known.0, &known.1)?;
            }
            Err(failure) if failure.exit == Exit::Unavailable && heard.elapsed() < AWAY => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(known)
}

/// One line on a terminal that is written over and over, to standard error: standard output is for the result.
#[derive(Debug)]
struct Bar<'a> {
    screen: &'a Screen,
    drawn: bool,
}

impl<'a> Bar<'a> {
    fn new(screen: &'a Screen) -> Self {
        Self { screen, drawn: false }
    }

    /// Draws it, if standard error is a terminal.
    fn draw(&mut self, workflow: &Summary) {
        let out = io::stderr();
        if !out.is_terminal() {
            return;
        }
        let filled = BAR * workflow.jobs.percent() as usize / 100;
        let (full, empty) = if self.screen.terminal.glyphs == Glyphs::Unicode { ("█", "░") } else { ("#", ".") };
        let bar = format!("{}{}", full.repeat(filled), empty.repeat(BAR - filled));
        let text = format!("{bar} {} {}", workflow.status, progress(workflow));
        // A line that wraps cannot be written over; a terminal may have become narrower.
        let text = cut(&text, columns(&out).saturating_sub(1), self.screen.dots());
        self.drawn = true;
        // Progress that cannot be shown is no reason to stop.
        let _ = write!(out.lock(), "\r\u{1b}[2K{}", self.screen.paint(&text, &workflow.status));
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr(), "\r\u{1b}[2K");
        }
    }
}

/// Such as `42% 3/7: 1 failed, 2 running, 1 waiting`.
fn progress(workflow: &Summary) -> String {
    let jobs = &workflow.jobs;
    let states = jobs.listed(|word| word != "succeeded");
    let states = if states.is_empty() { states } else { format!(": {states}") };
    format!("{}% {}/{}{states}", jobs.percent(), jobs.over(), jobs.total)
}
