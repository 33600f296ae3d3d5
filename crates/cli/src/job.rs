//! `tidegate job`: the jobs of a workflow.

use clap::{Args, Subcommand};
use serde_json::json;
use serde_json::value::RawValue;

use crate::ask::address::{Query, escaped};
use crate::ask::exit::{Exit, Failure};
use crate::ask::options::Options;
use crate::ask::remote::{Ask, Remote};
use crate::ask::wire;
use crate::screen::moment::{Moment, short};
use crate::screen::{Screen, print, printable};
use crate::workflow::list::{array, pages};
use crate::workflow::show;
use crate::workflow::{act, path};

/// Shows and steers single jobs of a workflow.
#[derive(Debug, Args)]
pub struct Job {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Lists the jobs of a workflow
    List(List),
    /// Shows a job: params, output, and what went wrong in each attempt
    Show(Named),
    /// Runs a failed or cancelled job again
    Retry(Named),
    /// Passes over a job: what comes after it goes on without it
    Skip(Named),
    /// Declares a job done, with an output if it is given one
    MarkSucceeded(Mark),
    /// Cancels a job
    Cancel(Named),
}

#[derive(Debug, Args)]
struct List {
    /// Id of the workflow
    id: String,
    /// Only those of these states
    #[arg(long, value_delimiter = ',')]
    state: Vec<String>,
    /// So many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct Named {
    /// Id of the workflow
    id: String,
    /// Name of the job
    job: String,
}

#[derive(Debug, Args)]
struct Mark {
    #[command(flatten)]
    named: Named,
    /// What it returned, as JSON: the jobs after it get it
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
}

impl Named {
    fn path(&self) -> String {
        format!("{}/jobs/{}", path(&self.id), escaped(&self.job))
    }

    fn ask(&self, verb: &str, body: String) -> Ask {
        Ask::post(format!("{}:{verb}", self.path()), body)
    }
}

impl Job {
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        let remote = &mut remote;
        match self.verb {
            Verb::List(list) => list.run(remote, &screen).await,
            Verb::Show(named) => named.show(remote, &screen).await,
            Verb::Retry(named) => act(&named.ask("retry", String::new()), remote, &screen).await,
            Verb::Skip(named) => act(&named.ask("skip", String::new()), remote, &screen).await,
            Verb::MarkSucceeded(mark) => act(&mark.ask()?, remote, &screen).await,
            Verb::Cancel(named) => act(&named.ask("cancel", String::new()), remote, &screen).await,
        }
    }
}

impl Mark {
    fn ask(&self) -> Result<Ask, Failure> {
        let wrong = |error| Failure::usage(format!("--result is not JSON: {error}"));
        let output = self.result.as_deref().map(serde_json::from_str::<&RawValue>).transpose().map_err(wrong)?;
        Ok(self.named.ask("mark_succeeded", json!({ "output": output }).to_string()))
    }
}

impl List {
    async fn run(&self, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
        let states = Some(self.state.join(",")).filter(|states| !states.is_empty());
        let query = Query::default().with("state", states);
        let (items, more) = pages(&format!("{}/jobs", path(&self.id)), &query, self.limit, remote).await?;
        if screen.is_json() {
            screen.line(&array(&items))?;
            return Ok(Exit::Done);
        }
        let jobs: Vec<wire::Job> = items.iter().map(|item| remote.parse(item.get())).collect::<Result<_, _>>()?;
        if jobs.is_empty() {
            screen.line("no jobs")?;
            return Ok(Exit::Done);
        }
        let jobs: Vec<&wire::Job> = jobs.iter().collect();
        print(&show::jobs(&jobs, &[], (Moment::now(), screen)).text(screen))?;
        if more.is_some() {
            screen.line(&format!("{} there are more: --limit {}", screen.dots(), self.limit.saturating_mul(10)))?;
        }
        Ok(Exit::Done)
    }
}

impl Named {
    async fn show(&self, remote: &mut Remote, screen: &Screen) -> Result<Exit, Failure> {
        let text = remote.text(&Ask::get(self.path())).await?;
        if screen.is_json() {
            screen.line(&text)?;
        } else {
            print(&shown(&remote.parse(&text)?, screen))?;
        }
        Ok(Exit::Done)
    }
}

fn shown(job: &wire::Job, screen: &Screen) -> String {
    let now = Moment::now();
    let moment = |moment: Option<Moment>| {
        moment.map(|moment| format!("{}  {}", moment.to_the_second(), moment.relative(now))).unwrap_or_default()
    };
    let json = |json: &Option<Box<RawValue>>| json.as_ref().map(|json| printable(json.get())).unwrap_or_default();
    let lines = [
        ("job", printable(&job.name)),
        ("handler", printable(&job.handler)),
        ("queue", printable(&job.queue)),
        ("state", screen.paint(&job.state, &job.state)),
        ("why", job.why_not_running.as_ref().map(|why| printable(&why.text)).unwrap_or_default()),
        ("attempt", show::attempt(job)),
        ("worker", job.worker.as_deref().map(printable).unwrap_or_default()),
        ("after", printable(&job.after.join(", "))),
        ("ready", moment(job.ready_at)),
        ("started", moment(job.started_at)),
        ("finished", moment(job.finished_at)),
        ("duration", job.duration(now).map(short).unwrap_or_default()),
        ("params", json(&job.params)),
        ("output", json(&job.output)),
    ];
    let present = lines.into_iter().filter(|(_, text)| !text.is_empty());
    let mut out: String = present.map(|(name, text)| format!("{name:<9} {text}\n")).collect();
    for error in &job.errors {
        let worker = error.worker.as_deref().map(|worker| format!(" by {worker}")).unwrap_or_default();
        let head = format!("attempt {}{worker}, {}", error.attempt, error.at.relative(now));
        out += &format!("\n{}\n  {}: {}\n", printable(&head), printable(&error.kind), printable(&error.message));
        let trace = error.trace.as_deref().unwrap_or_default();
        // A trace has lines of its own, and tabs before them.
        out.extend(trace.lines().map(|line| format!("    {}\n", printable(&line.replace('\t', "  ")))));
    }
    out
}
