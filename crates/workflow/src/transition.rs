//! The state machine: what an event does to a workflow. Pure: it reads no clock and writes nothing.

use std::time::Duration;

use thiserror::Error;

use crate::definition::{OnFailure, Retention};
use crate::id::JobIndex;
use crate::json::Json;
use crate::state::{JobState, RetentionDefaults, Status};
use crate::time::Timestamp;
use crate::workflow::{AttemptError, Workflow};

/// How often a job may lose its worker before it is failed: it may be what kills them.
const MAX_LOST: u16 = 3;

/// Something that happens to a workflow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// It is started.
    Start,
    /// A worker takes a job.
    Claim { job: JobIndex, lease: Lease },
    /// The worker with the lease says how the attempt ended.
    Report { job: JobIndex, token: u64, outcome: Outcome },
    /// The worker with the lease needs longer.
    Extend { job: JobIndex, token: u64, expires: Timestamp },
    /// A moment has come.
    Tick,
    /// All that has not ended is cancelled.
    Cancel,
    /// No more jobs are handed out.
    Pause,
    /// Jobs are handed out again.
    Resume,
    /// What failed, was cancelled or is blocked gets another chance.
    RetryFailed,
    /// Jobs that ended run again.
    Restart { jobs: Vec<JobIndex>, scope: RestartScope },
    /// A job will not run.
    Skip(JobIndex),
    /// A job counts as succeeded.
    MarkSucceeded { job: JobIndex, output: Option<Json> },
    /// One job is cancelled.
    CancelJob(JobIndex),
    /// It is kept so long after its end, or, when it is over, from now on.
    Keep(Retention),
    /// It is removed.
    Delete(DeleteIf),
}

/// A worker's right to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Random, not 0.
    pub(crate) token: u64,
    pub(crate) worker: Box<str>,
    pub(crate) expires: Timestamp,
}

/// Which jobs run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartScope {
    /// Only those named.
    Chosen,
    /// Also all that come after them.
    AndDescendants,
}

/// When a workflow may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteIf {
    /// It is over or was never started.
    Idle,
    /// Its time has come.
    Expired,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Well.
    Succeeded {
        /// What it returned.
        output: Option<Json>,
    },
    /// Not well.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// Whether to try again.
        retry: RetryWish,
    },
    /// It did not take place: the job is given back, and no attempt is counted.
    GivenBack {
        /// How long nobody should take it.
        pause: Duration,
    },
}

/// What a worker says of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// Kind of the error, such as its class.
    pub kind: String,
    /// What it says.
    pub message: String,
    /// Where it came from.
    pub trace: Option<String>,
}

/// What a worker thinks of another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryWish {
    /// As the definition says.
    #[default]
    ByPolicy,
    /// As often as the definition says, after this pause.
    After(Duration),
    /// It is of no use.
    Never,
}

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It took place.
    Done,
    /// It had taken place before.
    Already,
}

/// Why an event did not take place. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The job is no longer leased to who says so.
    #[error("the lease on job '{job}' was lost: the job is {state}; drop the result")]
    LeaseLost {
        /// The job's name.
        job: String,
        /// What it is doing now.
        state: &'static str,
    },
    /// The job cannot be taken.
    #[error("job '{job}' cannot be taken: it is {state}")]
    NotReady {
        /// The job's name.
        job: String,
        /// What it is doing now.
        state: &'static str,
    },
    /// The workflow is in the wrong state.
    #[error("cannot {verb} a workflow that is {status}{advice}")]
    WrongStatus {
        /// What was asked.
        verb: &'static str,
        /// What it is doing.
        status: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// A job is in the wrong state.
    #[error("cannot {verb} job '{job}', which is {state}{advice}")]
    WrongJobState {
        /// What was asked.
        verb: &'static str,
        /// The job's name.
        job: String,
        /// What it is doing.
        state: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
}

/// Does what an event does.
///
/// # Errors
/// The event cannot take place in this state; nothing changed.
pub(crate) fn transition(
    workflow: &mut Workflow,
    event: &Event,
    defaults: RetentionDefaults,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let effect = match event {
        Event::Start => start(workflow, defaults, now),
        Event::Claim { job, lease } => claim(workflow, *job, lease, now),
        Event::Report { job, token, outcome } => report(workflow, (*job, *token), outcome, now),
        Event::Extend { job, token, expires } => extend(workflow, *job, *token, *expires),
        Event::Tick => Ok(tick(workflow, now)),
        Event::Cancel => cancel(workflow, defaults, now),
        Event::Pause => swap(workflow, ("pause", Status::Running, Status::Paused), defaults, now),
        Event::Resume => swap(workflow, ("resume", Status::Paused, Status::Running), defaults, now),
        Event::RetryFailed => retry_failed(workflow, now),
        Event::Restart { jobs, scope } => restart(workflow, jobs, *scope, now),
        Event::Skip(job) => settle(workflow, "skip", *job, JobState::Skipped, now),
        Event::MarkSucceeded { job, output } => mark_succeeded(workflow, *job, output.as_ref(), now),
        Event::CancelJob(job) => settle(workflow, "cancel", *job, JobState::Cancelled, now),
        Event::Keep(retention) => Ok(keep(workflow, *retention, now)),
        Event::Delete(condition) => delete(workflow, *condition, now),
    }?;
    if effect == Effect::Done {
        workflow.conclude(defaults, now);
    }
    Ok(effect)
}

fn start(workflow: &mut Workflow, defaults: RetentionDefaults, now: Timestamp) -> Result<Effect, Refusal> {
    match workflow.meta.status {
        Status::Pending => {}
        status if status.is_over() => {
            return Err(wrong_status("start", status, "; retry or restart it, or create another"));
        }
        status => return Err(wrong_status("start", status, ": it was started before")),
    }
    workflow.set_status(Status::Running, defaults, now);
    workflow.meta.started_at = Some(now);
    workflow.advance(now);
    Ok(Effect::Done)
}

fn claim(workflow: &mut Workflow, index: JobIndex, lease: &Lease, now: Timestamp) -> Result<Effect, Refusal> {
    let job = workflow.job(index);
    match job.state {
        JobState::Ready if workflow.meta.status == Status::Running => {}
        JobState::Running { .. } if job.token == lease.token => return Ok(Effect::Already),
        state => return Err(Refusal::NotReady { job: name(workflow, index), state: state.word() }),
    }
    let job = workflow.job_mut(index);
    job.attempt = job.attempt.saturating_add(1);
    job.token = lease.token;
    job.worker = Some(lease.worker.clone());
    job.started_at = Some(now);
    workflow.set_state(index, JobState::Running { expires: lease.expires }, now);
    Ok(Effect::Done)
}

fn report(
    workflow: &mut Workflow,
    (index, token): (JobIndex, u64),
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let job = workflow.job(index);
    match job.state {
        JobState::Running { .. } if job.token == token => {}
        // The token is kept until the next lease, so the same report again finds what it did the first time.
        _ if job.token == token && token != 0 => return Ok(Effect::Already),
        state => return Err(Refusal::LeaseLost { job: name(workflow, index), state: state.word() }),
    }
    match outcome {
        Outcome::Succeeded { output } => {
            if let Some(output) = output.as_ref().filter(|output| !output.is_null()) {
                workflow.put_output(index, output.text().as_bytes());
            }
            workflow.end(index, JobState::Succeeded, now);
        }
        Outcome::Failed { failure, retry } => fail_attempt(workflow, index, failure, *retry, now),
        Outcome::GivenBack { pause } => {
            let job = workflow.job_mut(index);
            job.attempt = job.attempt.saturating_sub(1);
            let state = if pause.is_zero() { JobState::Ready } else { JobState::Scheduled { due: now + *pause } };
            workflow.set_state(index, state, now);
        }
    }
    Ok(Effect::Done)
}

/// Ends an attempt that failed: the job runs again later, or fails.
fn fail_attempt(workflow: &mut Workflow, index: JobIndex, failure: &Failure, wish: RetryWish, now: Timestamp) {
    let policy = workflow.graph.jobs[index.index()].retry;
    let job = workflow.job(index);
    let attempt = job.attempt;
    let error = AttemptError {
        attempt,
        at: now,
        worker: job.worker.clone(),
        kind: failure.kind.clone(),
        message: failure.message.clone(),
        trace: failure.trace.clone(),
    };
    workflow.put_error(index, &error);
    let pause = match wish {
        RetryWish::Never => None,
        _ if attempt > policy.limit => None,
        RetryWish::ByPolicy => Some(policy.pause(attempt)),
        RetryWish::After(pause) => Some(pause),
    };
    match pause {
        Some(pause) if pause.is_zero() => workflow.set_state(index, JobState::Ready, now),
        Some(pause) => workflow.set_state(index, JobState::Scheduled { due: now + pause }, now),
        None => {
            workflow.end(index, JobState::Failed, now);
            if workflow.graph.on_failure == OnFailure::FailFast {
                cancel_rest(workflow, now);
            }
        }
    }
}

/// Cancels all that has not ended.
fn cancel_rest(workflow: &mut Workflow, now: Timestamp) {
    for at in 0..workflow.jobs.len() {
        let index = JobIndex(at as u16);
        if !workflow.job(index).state.is_over() {
            revoke(workflow, index);
            workflow.set_state(index, JobState::Cancelled, now);
        }
    }
    workflow.advance(now);
}

/// Takes a job away from the worker that may have it: its report will be refused.
fn revoke(workflow: &mut Workflow, index: JobIndex) {
    if workflow.job(index).token != 0 {
        workflow.job_mut(index).token = 0;
    }
}

fn extend(workflow: &mut Workflow, index: JobIndex, token: u64, expires: Timestamp) -> Result<Effect, Refusal> {
    match workflow.job(index).state {
        JobState::Running { expires: before } if workflow.job(index).token == token => {
            // The timer stays where it is: it comes early, finds nothing due and is moved then.
            workflow.job_mut(index).state = JobState::Running { expires: before.max(expires) };
            Ok(Effect::Done)
        }
        state => Err(Refusal::LeaseLost { job: name(workflow, index), state: state.word() }),
    }
}

fn tick(workflow: &mut Workflow, now: Timestamp) -> Effect {
    for index in workflow.due_by(now) {
        match workflow.job(index).state {
            JobState::Scheduled { .. } => workflow.set_state(index, JobState::Ready, now),
            JobState::Running { .. } if workflow.times_out(index).is_some_and(|end| end <= now) => {
                let timeout = workflow.graph.jobs[index.index()].timeout.expect("it timed out");
                let message = format!("the attempt took longer than {timeout:?}");
                let failure = Failure { kind: "timeout".to_owned(), message, trace: None };
                revoke(workflow, index);
                fail_attempt(workflow, index, &failure, RetryWish::ByPolicy, now);
            }
            JobState::Running { .. } => lose(workflow, index, now),
            // An earlier job of the list may have failed, and taken this one with it.
            _ => {}
        }
    }
    workflow.rewind();
    Effect::Done
}

/// A lease ended: the worker is gone, or too slow to say otherwise.
fn lose(workflow: &mut Workflow, index: JobIndex, now: Timestamp) {
    revoke(workflow, index);
    let job = workflow.job_mut(index);
    let attempt = job.attempt;
    job.lost += 1;
    job.attempt = attempt.saturating_sub(1);
    let (lost, worker) = (job.lost, job.worker.clone());
    let who = worker.as_deref().unwrap_or("nobody").to_owned();
    let message = format!("worker '{who}' did not report or extend its lease in time");
    let error = AttemptError { attempt, at: now, worker, kind: "lost".to_owned(), message, trace: None };
    workflow.put_error(index, &error);
    if lost <= MAX_LOST {
        return workflow.set_state(index, JobState::Ready, now);
    }
    workflow.end(index, JobState::Failed, now);
    if workflow.graph.on_failure == OnFailure::FailFast {
        cancel_rest(workflow, now);
    }
}

fn cancel(workflow: &mut Workflow, defaults: RetentionDefaults, now: Timestamp) -> Result<Effect, Refusal> {
    match workflow.meta.status {
        Status::Cancelled => return Ok(Effect::Already),
        status if status.is_over() => return Err(wrong_status("cancel", status, "")),
        _ => {}
    }
    cancel_rest(workflow, now);
    workflow.set_status(Status::Cancelled, defaults, now);
    Ok(Effect::Done)
}

fn swap(
    workflow: &mut Workflow,
    (verb, from, to): (&'static str, Status, Status),
    defaults: RetentionDefaults,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    match workflow.meta.status {
        status if status == to => return Ok(Effect::Already),
        status if status != from => return Err(wrong_status(verb, status, "")),
        _ => {}
    }
    workflow.set_status(to, defaults, now);
    Ok(Effect::Done)
}

fn retry_failed(workflow: &mut Workflow, now: Timestamp) -> Result<Effect, Refusal> {
    if workflow.meta.status == Status::Pending {
        return Err(wrong_status("retry", Status::Pending, ": start it"));
    }
    let again: Vec<JobIndex> = (0..workflow.jobs.len())
        .map(|at| JobIndex(at as u16))
        .filter(|&job| matches!(workflow.job(job).state, JobState::Failed | JobState::Cancelled))
        .collect();
    if again.is_empty() {
        return match workflow.meta.status.is_over() {
            true => Err(wrong_status("retry", workflow.meta.status, ": no job failed")),
            false => Ok(Effect::Already),
        };
    }
    run_again(workflow, &again, now);
    Ok(Effect::Done)
}

fn restart(workflow: &mut Workflow, jobs: &[JobIndex], scope: RestartScope, now: Timestamp) -> Result<Effect, Refusal> {
    if workflow.meta.status == Status::Pending {
        return Err(wrong_status("restart jobs of", Status::Pending, ": start it"));
    }
    let mut again = jobs.to_vec();
    if scope == RestartScope::AndDescendants {
        again.extend(workflow.graph.descendants(jobs));
    }
    if let Some(&job) = again.iter().find(|&&job| workflow.job(job).state.is_active()) {
        return Err(wrong_job(workflow, "restart", job, ": wait for its end or cancel it"));
    }
    run_again(workflow, &again, now);
    Ok(Effect::Done)
}

/// Puts jobs back to the beginning, and lets run what may.
fn run_again(workflow: &mut Workflow, jobs: &[JobIndex], now: Timestamp) {
    for &index in jobs {
        if workflow.job(index).has_output {
            workflow.drop_output(index);
        }
        let job = workflow.job_mut(index);
        (job.attempt, job.lost, job.token) = (0, 0, 0);
        (job.started_at, job.ready_at, job.worker) = (None, None, None);
        workflow.set_state(index, JobState::Waiting, now);
    }
    workflow.advance(now);
}

/// Ends a job by hand.
fn settle(
    workflow: &mut Workflow,
    verb: &'static str,
    index: JobIndex,
    state: JobState,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    match workflow.job(index).state {
        before if before == state => return Ok(Effect::Already),
        JobState::Succeeded => return Err(wrong_job(workflow, verb, index, "")),
        JobState::Running { .. } if state == JobState::Skipped => {
            return Err(wrong_job(workflow, verb, index, ": wait for its end or cancel it"));
        }
        before if before.is_over() && state == JobState::Cancelled => {
            return Err(wrong_job(workflow, verb, index, ""));
        }
        _ => {}
    }
    revoke(workflow, index);
    workflow.set_state(index, state, now);
    advance_if_started(workflow, now);
    Ok(Effect::Done)
}

fn mark_succeeded(
    workflow: &mut Workflow,
    index: JobIndex,
    output: Option<&Json>,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    if workflow.job(index).state == JobState::Succeeded {
        return Ok(Effect::Already);
    }
    revoke(workflow, index);
    if let Some(output) = output.filter(|output| !output.is_null()) {
        workflow.put_output(index, output.text().as_bytes());
    }
    workflow.set_state(index, JobState::Succeeded, now);
    advance_if_started(workflow, now);
    Ok(Effect::Done)
}

fn advance_if_started(workflow: &mut Workflow, now: Timestamp) {
    if workflow.meta.status != Status::Pending {
        workflow.advance(now);
    }
}

fn keep(workflow: &mut Workflow, retention: Retention, now: Timestamp) -> Effect {
    workflow.meta.retention = Some(retention);
    if workflow.meta.status.is_over() {
        workflow.meta.expires_at = match retention {
            Retention::For(span) => Some(now + span),
            Retention::Forever => None,
        };
    }
    Effect::Done
}

fn delete(workflow: &mut Workflow, condition: DeleteIf, now: Timestamp) -> Result<Effect, Refusal> {
    let status = workflow.meta.status;
    let allowed = match condition {
        DeleteIf::Idle => status.is_over() || status == Status::Pending,
        DeleteIf::Expired => workflow.meta.expires_at.is_some_and(|expires| expires <= now),
    };
    if !allowed {
        return Err(wrong_status("remove", status, ": cancel it first"));
    }
    workflow.delete();
    Ok(Effect::Already)
}

fn wrong_status(verb: &'static str, status: Status, advice: &'static str) -> Refusal {
    Refusal::WrongStatus { verb, status: status.word(), advice }
}

fn wrong_job(workflow: &Workflow, verb: &'static str, index: JobIndex, advice: &'static str) -> Refusal {
    let state = workflow.job(index).state.word();
    Refusal::WrongJobState { verb, job: name(workflow, index), state, advice }
}

fn name(workflow: &Workflow, index: JobIndex) -> String {
    workflow.graph.jobs[index.index()].name.clone()
}
