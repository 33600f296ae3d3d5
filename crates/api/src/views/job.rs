//! JSON view of a job.

use serde::Serialize;
use tidegate_workflow::{JobIndex, JobResult, JobState, Json, Snapshot};
#[cfg(test)]
use utoipa::ToSchema;

use super::error_summary::ErrorSummary;
use super::workflow_limits::LimitShown;
use crate::http::enum_text::{RuleWord, StateWord};
use crate::http::json::Verbatim;
use crate::http::problem::{Code, Problem};
use crate::http::quota::ANSWER_QUOTA_BYTES;
use crate::http::time::Rfc3339;
use crate::views::why::{PausedBy, WhyNotRunning};

/// Most bytes of an answer with jobs: the quota of large answers that one caller has.
pub(crate) const MAX_ANSWER_BYTES: usize = ANSWER_QUOTA_BYTES / 2;

/// Whether it takes longer than a millisecond to write jobs. The number of names of their parents
/// and children decides, not the number of jobs.
pub(crate) fn is_long(snapshot: &Snapshot, jobs: impl IntoIterator<Item = JobIndex>) -> bool {
    const MAX_FAST_NAMES: usize = 4_000;
    let graph = snapshot.graph();
    let names =
        |job: JobIndex| 1 + graph.jobs[job.index()].parents.len() + graph.children(job).len();
    jobs.into_iter().map(names).sum::<usize>() > MAX_FAST_NAMES
}

pub(crate) fn too_long() -> Problem {
    let detail = format!(
        "the answer would have more than {MAX_ANSWER_BYTES} bytes; /jobs has all jobs in pages"
    );
    Problem::new(Code::PayloadTooLarge, detail)
}

/// A job. `params`, `output` and `errors` are there when it is shown alone, and with `view=full`.
#[derive(Serialize)]
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
    /// Worker that runs it, or ran it last.
    #[cfg_attr(test, schema(required))]
    worker: Option<&'a str>,
    #[cfg_attr(test, schema(required))]
    timeout_ms: Option<u64>,
    retries: u16,
    wait_ms: u64,
    /// Limits of the job; left out when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Vec<LimitShown>>,
    #[cfg_attr(test, schema(required))]
    why_not_running: Option<WhyNotRunning<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    params: Option<Verbatim<'a>>,
    /// Output of the job; null when it returned nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<serde_json::Value>))]
    output: Option<Verbatim<'a>>,
    /// The latest ten errors, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<JobError<'a>>>,
    /// Its last error, if it has failed. Only pages of jobs have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorSummary>,
    /// How far it is, as its worker said last. Left out when no worker did, and where only `view=full` or the job alone has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<JobProgress<'a>>,
}

/// How far a job is.
#[derive(Serialize)]
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

/// Error of one attempt.
#[derive(Serialize)]
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
    /// Makes the view of a job, with its params, output and errors if there is a `result`.
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        index: JobIndex,
        result: Option<&'a JobResult>,
    ) -> Self {
        let graph = snapshot.graph();
        let job = snapshot.job(index);
        let definition = &graph.jobs[index.index()];
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
        let shown = Self {
            name: &definition.name,
            index: index.0,
            handler: &definition.handler,
            queue: &definition.queue,
            priority: definition.priority,
            state: job.state.into(),
            attempt: job.attempt,
            lost: job.lost,
            max_lost: definition.max_lost,
            lost_total: job.lost_total,
            suspect: job.is_suspect(),
            after: names(&definition.parents),
            before: names(graph.children(index)),
            rule: definition.rule.into(),
            blocked: snapshot.is_blocked(index),
            ready_at: job.ready_at.map(Rfc3339),
            started_at: job.started_at.map(Rfc3339),
            finished_at: job.finished_at.map(Rfc3339),
            due_at: due.map(Rfc3339),
            lease_expires_at: expires.map(Rfc3339),
            worker: job.worker.as_deref(),
            timeout_ms: definition.timeout.map(|timeout| timeout.as_millis() as u64),
            retries: definition.retry.limit,
            wait_ms: definition.wait.as_millis() as u64,
            limits: graph
                .limits(index)
                .map(|limits| LimitShown::list_from(limits)),
            why_not_running: WhyNotRunning::find(snapshot, index),
            params: None,
            output: None,
            errors: None,
            error: None,
            progress: None,
        };
        match result {
            Some(result) => shown.with_result(graph.params(index), result),
            None => shown,
        }
    }

    /// Adds the last error of a failed job.
    pub(crate) fn with_error(self, error: Option<&'a ErrorSummary>) -> Self {
        Self { error, ..self }
    }

    /// Adds the pause of the limit that the job waits for.
    pub(crate) fn with_pause(mut self, pause: Option<PausedBy<'a>>) -> Self {
        if let (Some(why), Some(pause)) = (&mut self.why_not_running, pause) {
            why.add_pause(pause);
        }
        self
    }

    /// Adds the fields that only the view of a single job has.
    fn with_result(self, params: Option<&'a Json>, result: &'a JobResult) -> Self {
        let output = result.output.as_deref();
        let errors = result.errors.iter().map(|error| JobError {
            attempt: error.attempt,
            at: Rfc3339(error.at),
            worker: error.worker.as_deref(),
            kind: &error.kind,
            message: &error.message,
            trace: error.trace.as_deref(),
        });
        Self {
            params: Some(Verbatim(params.map_or("{}", Json::text).into())),
            output: Some(output.map_or(Verbatim::NULL, Verbatim::from_bytes)),
            errors: Some(errors.collect()),
            progress: result.progress.as_ref().map(|progress| JobProgress {
                percent: progress.percent,
                text: &progress.text,
                at: Rfc3339(progress.at),
                attempt: progress.attempt,
            }),
            ..self
        }
    }
}
