//! Converts a request to an event of the state machine.

use hashbrown::HashMap;

use super::request::{Action, Request, StartMode};
use crate::engine::error::EngineError;
use crate::id::JobIndex;
use crate::state::Status;
use crate::time::Timestamp;
use crate::transition::event::{DeleteIf, Event};
use crate::transition::refusal::{Refusal, wrong_status};
use crate::workflow::Workflow;

/// Returns the event of a request. `None` if the workflow only has to exist.
pub(super) fn event(workflow: &Workflow, request: &Request) -> Result<Option<Event>, EngineError> {
    Ok(Some(match request {
        Request::Create {
            begin: StartMode::Now,
            ..
        } if workflow.meta().status == Status::Pending => Event::Start,
        Request::Create { .. } | Request::Mend | Request::MendKey => return Ok(None),
        Request::Claim { job, lease } => Event::Claim {
            job: placed(workflow, *job)?,
            lease: lease.clone(),
        },
        Request::Report {
            job,
            token,
            outcome,
            ..
        } => Event::Report {
            job: placed(workflow, *job)?,
            token: *token,
            outcome: outcome.clone(),
        },
        Request::GiveBack { job, token, fence } => {
            let job = placed(workflow, *job)?;
            if workflow.job(job).fence > *fence {
                return Ok(None);
            }
            Event::GiveBack { job, token: *token }
        }
        Request::Extend {
            job,
            token,
            expires,
            intent,
        } => Event::Extend {
            job: placed(workflow, *job)?,
            token: *token,
            expires: *expires,
            intent: *intent,
        },
        Request::Tick { served_since } => Event::Tick {
            served_since: *served_since,
        },
        Request::Purge => Event::Delete(DeleteIf::Expired),
        Request::Act(action, condition) => {
            check_status(workflow, action, &condition.statuses)?;
            event_of_action(workflow, action, condition.as_of)?
        }
    }))
}

fn check_status(workflow: &Workflow, action: &Action, wanted: &[Status]) -> Result<(), Refusal> {
    let status = workflow.meta().status;
    if wanted.is_empty() || wanted.contains(&status) {
        Ok(())
    } else {
        Err(wrong_status(
            action.verb(),
            status,
            ": its status has changed since",
        ))
    }
}

fn event_of_action(
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
            job: named(workflow, job)?,
            as_of,
        },
        Action::Restart { jobs, scope } => Event::Restart {
            jobs: all_named(workflow, jobs)?,
            scope: *scope,
            as_of,
        },
        Action::SkipJob(job) => Event::Skip(named(workflow, job)?),
        Action::MarkSucceeded { job, output } => Event::MarkSucceeded {
            job: named(workflow, job)?,
            output: output.clone(),
        },
        Action::CancelJob(job) => Event::CancelJob(named(workflow, job)?),
        Action::Keep(retention) => Event::Keep(*retention),
        Action::Delete => Event::Delete(DeleteIf::Idle),
    })
}

/// Returns `job` if the workflow has a job with that index.
fn placed(workflow: &Workflow, job: JobIndex) -> Result<JobIndex, EngineError> {
    let none = || EngineError::NoJob {
        workflow: workflow.id,
        job: format!("#{job}"),
    };
    workflow
        .graph
        .jobs
        .get(job.index())
        .map(|_| job)
        .ok_or_else(none)
}

fn named(workflow: &Workflow, name: &str) -> Result<JobIndex, EngineError> {
    let none = || EngineError::NoJob {
        workflow: workflow.id,
        job: name.to_owned(),
    };
    workflow.graph.find(name).ok_or_else(none)
}

/// Returns the indices of the jobs with these names, without duplicates.
fn all_named(workflow: &Workflow, names: &[String]) -> Result<Vec<JobIndex>, EngineError> {
    // There may be as many names as jobs, so a search for each name would be quadratic.
    let each = workflow.graph.jobs.iter().enumerate();
    let places: HashMap<&str, JobIndex> = each
        .map(|(at, job)| (job.name.as_str(), JobIndex(at as u32)))
        .collect();
    let none = |name: &String| EngineError::NoJob {
        workflow: workflow.id,
        job: name.clone(),
    };
    let find = |name: &String| places.get(name.as_str()).copied().ok_or_else(|| none(name));
    let mut jobs = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    jobs.sort_unstable();
    jobs.dedup();
    Ok(jobs)
}
