//! Claims of workers for jobs.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use axum::response::Response;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{
    Claim, Claimed, Graph, Input, JobIndex, Json, LeaseRef, LeasedBatch, Timestamp,
};
#[cfg(test)]
use utoipa::ToSchema;

use super::params::merged;
use super::waiting;
use crate::http::body::{self, TimeSpan, check_name};
use crate::http::json::{self, Id, ObjectText, Verbatim};
use crate::http::problem::Problem;
use crate::http::quota::{self, QuotaGuard};
use crate::http::time::Rfc3339;
use crate::state::app_state::{AppState, HandlerResult, RequestContext};
use crate::state::metrics::CountedEvent;
use crate::state::traces::Traces;
use crate::workers::{self, WorkerProcess};

/// Most jobs of one claim.
const MAX_JOBS: usize = 1_000;
/// Most queues of one claim.
const MAX_QUEUES: usize = 100;
/// Most handlers of one claim.
const MAX_HANDLERS: usize = 256;
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Range of lease durations. A shorter lease would be lost to a short network failure. A longer one
/// would block the jobs of a dead worker.
const LEASE_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(3_600);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Typical bytes of a job in an answer, without its params.
const TYPICAL_JOB_BYTES: usize = 384;
/// Bytes of the answer besides the jobs.
const ENVELOPE_BYTES: usize = 64;

/// Claim of a worker.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Claim))]
pub(crate) struct ClaimBody {
    /// The queues to take jobs from.
    #[cfg_attr(test, schema(min_items = 1, max_items = 100))]
    queues: Vec<String>,
    /// Names of the handlers that the worker has: it gets only jobs with these handlers. If left
    /// out, it gets jobs with any handler.
    #[cfg_attr(test, schema(min_items = 1, max_items = 256))]
    handlers: Option<Vec<String>>,
    /// Name of the worker: 1 to 200 bytes that people will read.
    worker: String,
    /// How many jobs at most; 1 if left out.
    #[cfg_attr(test, schema(minimum = 1, maximum = 1000))]
    limit: Option<usize>,
    /// How long the jobs are the worker's unless it extends that: 5s to 1h, 30s if left out.
    lease: Option<TimeSpan>,
    /// How long to wait for work: at most 60s, not at all if left out.
    wait: Option<TimeSpan>,
    /// How long the worker has run, such as `1500ms`: one that started after it was drained does not drain.
    uptime: Option<TimeSpan>,
}

/// Validated claim of a worker.
#[derive(Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) claim: Claim,
    /// Time for which the worker waits for a job.
    pub(crate) wait: Duration,
    /// Time for which the worker has run. `None` if the worker does not report it.
    pub(crate) uptime: Option<Duration>,
}

/// The jobs that a worker gets. There are none when none came in time.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ClaimResult<'a> {
    jobs: Vec<ClaimedJob<'a>>,
    /// The worker should drain: it gets no more jobs. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<bool>,
}

/// A job as a worker gets it.
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ClaimedJob<'a> {
    /// Lease to report with.
    #[cfg_attr(test, schema(value_type = String))]
    lease: LeaseRef,
    #[cfg_attr(test, schema(value_type = Rfc3339))]
    lease_expires_at: Rc<str>,
    workflow_id: Id,
    workflow_name: &'a str,
    /// The name of the job.
    job: &'a str,
    handler: &'a str,
    queue: &'a str,
    /// Which attempt this is, from 1.
    attempt: u16,
    /// The number of this lease: higher than those of all earlier leases of the job, also after a restart.
    #[cfg_attr(test, schema(required, value_type = Option<u64>))]
    fence: u64,
    /// The workflow's globals and the job's params as one object. Where both have a key, it is the value of the params, also where both
    /// values are objects.
    #[cfg_attr(test, schema(value_type = Object))]
    params: Verbatim<'a>,
    /// Results of the jobs before it. With the rule `all_success`, jobs that returned nothing are
    /// left out.
    inputs: Vec<JobInput<'a>>,
    /// Names of jobs before it whose output or error is too large for this answer. Read each by itself.
    omitted_inputs: Vec<&'a str>,
    /// An attempt that takes longer has failed; null when there is no limit.
    #[cfg_attr(test, schema(required))]
    timeout_ms: Option<u64>,
    /// The span of this attempt, in the form of W3C Trace Context: the parent for the spans of the worker. Left out when the server exports
    /// no span of the attempt; then `$trace` in the params, if it is there, says where the creation was.
    traceparent: Option<String>,
    /// Its last two attempts were lost, or their process died: run it alone in a new process, and report `crashed` with `alone` if that dies.
    /// Left out otherwise.
    suspect: Option<bool>,
}

/// Result of a job before this one.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct JobInput<'a> {
    job: &'a str,
    handler: &'a str,
    /// Output of the job; null when it returned nothing.
    #[cfg_attr(test, schema(value_type = serde_json::Value))]
    output: Verbatim<'a>,
    /// State of the job, or `doomed` or `blocked` when it cannot run because of a failure before
    /// it. Left out with the rule `all_success`.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
    /// Why its latest attempt failed, when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<InputError<'a>>,
}

/// Why a job before this one failed.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct InputError<'a> {
    kind: &'a str,
    message: &'a str,
}

impl ClaimBody {
    /// Validates the claim. `prefix` is the path of the claim in the request.
    pub(crate) fn resolve(self, prefix: &str) -> Result<ClaimRequest, Problem> {
        let path = |field: &str| format!("{prefix}{field}");
        self.check_names(prefix)?;
        let limit = self.limit.unwrap_or(1);
        if !(1..=MAX_JOBS).contains(&limit) {
            return Err(Problem::field(
                path("limit"),
                format!("expected a number from 1 to {MAX_JOBS}"),
            ));
        }
        let lease = lease_duration(self.lease, &path("lease"))?;
        let wait = self.wait.map_or(Duration::ZERO, |wait| wait.0);
        if wait > MAX_WAIT {
            return Err(Problem::field(
                path("wait"),
                format!("expected at most {} s", MAX_WAIT.as_secs()),
            ));
        }
        let claim = Claim {
            queues: deduplicated(self.queues),
            handlers: self.handlers.map(deduplicated),
            worker: self.worker,
            limit,
            lease,
        };
        Ok(ClaimRequest {
            claim,
            wait,
            uptime: self.uptime.map(|uptime| uptime.0),
        })
    }

    /// Checks that queues, handlers and worker have valid names.
    fn check_names(&self, prefix: &str) -> Result<(), Problem> {
        check_list(&self.queues, MAX_QUEUES, &format!("{prefix}queues"))?;
        if let Some(handlers) = &self.handlers {
            check_list(handlers, MAX_HANDLERS, &format!("{prefix}handlers"))?;
        }
        check_name(&self.worker, || format!("{prefix}worker"))
    }
}

fn check_list(names: &[String], max_names: usize, path: &str) -> Result<(), Problem> {
    if names.is_empty() || names.len() > max_names {
        return Err(Problem::field(
            path,
            format!("expected 1 to {max_names} names"),
        ));
    }
    names
        .iter()
        .enumerate()
        .try_for_each(|(at, name)| check_name(name, || format!("{path}[{at}]")))
}

fn deduplicated(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the duration of a lease, if it is within bounds.
pub(crate) fn lease_duration(given: Option<TimeSpan>, path: &str) -> Result<Duration, Problem> {
    let lease = given.map_or(DEFAULT_LEASE, |lease| lease.0);
    let wrong = || Problem::field(path, "expected a time span from 5s to 1h");
    LEASE_RANGE
        .contains(&lease)
        .then_some(lease)
        .ok_or_else(wrong)
}

pub(crate) async fn claim(request: &RequestContext<'_>) -> HandlerResult {
    let ClaimRequest {
        claim,
        wait,
        uptime,
    } = body::read::<ClaimBody>(request.body)?.resolve("")?;
    let api = request.api;
    let process = workers::record_claim(api, &claim, uptime);
    workers::await_drains(api).await;
    if api.worker_registry.is_draining(&process) {
        let result = ClaimResult {
            jobs: Vec::new(),
            drain: Some(true),
        };
        return Ok(answer(&result, None, ENVELOPE_BYTES));
    }
    let batch = waiting::claim_or_wait(api, &claim, wait, &process).await?;
    let Delivered { jobs, guard } = deliver(request, &claim.worker, batch).await?;
    let result = ClaimResult {
        jobs: ClaimedJob::list_from(&jobs, &api.hooks.traces),
        drain: drain(api, &process),
    };
    Ok(answer(&result, guard, ENVELOPE_BYTES))
}

/// Claimed jobs with their inputs, and the quota that their answer holds.
#[derive(Default)]
pub(crate) struct Delivered {
    pub(crate) jobs: Vec<Claimed>,
    pub(crate) guard: Option<QuotaGuard>,
}

/// Reads the inputs of claimed jobs, once there is quota for them. The quota bounds the large
/// answers that are built at once, even for clients that do not read. Without quota the jobs are
/// returned to their queues.
pub(crate) async fn deliver(
    request: &RequestContext<'_>,
    worker: &str,
    batch: LeasedBatch,
) -> Result<Delivered, Problem> {
    let api = request.api;
    let guard = if batch.is_empty() {
        None
    } else {
        quota::reserve(&api.quotas.answers, &request.caller(), batch.bytes()).await?
    };
    let jobs = api.engine().deliver(batch).await?;
    api.worker_registry.record_leases(worker, &jobs, api.now());
    api.metrics.add(CountedEvent::Claimed, jobs.len() as u64);
    Ok(Delivered { jobs, guard })
}

/// Value of `drain` in an answer: true if the worker drains.
pub(crate) fn drain(api: &AppState, process: &WorkerProcess<'_>) -> Option<bool> {
    api.worker_registry.is_draining(process).then_some(true)
}

/// Answers with jobs and about `other_bytes` further bytes. A large answer uses its reserved quota.
pub(crate) fn answer(
    body: &impl Serialize,
    guard: Option<QuotaGuard>,
    other_bytes: usize,
) -> Response {
    match guard {
        Some(guard) => {
            quota::reserved_json(json::large_text(guard.size() + other_bytes, body), guard)
        }
        None => json::answer_text(json::large_text(other_bytes, body)),
    }
}

impl<'a> ClaimedJob<'a> {
    /// Lists the jobs for the answer to a claim. Most leases end at the same time, so its text is
    /// reused.
    pub(crate) fn list_from(claimed: &'a [Claimed], traces: &Traces) -> Vec<Self> {
        let mut latest: Option<(Timestamp, Rc<str>)> = None;
        let mut jobs = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            let same_expiry = latest
                .take()
                .filter(|(expires, _)| *expires == claimed.expires);
            let (expires, text) = same_expiry
                .unwrap_or_else(|| (claimed.expires, Rfc3339(claimed.expires).to_string().into()));
            jobs.push(Self {
                traceparent: traces.traceparent_for(claimed),
                ..Self::from_claimed(claimed, Rc::clone(&text))
            });
            latest = Some((expires, text));
        }
        jobs
    }

    fn from_claimed(claimed: &'a Claimed, lease_expires_at: Rc<str>) -> Self {
        let graph = claimed.graph();
        let job = claimed.job();
        let inputs = claimed.inputs.iter();
        let omitted = claimed.omitted.iter();
        Self {
            lease: claimed.lease,
            lease_expires_at,
            workflow_id: Id(claimed.lease.workflow),
            workflow_name: &graph.label.name,
            job: &job.name,
            handler: &job.handler,
            queue: &job.queue,
            attempt: claimed.attempt,
            fence: claimed.fence,
            params: Verbatim(merged_params(graph, claimed.lease.job)),
            inputs: inputs
                .map(|input| JobInput::from_input(graph, input))
                .collect(),
            omitted_inputs: omitted
                .map(|parent| &*graph.jobs[parent.index()].name)
                .collect(),
            timeout_ms: job.timeout.map(|timeout| timeout.as_millis() as u64),
            traceparent: None,
            suspect: claimed.suspect.then_some(true),
        }
    }
}

/// Returns the globals of a workflow with the params of a job.
fn merged_params(graph: &Graph, job: JobIndex) -> Cow<'_, str> {
    merged(
        graph.globals.as_ref().map(Json::text),
        graph.params(job).map(Json::text),
    )
}

impl<'a> JobInput<'a> {
    fn from_input(graph: &'a Graph, input: &'a Input) -> Self {
        let parent = &graph.jobs[input.job.index()];
        let error = input.error.as_ref();
        Self {
            job: &parent.name,
            handler: &parent.handler,
            output: Verbatim::from_bytes(&input.output),
            state: input.state,
            error: error.map(|error| InputError {
                kind: &error.kind,
                message: &error.message,
            }),
        }
    }
}

impl Serialize for ClaimedJob<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = ObjectText::with_capacity(TYPICAL_JOB_BYTES + self.params.0.len())
            .plain("lease", &self.lease.text())
            .plain("lease_expires_at", &self.lease_expires_at)
            .plain("workflow_id", &self.workflow_id.0.to_string())
            .text("workflow_name", self.workflow_name)
            .text("job", self.job)
            .text("handler", self.handler)
            .text("queue", self.queue)
            .number("attempt", Some(self.attempt.into()))
            .number("fence", Some(self.fence))
            .json("params", &self.params.0)
            .list("inputs", &self.inputs)
            .list("omitted_inputs", &self.omitted_inputs)
            .number("timeout_ms", self.timeout_ms);
        let object = match self.suspect {
            Some(_) => object.json("suspect", "true"),
            None => object,
        };
        match &self.traceparent {
            Some(traceparent) => object
                .plain("traceparent", traceparent)
                .serialize(serializer),
            None => object.serialize(serializer),
        }
    }
}
