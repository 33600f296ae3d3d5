//! Attempts: a worker takes a job and reports its end, or its lease ends.

use std::time::Duration;

use super::event::{Effect, Lease};
use super::outcome::{Failure, Outcome, RetryWish};
use super::refusal::{Refusal, lease_lost, lease_over, name};
use super::revoke::cancel_rest;
use crate::graph::definition::OnFailure;
use crate::id::JobIndex;
use crate::record::lease::LeaseRef;
use crate::state::{AttemptError, JobState, LeaseEnd, Rerun, Status};
use crate::time::Timestamp;
use crate::workflow::Workflow;

/// Leases that a job may lose. The fourth lost lease fails the job: it may be the job that kills its workers.
const MAX_LOST: u16 = 3;

pub(super) fn claim(
    workflow: &mut Workflow,
    index: JobIndex,
    lease: &Lease,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let job = workflow.job(index);
    match job.state {
        JobState::Ready if workflow.meta().status == Status::Running => {}
        JobState::Running { .. } if job.token == lease.token => return Ok(Effect::Already),
        state => return Err(Refusal::NotReady { job: name(workflow, index), state: state.word() }),
    }
    let job = workflow.job_mut(index);
    job.attempt = job.attempt.saturating_add(1);
    job.token = lease.token;
    job.fence += 1;
    job.ended_by = None;
    job.rerun = Rerun::No;
    job.worker = Some(lease.worker.clone());
    job.started_at = Some(now);
    workflow.set_state(index, JobState::Running { expires: lease.expires }, now);
    Ok(Effect::Done)
}

pub(super) fn report(
    workflow: &mut Workflow,
    (index, token): (JobIndex, u64),
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let job = workflow.job(index);
    let reported = LeaseRef { workflow: workflow.id, job: index, token };
    match job.state {
        JobState::Running { .. } if job.token == token => {}
        // The token is kept until the next lease, so that a repeated report gets the same answer.
        state if job.token == token && token != 0 && may_follow(state, outcome) => return Ok(Effect::Already),
        // It failed, and its next attempt was handed over with the report.
        JobState::Running { .. }
            if token != 0
                && job.token == reported.successor(index).token
                && matches!(outcome, Outcome::Failed { .. }) =>
        {
            return Ok(Effect::Already);
        }
        _ => return Err(lease_lost(workflow, index, token)),
    }
    match outcome {
        Outcome::Succeeded { output } => {
            let output = output.as_ref().filter(|output| !output.is_null());
            // What runs again returns its output then.
            if let Some(output) = output.filter(|_| workflow.job(index).rerun != Rerun::AfterEnd) {
                workflow.put_output(index, output.text().as_bytes());
            }
            workflow.finish(index, JobState::Succeeded, now);
        }
        Outcome::Failed { failure, retry } => fail_attempt(workflow, index, failure, *retry, now),
        Outcome::GivenBack { pause } | Outcome::Throttled { pause } => {
            let job = workflow.job_mut(index);
            job.attempt = job.attempt.saturating_sub(1);
            make_ready_after(workflow, index, *pause, now);
        }
        Outcome::NotBegun => return_to_place(workflow, index, now),
    }
    Ok(Effect::Done)
}

/// Makes a job ready again that nobody has begun, in its place in the queue.
fn return_to_place(workflow: &mut Workflow, index: JobIndex, now: Timestamp) {
    let job = workflow.job_mut(index);
    job.attempt = job.attempt.saturating_sub(1);
    let since = job.ready_at;
    make_ready_after(workflow, index, Duration::ZERO, now);
    if workflow.job(index).state == JobState::Ready {
        workflow.job_mut(index).ready_at = since;
    }
}

/// A lease did not reach its worker.
pub(super) fn give_back(
    workflow: &mut Workflow,
    index: JobIndex,
    token: u64,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    report(workflow, (index, token), &Outcome::NotBegun, now)
}

/// Whether a job may be in this state because of a report with this outcome.
fn may_follow(state: JobState, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Succeeded { .. } => state == JobState::Succeeded,
        Outcome::Failed { .. } => state == JobState::Failed || !state.is_over(),
        Outcome::GivenBack { .. } | Outcome::Throttled { .. } | Outcome::NotBegun => !state.is_over(),
    }
}

/// Makes a job ready for another attempt, at once or after a pause. If a job before it runs again meanwhile, it waits for that first.
fn make_ready_after(workflow: &mut Workflow, index: JobIndex, pause: Duration, now: Timestamp) {
    if !workflow.may_run(index) {
        workflow.set_state(index, JobState::Waiting, now);
        workflow.advance(now);
        return;
    }
    let state = if pause.is_zero() { JobState::Ready } else { JobState::Scheduled { due: now + pause } };
    workflow.set_state(index, state, now);
}

pub(super) fn extend(
    workflow: &mut Workflow,
    (index, token): (JobIndex, u64),
    expires: Timestamp,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    match workflow.job(index).state {
        JobState::Running { .. } if workflow.job(index).token == token && expires <= now => {
            Err(lease_over(workflow, index))
        }
        JobState::Running { .. } if workflow.job(index).token == token => {
            // The timer is not moved to later. It comes early, finds nothing due, and is moved then.
            workflow.set_state(index, JobState::Running { expires }, now);
            Ok(Effect::Done)
        }
        _ => Err(lease_lost(workflow, index, token)),
    }
}

pub(super) fn tick(workflow: &mut Workflow, now: Timestamp) -> Effect {
    for index in workflow.due_by(now) {
        match workflow.job(index).state {
            JobState::Scheduled { .. } => workflow.set_state(index, JobState::Ready, now),
            JobState::Running { .. } if workflow.times_out(index).is_some_and(|end| end <= now) => {
                let timeout = workflow.graph.jobs[index.index()].timeout.expect("it timed out");
                let message = format!("the attempt took longer than {timeout:?}");
                let failure = Failure { kind: "timeout".to_owned(), message, trace: None };
                workflow.revoke(index, LeaseEnd::TimedOut);
                fail_attempt(workflow, index, &failure, RetryWish::ByPolicy, now);
            }
            JobState::Running { .. } => lose(workflow, index, now),
            // An earlier job of the list may have failed and cancelled this one.
            _ => {}
        }
    }
    workflow.reset_timer();
    Effect::Done
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
        Some(pause) => make_ready_after(workflow, index, pause, now),
        None => fail(workflow, index, now),
    }
}

/// Fails a job for good, and with it the workflow if its definition says so.
fn fail(workflow: &mut Workflow, index: JobIndex, now: Timestamp) {
    match workflow.graph.on_failure {
        OnFailure::Continue => workflow.finish(index, JobState::Failed, now),
        OnFailure::FailFast => {
            workflow.end(index, JobState::Failed, now);
            cancel_rest(workflow, now);
        }
    }
}

/// A lease has ended without a report: the worker has died or is too slow.
fn lose(workflow: &mut Workflow, index: JobIndex, now: Timestamp) {
    workflow.revoke(index, LeaseEnd::Expired);
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
        make_ready_after(workflow, index, Duration::ZERO, now);
    } else {
        fail(workflow, index, now);
    }
}
