//! A job as it is shown.

use std::fmt::Write as _;

use serde::Serialize;
use tidegate_workflow::{
    AttemptError, Full, Holding, JobIndex, JobResult, JobState, Limit, Progress, Reason, Snapshot,
};
#[cfg(test)]
use utoipa::ToSchema;

use crate::edge::json::Verbatim;
use crate::edge::problem::{Code, Problem};
use crate::edge::room::LARGE;
use crate::edge::time::Rfc3339;
use crate::edge::words::{RuleWord, StateWord};
use crate::workflows::limits::LimitShown;

/// Names that a sentence lists before it only counts.
const NAMED: usize = 3;

/// The most bytes of an answer with jobs: what one caller may have unread.
pub(crate) const MOST_TEXT: usize = LARGE / 2;

/// Whether it takes longer than a millisecond to write jobs: not their number decides, but how many names there are of those beside them.
pub(crate) fn is_long(snapshot: &Snapshot, jobs: impl IntoIterator<Item = JobIndex>) -> bool {
    const LONG: usize = 4_000;
    let graph = snapshot.graph();
    let names =
        |job: JobIndex| 1 + graph.jobs[job.index()].parents.len() + graph.children(job).len();
    jobs.into_iter().map(names).sum::<usize>() > LONG
}

pub(crate) fn too_long() -> Problem {
    let detail =
        format!("the answer would have more than {MOST_TEXT} bytes; /jobs has all jobs in pages");
    Problem::new(Code::PayloadTooLarge, detail)
}

/// A job. `params`, `output` and `errors` are there when it is shown alone, and with `view=full`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Job<'a> {
    name: &'a str,
    /// Its place in the definition, from 0.
    index: u32,
    handler: &'a str,
    queue: &'a str,
    priority: u8,
    state: StateWord,
    /// Attempts so far, the running one included.
    attempt: u16,
    /// Leases in a row that ended without a report.
    lost: u16,
    /// How many of them are tried again: one more fails the job.
    max_lost: u16,
    /// All attempts whose lease was lost or whose process died.
    lost_total: u16,
    /// Whether it runs alone in a new process next, or does now: two attempts in a row were lost, or their process died.
    suspect: bool,
    /// Names of the jobs that it runs after.
    after: Vec<&'a str>,
    /// Names of the jobs that run after it.
    before: Vec<&'a str>,
    rule: RuleWord,
    /// Whether it cannot run because a job before it has failed, and all jobs before it have ended.
    blocked: bool,
    #[cfg_attr(test, schema(required))]
    ready_at: Option<Rfc3339>,
    #[cfg_attr(test, schema(required))]
    started_at: Option<Rfc3339>,
    #[cfg_attr(test, schema(required))]
    finished_at: Option<Rfc3339>,
    /// When it becomes ready, while it is scheduled.
    #[cfg_attr(test, schema(required))]
    due_at: Option<Rfc3339>,
    /// When its lease ends, while it is running.
    #[cfg_attr(test, schema(required))]
    lease_expires_at: Option<Rfc3339>,
    /// Who runs it, or ran it last.
    #[cfg_attr(test, schema(required))]
    worker: Option<&'a str>,
    #[cfg_attr(test, schema(required))]
    timeout_ms: Option<u64>,
    retries: u16,
    wait_ms: u64,
    /// What it must be given before it runs; left out when there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Vec<LimitShown>>,
    #[cfg_attr(test, schema(required))]
    why_not_running: Option<WhyNotRunning<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    params: Option<Verbatim<'a>>,
    /// What it returned; null when it returned nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<serde_json::Value>))]
    output: Option<Verbatim<'a>>,
    /// The latest ten errors, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<JobError<'a>>>,
    /// How far it is, as its worker said last. Left out when no worker did, and where only `view=full` or the job alone has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<JobProgress<'a>>,
}

/// How far a job is.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct JobProgress<'a> {
    /// From 0 to 100.
    percent: u8,
    text: &'a str,
    /// When the worker said so.
    at: Rfc3339,
    /// The attempt that it was. A later one may have said nothing yet.
    attempt: u16,
}

/// Why a job does not run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct WhyNotRunning<'a> {
    reason: &'static str,
    /// The jobs that it waits for, or because of which it cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs: Option<Vec<&'a str>>,
    /// Until when it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Rfc3339>,
    /// The limit that has no room for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<LimitShown>,
    /// Which jobs run under that limit, if it is one of jobs that run at the same time: at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<Holder>>,
    /// The reason as a sentence for people.
    text: String,
}

/// A job that runs under a limit.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Holder {
    workflow: String,
    /// Its name; left out when the jobs are of many workflows.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Its place in the definition of that workflow, from 0.
    index: u32,
    /// When its place is free, unless its lease is extended.
    until: Rfc3339,
}

/// What went wrong in an attempt.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = AttemptError))]
struct JobError<'a> {
    attempt: u16,
    at: Rfc3339,
    #[cfg_attr(test, schema(required))]
    worker: Option<&'a str>,
    kind: &'a str,
    message: &'a str,
    #[cfg_attr(test, schema(required))]
    trace: Option<&'a str>,
}

impl<'a> Job<'a> {
    /// A job of a workflow; with what it left behind, all of it.
    pub(crate) fn of(
        snapshot: &'a Snapshot,
        index: JobIndex,
        result: Option<&'a JobResult>,
    ) -> Self {
        let (graph, job) = (snapshot.graph(), snapshot.job(index));
        let about = &graph.jobs[index.index()];
        let names = |jobs: &[JobIndex]| {
            jobs.iter()
                .map(|job| &*graph.jobs[job.index()].name)
                .collect()
        };
        let (due, expires) = match job.state {
            JobState::Scheduled { due } => (Some(due), None),
            JobState::Running { expires } => (None, Some(expires)),
            _ => (None, None),
        };
        let reason = snapshot.why_not_running(index);
        Self {
            name: &about.name,
            index: index.0,
            handler: &about.handler,
            queue: &about.queue,
            priority: about.priority,
            state: job.state.into(),
            attempt: job.attempt,
            lost: job.lost,
            max_lost: about.max_lost,
            lost_total: job.lost_total,
            suspect: job.is_suspect(),
            after: names(&about.parents),
            before: names(graph.children(index)),
            rule: about.rule.into(),
            blocked: snapshot.is_blocked(index),
            ready_at: job.ready_at.map(Rfc3339),
            started_at: job.started_at.map(Rfc3339),
            finished_at: job.finished_at.map(Rfc3339),
            due_at: due.map(Rfc3339),
            lease_expires_at: expires.map(Rfc3339),
            worker: job.worker.as_deref(),
            timeout_ms: about.timeout.map(|timeout| timeout.as_millis() as u64),
            retries: about.retry.limit,
            wait_ms: about.wait.as_millis() as u64,
            limits: graph.limits(index).map(|limits| LimitShown::all_of(limits)),
            why_not_running: reason.map(|reason| {
                let why = WhyNotRunning::of(snapshot, (&about.queue, &about.handler), &reason);
                if job.state == JobState::Ready {
                    why.after_losses(job, about.max_lost)
                } else {
                    why
                }
            }),
            params: result.map(|_| {
                Verbatim(
                    graph
                        .params(index)
                        .map_or("{}", |params| params.text())
                        .into(),
                )
            }),
            output: result.map(|result| {
                result
                    .output
                    .as_deref()
                    .map_or(Verbatim::NULL, Verbatim::of)
            }),
            errors: result.map(|result| result.errors.iter().map(JobError::of).collect()),
            progress: result
                .and_then(|result| result.progress.as_ref())
                .map(JobProgress::of),
        }
    }
}

impl<'a> JobProgress<'a> {
    fn of(
        Progress {
            attempt,
            at,
            percent,
            text,
        }: &'a Progress,
    ) -> Self {
        Self {
            percent: *percent,
            text,
            at: Rfc3339(*at),
            attempt: *attempt,
        }
    }
}

impl<'a> JobError<'a> {
    fn of(error: &'a AttemptError) -> Self {
        Self {
            attempt: error.attempt,
            at: Rfc3339(error.at),
            worker: error.worker.as_deref(),
            kind: &error.kind,
            message: &error.message,
            trace: error.trace.as_deref(),
        }
    }
}

impl<'a> WhyNotRunning<'a> {
    fn of(snapshot: &'a Snapshot, (queue, handler): (&str, &str), reason: &Reason) -> Self {
        let names = |jobs: &[JobIndex]| -> Vec<&'a str> {
            jobs.iter()
                .map(|job| snapshot.graph().jobs[job.index()].name.as_str())
                .collect()
        };
        let of = |reason, text: String| Self {
            reason,
            jobs: None,
            until: None,
            limit: None,
            holders: None,
            text,
        };
        match reason {
            Reason::NotStarted => of("not_started", "the workflow was not started".to_owned()),
            Reason::WorkflowPaused => of("workflow_paused", "the workflow is paused".to_owned()),
            Reason::WaitsFor(jobs) => {
                let jobs = names(jobs);
                Self {
                    jobs: Some(jobs.clone()),
                    ..of("waits_for", format!("waits for {}", listed(&jobs)))
                }
            }
            Reason::Doomed { by, waits_for } => {
                let (by, waits_for) = (names(by), names(waits_for));
                let text = format!(
                    "cannot run because of {}, and waits for {} to end",
                    listed(&by),
                    listed(&waits_for)
                );
                Self {
                    jobs: Some(by),
                    ..of("doomed", text)
                }
            }
            Reason::BlockedBy(jobs) => {
                let jobs = names(jobs);
                let text = format!(
                    "blocked by {}: retry what failed, or skip this job",
                    listed(&jobs)
                );
                Self {
                    jobs: Some(jobs),
                    ..of("blocked_by", text)
                }
            }
            Reason::Until(due) => {
                let due = Rfc3339(*due);
                Self {
                    until: Some(due),
                    ..of("until", format!("waits until {due}"))
                }
            }
            Reason::NoRoom(full) => Self::no_room(full),
            Reason::QueuePaused => of("queue_paused", format!("the queue '{queue}' is paused")),
            Reason::NoWorker => of(
                "no_worker",
                format!("no worker of this server asks for the queue '{queue}'"),
            ),
            Reason::NoHandler => {
                let text = format!(
                    "no worker that takes jobs of the queue '{queue}' from this server has the handler '{handler}'"
                );
                of("no_handler", text)
            }
            Reason::InQueue => of(
                "in_queue",
                format!("waits in the queue '{queue}' for a worker"),
            ),
        }
    }
}

impl Holder {
    pub(crate) fn of(Holding { lease, until, job }: &Holding) -> Self {
        Self {
            workflow: lease.workflow.to_string(),
            job: job.clone(),
            index: lease.job.0,
            until: Rfc3339(*until),
        }
    }
}

impl WhyNotRunning<'_> {
    /// With what happened to its last attempts.
    fn after_losses(mut self, job: &tidegate_workflow::Job, max_lost: u16) -> Self {
        if job.lost > 0 {
            let _ = write!(self.text, "; lost {} of {max_lost} in a row", job.lost);
        }
        if job.crashed > 0 {
            let _ = write!(self.text, "; crashed {} in a row", job.crashed);
        }
        if job.is_suspect() {
            self.text.push_str("; runs alone next");
        }
        self
    }

    fn no_room(full: &Full) -> Self {
        let Full {
            limit,
            until,
            running,
            holders,
        } = full;
        let until = Rfc3339(*until);
        let text = match limit {
            Limit::Units {
                domain, entries, ..
            } => {
                let entries: Vec<String> = entries
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                format!(
                    "waits for room under the limit '{domain}' of {}, at least until {until}",
                    entries.join(", ")
                )
            }
            Limit::Concurrency { most, .. } => {
                let names: Vec<&str> = holders
                    .iter()
                    .filter_map(|holder| holder.job.as_deref())
                    .collect();
                let all = usize::try_from(*running).unwrap_or(usize::MAX);
                let names = if names.is_empty() {
                    String::new()
                } else {
                    format!(": {}", first_of(&names, all))
                };
                format!(
                    "waits for a place: {running} of at most {most} run under this limit{names}"
                )
            }
        };
        let holders = matches!(limit, Limit::Concurrency { .. })
            .then(|| holders.iter().map(Holder::of).collect());
        let limit = Some(LimitShown::of(limit.definition()));
        Self {
            reason: "limit",
            jobs: None,
            until: Some(until),
            limit,
            holders,
            text,
        }
    }
}

/// The first names, and how many more there are.
fn listed(names: &[&str]) -> String {
    first_of(names, names.len())
}

/// The first names of `all`, of which not all may be known.
fn first_of(names: &[&str], all: usize) -> String {
    let first = &names[..names.len().min(NAMED)];
    let (first, more) = (first.join(", "), all.saturating_sub(first.len()));
    if more == 0 {
        first
    } else {
        format!("{first} and {more} more")
    }
}
