//! The state machine: the effect of an event on a workflow. It is pure: it reads no clock and
//! writes nothing.
//!
//! `attempt` handles events of workers and of time, `operate` events of operators, and `refusal`
//! builds the errors of refused events.

use super::{Effect, Event, Outcome, Refusal, Workflow, attempt, operate};
use crate::model::{JobState, RetentionDefaults, Status, Timestamp};

/// Applies an event.
///
/// # Errors
/// The state does not allow the event. Nothing has changed.
pub(crate) fn transition(
    workflow: &mut Workflow,
    event: &Event,
    defaults: RetentionDefaults,
    now: Timestamp,
) -> Result<Effect, Refusal> {
    let effect = match event {
        Event::Start => operate::start(workflow, defaults, now),
        Event::Claim { job, lease } => attempt::claim(workflow, *job, lease, now),
        Event::Report {
            job,
            token,
            outcome,
        } => attempt::report(workflow, *job, *token, outcome, now),
        Event::ReturnUndelivered { job, token } => {
            attempt::report(workflow, *job, *token, &Outcome::NotBegun, now)
        }
        Event::Extend {
            job,
            token,
            expires,
            intent,
        } => attempt::extend(workflow, (*job, *token), *expires, *intent, now),
        Event::Tick { served_since } => Ok(attempt::tick(workflow, *served_since, now)),
        Event::Cancel => operate::cancel(workflow, defaults, now),
        Event::Pause => operate::pause_or_resume(workflow, Status::Paused, defaults, now),
        Event::Resume => operate::pause_or_resume(workflow, Status::Running, defaults, now),
        Event::RetryFailed { as_of } => operate::retry_failed(workflow, *as_of, now),
        Event::RetryJob { job, as_of } => operate::retry_job(workflow, *job, *as_of, now),
        Event::Restart { jobs, scope, as_of } => {
            operate::restart(workflow, jobs, *scope, *as_of, now)
        }
        Event::Skip(job) => operate::end_by_hand(workflow, "skip", *job, JobState::Skipped, now),
        Event::MarkSucceeded { job, output } => {
            operate::mark_succeeded(workflow, *job, output.as_ref(), now)
        }
        Event::CancelJob(job) => {
            operate::end_by_hand(workflow, "cancel", *job, JobState::Cancelled, now)
        }
        Event::SetRetention(retention) => Ok(operate::set_retention(workflow, *retention, now)),
        Event::Delete(condition) => operate::delete(workflow, *condition, now),
    }?;
    if effect == Effect::Done {
        workflow.update_status(defaults, now);
    }
    Ok(effect)
}

#[cfg(test)]
mod tests;
