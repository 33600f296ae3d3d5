//! Actions of operators on a workflow or on one of its jobs.

use super::{
    DeleteIf, Effect, Reachability, Refusal, RestartScope, Workflow, cancel_rest, wrong_job,
    wrong_status,
};
use crate::model::{
    JobIndex, JobState, Json, LeaseEnd, Rerun, Retention, RetentionDefaults, Status, Timestamp,
};

const ACTIVE_ADVICE: &str = ": wait for its end or cancel it";
const ENDED_ADVICE: &str = ": it has ended";
const BLOCKED_ADVICE: &str = ": retry what failed, or skip this job";

pub(super) fn start(
    workflow: &mut Workflow,
    defaults: RetentionDefaults,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let advice = match workflow.meta().status {
        Status::Pending => None,
        status if status.is_over() => Some(": retry or restart it, or create another"),
        _ => Some(": it was started before"),
    };
    if let Some(advice) = advice {
        return Err(wrong_status("start", workflow.meta().status, advice));
    }
    workflow.set_status(Status::Running, defaults, now);
    workflow.meta_mut().started_at = Some(now);
    workflow.advance(now);
    Ok(Effect::Done)
}

pub(super) fn cancel(
    workflow: &mut Workflow,
    defaults: RetentionDefaults,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    match workflow.meta().status {
        Status::Cancelled => return Ok(Effect::Already),
        status if status.is_over() => return Err(wrong_status("cancel", status, ENDED_ADVICE)),
        _ => {}
    }
    cancel_rest(workflow, now);
    workflow.set_status(Status::Cancelled, defaults, now);
    Ok(Effect::Done)
}

/// Refuses an action on a workflow that was not started.
fn check_started(workflow: &Workflow, verb: &'static str) -> Result<(), Refusal> {
    match workflow.meta().status {
        Status::Pending => Err(wrong_status(verb, Status::Pending, ": start it")),
        _ => Ok(()),
    }
}

/// Changes an active workflow to `to`, which is paused or running.
pub(super) fn pause_or_resume(
    workflow: &mut Workflow,
    to: Status,
    defaults: RetentionDefaults,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let verb = if to == Status::Paused {
        "pause"
    } else {
        "resume"
    };
    check_started(workflow, verb)?;
    match workflow.meta().status {
        status if status == to => return Ok(Effect::Already),
        status if status.is_over() => return Err(wrong_status(verb, status, ENDED_ADVICE)),
        _ => {}
    }
    workflow.set_status(to, defaults, now);
    Ok(Effect::Done)
}

/// Whether a job has run again after a time at which it had ended, or is about to.
fn has_run_since(workflow: &Workflow, index: JobIndex, moment: Timestamp) -> bool {
    let job = workflow.job(index);
    match job.state {
        state if state.is_over() => job.finished_at.is_some_and(|end| end > moment),
        // The job is not about to run. If it has run before, it may have been restarted, and a
        // parent has failed since then.
        JobState::Waiting if workflow.reachability(index) != Reachability::Open => {
            job.fence > 0 && workflow.meta().finished_at.is_none_or(|end| end > moment)
        }
        // A job that will run again has no ready time until it is ready.
        _ => job.ready_at.is_none_or(|ready| ready > moment),
    }
}

pub(super) fn retry_failed(
    workflow: &mut Workflow,
    as_of: Option<Timestamp>,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    check_started(workflow, "retry")?;
    let (since, before): (Vec<_>, Vec<_>) = workflow
        .job_indexes()
        .partition(|&job| as_of.is_some_and(|moment| has_run_since(workflow, job, moment)));
    let failed = |job: &JobIndex| {
        matches!(
            workflow.job(*job).state,
            JobState::Failed | JobState::Cancelled
        )
    };
    let rerun: Vec<JobIndex> = before.into_iter().filter(failed).collect();
    if rerun.is_empty() {
        let status = workflow.meta().status;
        return if status.is_over() && since.is_empty() {
            Err(wrong_status("retry", status, ": no job failed"))
        } else {
            Ok(Effect::Already)
        };
    }
    run_again(workflow, &rerun, now);
    Ok(Effect::Done)
}

pub(super) fn retry_job(
    workflow: &mut Workflow,
    index: JobIndex,
    as_of: Option<Timestamp>,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    check_started(workflow, "retry")?;
    if as_of.is_some_and(|moment| has_run_since(workflow, index, moment)) {
        return Ok(Effect::Already);
    }
    if !matches!(
        workflow.job(index).state,
        JobState::Failed | JobState::Cancelled
    ) {
        return Err(wrong_job(
            workflow,
            "retry",
            index,
            ": only failed and cancelled jobs can be retried",
        ));
    }
    run_again(workflow, &[index], now);
    Ok(Effect::Done)
}

pub(super) fn restart(
    workflow: &mut Workflow,
    jobs: &[JobIndex],
    scope: RestartScope,
    as_of: Option<Timestamp>,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    check_started(workflow, "restart jobs of")?;
    let mut rerun = jobs.to_vec();
    if let Some(moment) = as_of {
        rerun.retain(|&job| !has_run_since(workflow, job, moment));
    }
    let chosen = rerun.len();
    if scope == RestartScope::AndDescendants {
        rerun.extend(workflow.graph.descendants(&rerun));
    }
    let refused = |job: &JobIndex, advice| Err(wrong_job(workflow, "restart", *job, advice));
    let state = |job: &JobIndex| workflow.job(*job).state;
    if rerun.iter().all(|job| state(job) == JobState::Waiting) {
        // Unreachable and blocked jobs are not about to run. If other jobs of the call have run
        // since, the call is a repetition.
        let is_stuck = |job: &&JobIndex| workflow.reachability(**job) != Reachability::Open;
        return match rerun[..chosen].iter().find(is_stuck) {
            Some(job) if chosen == jobs.len() => refused(job, BLOCKED_ADVICE),
            _ => Ok(Effect::Already),
        };
    }
    if let Some(active) = rerun.iter().find(|job| state(job).is_active()) {
        return refused(active, ACTIVE_ADVICE);
    }
    run_again(workflow, &rerun, now);
    Ok(Effect::Done)
}

/// Resets jobs to waiting, and makes jobs ready that may run.
fn run_again(workflow: &mut Workflow, jobs: &[JobIndex], now: Timestamp) {
    let before = workflow.all_outcomes();
    jobs.iter().for_each(|&index| workflow.reset(index, now));
    workflow.advance_since(&before, now);
}

/// Ends a job by an operator.
pub(super) fn end_by_hand(
    workflow: &mut Workflow,
    verb: &'static str,
    index: JobIndex,
    state: JobState,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    match workflow.job(index).state {
        // A job that its rule skipped may run later, unless an operator skips it.
        JobState::Skipped
            if state == JobState::Skipped && workflow.job(index).rerun != Rerun::ByHand => {}
        before if before == state => return Ok(Effect::Already),
        JobState::Succeeded => return Err(wrong_job(workflow, verb, index, ENDED_ADVICE)),
        JobState::Running { .. } if state == JobState::Skipped => {
            return Err(wrong_job(workflow, verb, index, ACTIVE_ADVICE));
        }
        before if before.is_over() && state == JobState::Cancelled => {
            return Err(wrong_job(workflow, verb, index, ENDED_ADVICE));
        }
        _ => {}
    }
    let end = if state == JobState::Cancelled {
        LeaseEnd::Cancelled
    } else {
        LeaseEnd::EndedByHand
    };
    set_by_hand(workflow, index, state, end, now);
    Ok(Effect::Done)
}

pub(super) fn mark_succeeded(
    workflow: &mut Workflow,
    index: JobIndex,
    output: Option<&Json>,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    if workflow.job(index).state == JobState::Succeeded {
        return Ok(Effect::Already);
    }
    if let Some(output) = output.filter(|output| !output.is_null()) {
        workflow.put_output(index, output.text().as_bytes());
    }
    set_by_hand(
        workflow,
        index,
        JobState::Succeeded,
        LeaseEnd::EndedByHand,
        now,
    );
    Ok(Effect::Done)
}

/// Sets the state that an operator chose. `end` is the reason for the end of the job's lease, if it
/// has one.
fn set_by_hand(
    workflow: &mut Workflow,
    index: JobIndex,
    state: JobState,
    end: LeaseEnd,
    now: Timestamp,
) {
    let before = workflow.all_outcomes();
    workflow.revoke(index, end);
    // A cancelled job may be retried together with failed ones.
    let rerun = if state == JobState::Cancelled {
        Rerun::No
    } else {
        Rerun::ByHand
    };
    workflow.job_mut(index).rerun = rerun;
    workflow.set_state(index, state, now);
    match workflow.meta().status {
        Status::Pending => workflow.recount(),
        _ => workflow.advance_since(&before, now),
    }
}

pub(super) fn set_retention(
    workflow: &mut Workflow,
    retention: Retention,
    now: Timestamp,
) -> Effect {
    workflow.meta_mut().retention = Some(retention);
    if workflow.meta().status.is_over() {
        workflow.meta_mut().expires_at = retention.end(now);
    }
    Effect::Done
}

pub(super) fn delete(
    workflow: &mut Workflow,
    condition: DeleteIf,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let status = workflow.meta().status;
    let expires_at = workflow.meta().expires_at;
    let allowed = match condition {
        DeleteIf::Idle => status.is_over() || status == Status::Pending,
        DeleteIf::Expired => expires_at.is_some_and(|expires| expires <= now),
    };
    if !allowed {
        return Err(wrong_status("remove", status, ": cancel it first"));
    }
    workflow.delete();
    Ok(Effect::Done)
}
