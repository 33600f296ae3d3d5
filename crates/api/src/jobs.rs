//! The jobs of a workflow: list, show, and what operators do to one.

pub(crate) mod claims;
pub(crate) mod reports;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_workflow::{Action, JobIndex, JobResult, JobState, Reason, RestartScope, Snapshot, Timestamp};

use crate::edge::ask::{Answer, Ask};
use crate::edge::body;
use crate::edge::json::Json;
use crate::edge::problem::{Code, Problem};
use crate::edge::query::Query;
use crate::edge::route::JobAction;
use crate::edge::time::Rfc3339;
use crate::workflows::definition::{json as json_of, rule_word};
use crate::workflows::{MOST_ITEMS, NoBody, done};
use reports::MOST_OUTPUT;

/// Names that a sentence lists before it only counts.
const NAMED: usize = 3;

/// A job; with what it left behind, all of it.
pub(crate) fn write(json: &mut Json, snapshot: &Snapshot, index: JobIndex, result: Option<&JobResult>) {
    let (graph, job) = (snapshot.graph(), &snapshot.jobs()[index.index()]);
    let about = &graph.jobs[index.index()];
    let names = |jobs: &[JobIndex]| -> Vec<&str> { jobs.iter().map(|job| &*graph.jobs[job.index()].name).collect() };
    json.object(|json| {
        json.key("name").string(&about.name);
        json.key("index").number(index.0);
        json.key("handler").string(&about.handler);
        json.key("queue").string(&about.queue);
        json.key("priority").number(about.priority);
        json.key("state").plain(job.state.word());
        json.key("attempt").number(job.attempt);
        json.key("lost").number(job.lost);
        json.key("after").strings(names(&about.parents));
        json.key("before").strings(names(graph.children(index)));
        json.key("rule").plain(rule_word(about.rule));
        json.key("blocked").boolean(snapshot.is_blocked(index));
        let mut moment = |name: &str, moment: Option<Timestamp>| json.key(name).maybe(moment, Json::time);
        moment("ready_at", job.ready_at);
        moment("started_at", job.started_at);
        moment("finished_at", job.finished_at);
        let (due, expires) = match job.state {
            JobState::Scheduled { due } => (Some(due), None),
            JobState::Running { expires } => (None, Some(expires)),
            _ => (None, None),
        };
        moment("due_at", due);
        moment("lease_expires_at", expires);
        json.key("worker").maybe(job.worker.as_deref(), Json::string);
        json.key("timeout_ms").maybe(about.timeout, |json, timeout| json.number(timeout.as_millis() as u64));
        json.key("retries").number(about.retry.limit);
        json.key("wait_ms").number(about.wait.as_millis() as u64);
        json.key("why_not_running").maybe(snapshot.why_not_running(index), |json, reason| {
            write_reason(json, snapshot, &about.queue, &reason);
        });
        if let Some(result) = result {
            let params = about.params.as_ref().map_or("{}", |params| params.text());
            json.key("params").raw(params.as_bytes());
            write_result(json, result);
        }
    });
}

fn write_result(json: &mut Json, result: &JobResult) {
    json.key("output").maybe(result.output.as_ref(), |json, output| json.raw(output));
    json.key("errors").array(&result.errors, |json, error| {
        json.object(|json| {
            json.key("attempt").number(error.attempt);
            json.key("at").time(error.at);
            json.key("worker").maybe(error.worker.as_deref(), Json::string);
            json.key("kind").string(&error.kind);
            json.key("message").string(&error.message);
            json.key("trace").maybe(error.trace.as_deref(), Json::string);
        });
    });
}

fn write_reason(json: &mut Json, snapshot: &Snapshot, queue: &str, reason: &Reason) {
    let name = |job: &JobIndex| snapshot.graph().jobs[job.index()].name.as_str();
    let listed = |jobs: &[JobIndex]| {
        let first: Vec<&str> = jobs.iter().take(NAMED).map(name).collect();
        let more = jobs.len().saturating_sub(NAMED);
        if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
    };
    let (word, text) = match reason {
        Reason::NotStarted => ("not_started", "the workflow was not started".to_owned()),
        Reason::WorkflowPaused => ("workflow_paused", "the workflow is paused".to_owned()),
        Reason::WaitsFor(jobs) => ("waits_for", format!("waits for {}", listed(jobs))),
        Reason::BlockedBy(jobs) => {
            ("blocked_by", format!("blocked by {}: retry what failed, or skip this job", listed(jobs)))
        }
        Reason::Until(due) => ("until", format!("waits until {}", Rfc3339(*due))),
        Reason::QueuePaused => ("queue_paused", format!("the queue '{queue}' is paused")),
        Reason::NoWorker => ("no_worker", format!("no worker of this server asks for the queue '{queue}'")),
        Reason::InQueue => ("in_queue", format!("in the queue '{queue}', for a worker to take it")),
    };
    json.object(|json| {
        json.key("reason").plain(word);
        match reason {
            Reason::WaitsFor(jobs) | Reason::BlockedBy(jobs) => json.key("jobs").strings(jobs.iter().map(name)),
            Reason::Until(due) => json.key("until").time(*due),
            _ => {}
        }
        json.key("text").string(&text);
    });
}

pub(crate) async fn list(ask: &Ask<'_>) -> Answer {
    let id = ask.workflow()?;
    let mut query = Query::new(ask.query)?;
    let state = query.take("state");
    let words: Vec<&str> = state.iter().flat_map(|state| state.split(',')).collect();
    if let Some(word) = words.iter().find(|word| !JobState::WORDS.contains(*word)) {
        let known = JobState::WORDS.join(", ");
        return Err(Problem::field("state", format!("'{word}' is not a state; there are {known}")));
    }
    let limit = query.limit(100, MOST_ITEMS)?;
    let from = match query.take("cursor") {
        Some(text) => text.parse().map_err(|_| Problem::new(Code::InvalidCursor, "it is not one of next_cursor"))?,
        None => 0_u16,
    };
    query.end()?;
    let snapshot = ask.api.engine.show(id).await?;
    let jobs = snapshot.jobs().iter().enumerate().skip(usize::from(from));
    let mut wanted = jobs.filter(|(_, job)| words.is_empty() || words.contains(&job.state.word())).map(|(at, _)| at);
    let page: Vec<usize> = wanted.by_ref().take(limit).collect();
    let next = wanted.next();
    let json = Json::of(|json| {
        json.key("items").array(page, |json, at| write(json, &snapshot, JobIndex(at as u16), None));
        json.key("next_cursor").maybe(next, Json::plain);
    });
    Ok(json.ok())
}

/// The job that the path names.
fn find(snapshot: &Snapshot, name: &str) -> Result<JobIndex, Problem> {
    let none = || Problem::new(Code::JobNotFound, format!("workflow {} has no job '{name}'", snapshot.id()));
    snapshot.graph().find(name).ok_or_else(none)
}

pub(crate) async fn show(ask: &Ask<'_>) -> Answer {
    let id = ask.workflow()?;
    Query::new(ask.query)?.end()?;
    let snapshot = ask.api.engine.show(id).await?;
    let index = find(&snapshot, &ask.matched.name(1)?)?;
    let result = ask.api.engine.results(id, &[index]).await?.pop().unwrap_or_default();
    let mut json = Json::default();
    write(&mut json, &snapshot, index, Some(&result));
    Ok(json.ok())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkBody<'a> {
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

pub(crate) async fn act(ask: &Ask<'_>, word: JobAction) -> Answer {
    let job = ask.matched.name(1)?;
    if word == JobAction::MarkSucceeded {
        let MarkBody { output } = body::read_optional(ask.body)?;
        if output.is_some_and(|output| output.get().len() > MOST_OUTPUT) {
            let detail = format!("the output has more than {MOST_OUTPUT} bytes; return a reference instead");
            return Err(Problem::new(Code::PayloadTooLarge, detail).at("output"));
        }
        body::check_depth(output, "output")?;
        return done(ask, Action::MarkSucceeded { job, output: output.map(json_of) }).await;
    }
    body::read_optional::<NoBody>(ask.body)?;
    let action = match word {
        JobAction::Skip => Action::SkipJob(job),
        JobAction::Cancel => Action::CancelJob(job),
        _ => {
            let snapshot = ask.api.engine.show(ask.workflow()?).await?;
            let state = snapshot.jobs()[find(&snapshot, &job)?.index()].state;
            if !matches!(state, JobState::Failed | JobState::Cancelled) {
                let detail = format!(
                    "cannot retry job '{job}', which is {}: it has neither failed nor been cancelled",
                    state.word()
                );
                return Err(Problem::new(Code::StateConflict, detail));
            }
            Action::Restart { jobs: vec![job], scope: RestartScope::Chosen }
        }
    };
    done(ask, action).await
}
