//! Converts a request to an event of the state machine.

use hashbrown::HashMap;

use crate::engine::actor::request::{Action, Request, StartMode};
use crate::engine::context::error::EngineError;
use crate::machine::{DeleteIf, Event, Refusal, Workflow, wrong_status};
use crate::model::{JobIndex, Status, Timestamp};

/// Returns the event of a request. `None` if the workflow only has to exist.
pub(super) fn event_for(
    workflow: &Workflow,
    request: &Request,
) -> Result<Option<Event>, EngineError> {
    if let Some(job) = request.job() {
        check_index(workflow, job)?;
    }
    Ok(Some(match request {
        Request::Create {
            start_mode: StartMode::Now,
            ..
        } if workflow.meta().status == Status::Pending => Event::Start,
        Request::Create { .. } | Request::RepairRows | Request::RestoreKey => return Ok(None),
        Request::Claim { job, lease } => Event::Claim {
            job: *job,
            lease: lease.clone(),
        },
        Request::Report {
            job,
            token,
            outcome,
            ..
        } => Event::Report {
            job: *job,
            token: *token,
            outcome: outcome.clone(),
        },
        Request::ReleaseLease { job, fence, .. } if workflow.job(*job).fence > *fence => {
            return Ok(None);
        }
        Request::ReleaseLease { job, token, .. } => Event::ReturnUndelivered {
            job: *job,
            token: *token,
        },
        Request::Extend {
            job,
            token,
            expires,
            intent,
        } => Event::Extend {
            job: *job,
            token: *token,
            expires: *expires,
            intent: *intent,
        },
        Request::Tick { served_since } => Event::Tick {
            served_since: *served_since,
        },
        Request::DeleteExpired => Event::Delete(DeleteIf::Expired),
        Request::Act(action, condition) => {
            check_status(workflow, action, &condition.statuses)?;
            event_for_action(workflow, action, condition.as_of)?
        }
    }))
}

fn check_status(workflow: &Workflow, action: &Action, allowed: &[Status]) -> Result<(), Refusal> {
    let status = workflow.meta().status;
    if allowed.is_empty() || allowed.contains(&status) {
        Ok(())
    } else {
        Err(wrong_status(
            action.verb(),
            status,
            ": its status has changed since",
        ))
    }
}

fn event_for_action(
    workflow: &Workflow,
    action: &Action,
    as_of: Option<Timestamp>,
) -> Result<Event, EngineError> {
    Ok(match action {
        Action::Start => Event::Start,
        Action::Cancel => Event::Cancel,
        Action::Pause => Event::Pause,
        Action::Resume => Event::Resume,
        Action::RetryFailed => Event::RetryFailed { as_of },
        Action::RetryJob(job) => Event::RetryJob {
            job: find_job(workflow, job)?,
            as_of,
        },
        Action::Restart { jobs, scope } => Event::Restart {
            jobs: find_jobs(workflow, jobs)?,
            scope: *scope,
            as_of,
        },
        Action::SkipJob(job) => Event::Skip(find_job(workflow, job)?),
        Action::MarkSucceeded { job, output } => Event::MarkSucceeded {
            job: find_job(workflow, job)?,
            output: output.clone(),
        },
        Action::CancelJob(job) => Event::CancelJob(find_job(workflow, job)?),
        Action::Keep(retention) => Event::SetRetention(*retention),
        Action::Delete => Event::Delete(DeleteIf::Idle),
    })
}

fn no_job(workflow: &Workflow, job: impl Into<String>) -> EngineError {
    EngineError::NoJob {
        workflow: workflow.id,
        job: job.into(),
    }
}

/// Checks that the workflow has a job with this index.
fn check_index(workflow: &Workflow, job: JobIndex) -> Result<(), EngineError> {
    if job.index() < workflow.graph.jobs.len() {
        Ok(())
    } else {
        Err(no_job(workflow, format!("#{job}")))
    }
}

fn find_job(workflow: &Workflow, name: &str) -> Result<JobIndex, EngineError> {
    let found = workflow.graph.find(name);
    found.ok_or_else(|| no_job(workflow, name))
}

/// Returns the indices of the jobs with these names, without duplicates.
fn find_jobs(workflow: &Workflow, names: &[String]) -> Result<Vec<JobIndex>, EngineError> {
    // There may be as many names as jobs, so a search for each name would be quadratic.
    let indexed = (0..).map(JobIndex).zip(workflow.graph.jobs.iter());
    let index_by_name: HashMap<&str, JobIndex> = indexed
        .map(|(index, job)| (job.name.as_str(), index))
        .collect();
    let find = |name: &String| {
        let found = index_by_name.get(name.as_str()).copied();
        found.ok_or_else(|| no_job(workflow, name))
    };
    let mut jobs = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    jobs.sort_unstable();
    jobs.dedup();
    Ok(jobs)
}
