//! Attempts: a worker claims a job and reports its end, or its lease ends.

use std::time::Duration;

use super::{
    Crash, Effect, Failure, Intent, Lease, Outcome, Refusal, RetryWish, Workflow, job_name,
    lease_expired, lease_lost,
};
use crate::graph::OnFailure;
use crate::model::{
    AttemptError, Job, JobIndex, JobState, Json, LeaseEnd, Rerun, Status, Timestamp,
};

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
        state => {
            return Err(Refusal::NotReady {
                job: job_name(workflow, index),
                state: state.word(),
            });
        }
    }
    let job = workflow.job_mut(index);
    job.attempt = job.attempt.saturating_add(1);
    job.token = lease.token;
    job.fence += 1;
    job.ended_by = None;
    job.rerun = Rerun::No;
    job.worker = Some(lease.worker.clone());
    job.started_at = Some(now);
    job.set_lease(lease.expires.since(now));
    workflow.set_state(
        index,
        JobState::Running {
            expires: lease.expires,
        },
        now,
    );
    Ok(Effect::Done)
}

pub(super) fn report(
    workflow: &mut Workflow,
    index: JobIndex,
    token: u64,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let job = workflow.job(index);
    if !job.state.is_running() || job.token != token {
        return if is_repeated(job, token, outcome) {
            Ok(Effect::Already)
        } else {
            Err(lease_lost(workflow, index, token))
        };
    }
    // These two outcomes are not reports about the job's own run.
    if !matches!(outcome, Outcome::Crashed(_) | Outcome::NotBegun) {
        workflow.job_mut(index).clear_lost();
    }
    match outcome {
        Outcome::Succeeded { output } => succeed(workflow, index, output.as_ref(), now),
        Outcome::Failed { failure, retry } => fail_attempt(workflow, index, failure, *retry, now),
        Outcome::Returned { pause } | Outcome::Throttled { pause } => {
            return_job(workflow, index, *pause, now);
        }
        Outcome::Crashed(crash) => end_by_crash(workflow, index, *crash, now),
        Outcome::NotBegun => return_to_position(workflow, index, now),
    }
    Ok(Effect::Done)
}

/// Whether a report is a repetition. The token is kept until the next lease, so that a repeated
/// report gets the same answer.
fn is_repeated(job: &Job, token: u64, outcome: &Outcome) -> bool {
    job.token == token && token != 0 && may_result_from(job, outcome)
}

fn succeed(workflow: &mut Workflow, index: JobIndex, output: Option<&Json>, now: Timestamp) {
    let output = output.filter(|output| !output.is_null());
    // A job that runs again after this attempt keeps no output of it.
    if let Some(output) = output.filter(|_| workflow.job(index).rerun != Rerun::AfterEnd) {
        workflow.put_output(index, output.text().as_bytes());
    }
    workflow.finish(index, JobState::Succeeded, now);
}

/// Makes a job that was not begun ready again, at its former position in the queue.
fn return_to_position(workflow: &mut Workflow, index: JobIndex, now: Timestamp) {
    let since = workflow.job(index).ready_at;
    return_job(workflow, index, Duration::ZERO, now);
    if workflow.job(index).state == JobState::Ready {
        workflow.job_mut(index).ready_at = since;
    }
}

/// Makes a job ready again without counting its attempt.
fn return_job(workflow: &mut Workflow, index: JobIndex, pause: Duration, now: Timestamp) {
    let job = workflow.job_mut(index);
    job.attempt = job.attempt.saturating_sub(1);
    make_ready_after(workflow, index, pause, now);
}

/// Whether an earlier report with this outcome may explain the state of a job that no longer runs.
fn may_result_from(job: &Job, outcome: &Outcome) -> bool {
    let state = job.state;
    // The end was reported before, and the rule of the job reset it after that.
    let was_reset = job.ended_by.is_some();
    match outcome {
        Outcome::Succeeded { .. } => was_reset || state == JobState::Succeeded,
        Outcome::Failed { .. } | Outcome::Crashed(_) => {
            was_reset || state == JobState::Failed || !state.is_over()
        }
        Outcome::Returned { .. } | Outcome::Throttled { .. } | Outcome::NotBegun => {
            !was_reset && !state.is_over()
        }
    }
}

/// Makes a job ready for another attempt, at once or after a delay. If a parent runs again
/// meanwhile, the job waits for the parent first.
fn make_ready_after(workflow: &mut Workflow, index: JobIndex, pause: Duration, now: Timestamp) {
    if !workflow.may_run(index) {
        workflow.set_state(index, JobState::Waiting, now);
        workflow.advance(now);
        return;
    }
    let state = if pause.is_zero() {
        JobState::Ready
    } else {
        JobState::Scheduled { due: now + pause }
    };
    workflow.set_state(index, state, now);
}

pub(super) fn extend(
    workflow: &mut Workflow,
    (index, token): (JobIndex, u64),
    expires: Timestamp,
    intent: Intent,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let job = workflow.job(index);
    if !job.state.is_running() || job.token != token {
        return Err(lease_lost(workflow, index, token));
    }
    if expires <= now {
        return Err(lease_expired(workflow, index));
    }
    let job = workflow.job_mut(index);
    job.set_lease(expires.since(now));
    job.stopping |= intent == Intent::Stop;
    // The timer is not moved to a later time. It fires early, finds no due job, and is moved then.
    workflow.set_state(index, JobState::Running { expires }, now);
    Ok(Effect::Done)
}

/// Handles due jobs in the order in which they became due, so that an outage does not change the
/// results.
pub(super) fn tick(workflow: &mut Workflow, served_since: Timestamp, now: Timestamp) -> Effect {
    for index in workflow.due_by(now, served_since) {
        match workflow.job(index).state {
            JobState::Scheduled { .. } => workflow.set_state(index, JobState::Ready, now),
            JobState::Running { expires } => match workflow.attempt_end(index, expires) {
                LeaseEnd::TimedOut => time_out(workflow, index, now),
                _ => expire_lease(workflow, index, now),
            },
            // An earlier job of the list may have failed and cancelled this one.
            _ => {}
        }
    }
    workflow.reset_timer(served_since);
    Effect::Done
}

fn time_out(workflow: &mut Workflow, index: JobIndex, now: Timestamp) {
    let timeout = workflow.graph.jobs[index.index()].timeout;
    let failure = Failure {
        kind: "timeout".to_owned(),
        message: format!(
            "the attempt took longer than {:?}",
            timeout.unwrap_or_default()
        ),
        trace: None,
    };
    workflow.revoke(index, LeaseEnd::TimedOut);
    fail_attempt(workflow, index, &failure, RetryWish::ByPolicy, now);
}

/// Ends a failed attempt: the job runs again later, or fails.
fn fail_attempt(
    workflow: &mut Workflow,
    index: JobIndex,
    failure: &Failure,
    wish: RetryWish,
    now: Timestamp,
) {
    let policy = workflow.graph.jobs[index.index()].retry;
    let attempt = workflow.job(index).attempt;
    put_error(workflow, index, attempt, failure.clone(), now);
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

/// Stores the error of an attempt.
fn put_error(
    workflow: &mut Workflow,
    index: JobIndex,
    attempt: u16,
    failure: Failure,
    now: Timestamp,
) {
    let Failure {
        kind,
        message,
        trace,
    } = failure;
    let worker = workflow.job(index).worker.clone();
    workflow.put_error(
        index,
        &AttemptError {
            attempt,
            at: now,
            worker,
            kind,
            message,
            trace,
        },
    );
}

/// Fails a job finally, and cancels the others if the definition says so.
fn fail(workflow: &mut Workflow, index: JobIndex, now: Timestamp) {
    match workflow.graph.on_failure {
        OnFailure::Continue => workflow.finish(index, JobState::Failed, now),
        OnFailure::FailFast => {
            workflow.end(index, JobState::Failed, now);
            cancel_rest(workflow, now);
        }
    }
}

/// Whether a job whose attempt ended without a report runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterLoss {
    Retry,
    Fail,
}

/// Ends a lease without a report: the worker has died or is too slow. A job whose worker had
/// announced that it stops counts as returned.
fn expire_lease(workflow: &mut Workflow, index: JobIndex, now: Timestamp) {
    let stopping = workflow.job(index).stopping;
    workflow.revoke(index, LeaseEnd::Expired);
    if stopping {
        return return_job(workflow, index, Duration::ZERO, now);
    }
    let job = workflow.job_mut(index);
    job.lost = job.lost.saturating_add(1);
    let next = if job.lost <= workflow.graph.jobs[index.index()].max_lost {
        AfterLoss::Retry
    } else {
        AfterLoss::Fail
    };
    let message = format!(
        "{} did not report or extend its lease in time",
        worker(workflow.job(index))
    );
    end_uncounted(
        workflow,
        index,
        Failure {
            kind: "lost".to_owned(),
            message,
            trace: None,
        },
        next,
        now,
    );
}

/// Handles the death of the process that ran a job. The job is to blame if it ran alone as a
/// suspect, or if its processes die too often.
fn end_by_crash(workflow: &mut Workflow, index: JobIndex, crash: Crash, now: Timestamp) {
    let max_lost = workflow.graph.jobs[index.index()].max_lost;
    let was_suspect = workflow.job(index).is_suspect();
    let job = workflow.job_mut(index);
    job.crashed = job.crashed.saturating_add(1);
    let to_blame = (was_suspect && crash.alone)
        || job.crashed.saturating_add(job.lost) > Job::max_crashes(max_lost);
    let (kind, next) = if to_blame {
        ("poison", AfterLoss::Fail)
    } else {
        ("crashed", AfterLoss::Retry)
    };
    let alone_text = if crash.alone {
        ", and it ran nothing else"
    } else {
        ""
    };
    let message = format!(
        "the process of {} {}{alone_text}",
        worker(workflow.job(index)),
        crash.death
    );
    end_uncounted(
        workflow,
        index,
        Failure {
            kind: kind.to_owned(),
            message,
            trace: None,
        },
        next,
        now,
    );
}

fn worker(job: &Job) -> String {
    format!("worker '{}'", job.worker.as_deref().unwrap_or("nobody"))
}

/// Ends an attempt that does not count, with an error for people.
fn end_uncounted(
    workflow: &mut Workflow,
    index: JobIndex,
    failure: Failure,
    next: AfterLoss,
    now: Timestamp,
) {
    let job = workflow.job_mut(index);
    let attempt = job.attempt;
    job.attempt = attempt.saturating_sub(1);
    job.lost_total = job.lost_total.saturating_add(1);
    put_error(workflow, index, attempt, failure, now);
    match next {
        AfterLoss::Retry => make_ready_after(workflow, index, Duration::ZERO, now),
        AfterLoss::Fail => fail(workflow, index, now),
    }
}

impl Workflow {
    /// Revokes the lease of a job, if it has one: the report of its worker will be refused with the
    /// reason `end`.
    pub(crate) fn revoke(&mut self, index: JobIndex, end: LeaseEnd) {
        if self.job(index).token != 0 {
            let job = self.job_mut(index);
            job.token = 0;
            job.ended_by = Some(end);
        }
    }
}

/// Cancels all jobs that have not ended.
pub(super) fn cancel_rest(workflow: &mut Workflow, now: Timestamp) {
    for index in workflow.job_indexes() {
        if !workflow.job(index).state.is_over() {
            workflow.revoke(index, LeaseEnd::Cancelled);
            workflow.set_state(index, JobState::Cancelled, now);
        }
    }
    workflow.advance(now);
}

#[cfg(test)]
mod tests;
