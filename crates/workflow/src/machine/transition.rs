//! The state machine: the effect of an event on a workflow. It is pure: it reads no clock and
//! writes nothing.
//!
//! `attempt` handles events of workers and of time, `operate` events of operators, and `refusal`
//! builds the errors of refused events.

pub(crate) mod revoke;

use super::event::{Effect, Event};
use super::refusal::Refusal;
use super::workflow::Workflow;
use crate::model::time::Timestamp;
use crate::model::workflow_state::{JobState, RetentionDefaults};

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
        Event::Start => crate::machine::operate::start(workflow, defaults, now),
        Event::Claim { job, lease } => crate::machine::attempt::claim(workflow, *job, lease, now),
        Event::Report {
            job,
            token,
            outcome,
        } => crate::machine::attempt::report(workflow, *job, *token, outcome, now),
        Event::ReturnUndelivered { job, token } => {
            crate::machine::attempt::return_undelivered(workflow, *job, *token, now)
        }
        Event::Extend {
            job,
            token,
            expires,
            intent,
        } => crate::machine::attempt::extend(workflow, (*job, *token), *expires, *intent, now),
        Event::Tick { served_since } => {
            Ok(crate::machine::attempt::tick(workflow, *served_since, now))
        }
        Event::Cancel => crate::machine::operate::cancel(workflow, defaults, now),
        Event::Pause => crate::machine::operate::pause_or_resume(
            workflow,
            crate::machine::operate::PAUSE_CHANGE,
            defaults,
            now,
        ),
        Event::Resume => crate::machine::operate::pause_or_resume(
            workflow,
            crate::machine::operate::RESUME_CHANGE,
            defaults,
            now,
        ),
        Event::RetryFailed { as_of } => {
            crate::machine::operate::retry_failed(workflow, *as_of, now)
        }
        Event::RetryJob { job, as_of } => {
            crate::machine::operate::retry_job(workflow, *job, *as_of, now)
        }
        Event::Restart { jobs, scope, as_of } => {
            crate::machine::operate::restart(workflow, jobs, *scope, *as_of, now)
        }
        Event::Skip(job) => {
            crate::machine::operate::end_by_hand(workflow, "skip", *job, JobState::Skipped, now)
        }
        Event::MarkSucceeded { job, output } => {
            crate::machine::operate::mark_succeeded(workflow, *job, output.as_ref(), now)
        }
        Event::CancelJob(job) => {
            crate::machine::operate::end_by_hand(workflow, "cancel", *job, JobState::Cancelled, now)
        }
        Event::SetRetention(retention) => Ok(crate::machine::operate::set_retention(
            workflow, *retention, now,
        )),
        Event::Delete(condition) => crate::machine::operate::delete(workflow, *condition, now),
    }?;
    if effect == Effect::Done {
        workflow.update_status(defaults, now);
    }
    Ok(effect)
}

#[cfg(test)]
mod tests;
