//! The state machine: how an event changes a workflow. It is pure: it reads no clock and writes nothing.
//!
//! `attempt` has the events of workers and of time, `operate` those of people, and `refusal` says why an event is refused.

mod attempt;
pub(crate) mod event;
mod operate;
pub(crate) mod outcome;
pub(crate) mod refusal;
mod revoke;

use self::event::{Effect, Event};
use self::refusal::Refusal;
use crate::state::{JobState, RetentionDefaults, Status};
use crate::time::Timestamp;
use crate::workflow::Workflow;

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
        Event::Report { job, token, outcome } => attempt::report(workflow, (*job, *token), outcome, now),
        Event::GiveBack { job, token } => attempt::give_back(workflow, *job, *token, now),
        Event::Extend { job, token, expires, intent } => {
            attempt::extend(workflow, (*job, *token), (*expires, *intent), now)
        }
        Event::Tick { served_since } => Ok(attempt::tick(workflow, *served_since, now)),
        Event::Cancel => operate::cancel(workflow, defaults, now),
        Event::Pause => operate::pause_or_resume(workflow, ("pause", Status::Running, Status::Paused), defaults, now),
        Event::Resume => operate::pause_or_resume(workflow, ("resume", Status::Paused, Status::Running), defaults, now),
        Event::RetryFailed { as_of } => operate::retry_failed(workflow, *as_of, now),
        Event::RetryJob { job, as_of } => operate::retry_job(workflow, *job, *as_of, now),
        Event::Restart { jobs, scope, as_of } => operate::restart(workflow, (jobs, *scope), *as_of, now),
        Event::Skip(job) => operate::end_by_hand(workflow, "skip", *job, JobState::Skipped, now),
        Event::MarkSucceeded { job, output } => operate::mark_succeeded(workflow, *job, output.as_ref(), now),
        Event::CancelJob(job) => operate::end_by_hand(workflow, "cancel", *job, JobState::Cancelled, now),
        Event::Keep(retention) => Ok(operate::keep(workflow, *retention, now)),
        Event::Delete(condition) => operate::delete(workflow, *condition, now),
    }?;
    if effect == Effect::Done {
        workflow.update_status(defaults, now);
    }
    Ok(effect)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::event::{Lease, RestartScope};
    use super::outcome::{Failure, Outcome, RetryWish};
    use super::*;
    use crate::graph::Graph;
    use crate::graph::definition::{Definition, JobDefinition, OnFailure, TriggerRule};
    use crate::id::{JobIndex, Partition, WorkflowId};

    const NOW: Timestamp = Timestamp::from_micros(1);
    const JOBS: u32 = 9;

    fn workflow(random: &mut fastrand::Rng) -> Workflow {
        use TriggerRule::{AllDone, AllSuccess, AnyFailed, AnySuccess, NoneFailed};
        let jobs = (0..JOBS).map(|at| JobDefinition {
            after: (0..at).filter(|_| random.u8(..4) == 0).map(|parent| parent.to_string()).collect(),
            rule: random.choice([AllSuccess, AllDone, AnySuccess, AnyFailed, NoneFailed]).unwrap(),
            ..JobDefinition::new(at.to_string(), "handler")
        });
        let jobs = jobs.collect();
        let on_failure = random.choice([OnFailure::Continue, OnFailure::FailFast]).unwrap();
        let definition = Definition { name: "w".to_owned(), jobs, on_failure, ..Definition::default() };
        let id = WorkflowId::new(NOW, Partition(0), 1);
        Workflow::new(id, Arc::new(Graph::build(definition).unwrap()), NOW)
    }

    fn any_event(random: &mut fastrand::Rng) -> Event {
        let (job, token) = (JobIndex(random.u32(..JOBS)), 1);
        let failed = Outcome::Failed { failure: Failure::default(), retry: RetryWish::Never };
        match random.u8(..24) {
            0 => Event::Start,
            1 => Event::Cancel,
            2 => Event::RetryFailed { as_of: None },
            3 => Event::RetryJob { job, as_of: None },
            4 => Event::Restart { jobs: vec![job], scope: RestartScope::Chosen, as_of: None },
            5 => Event::Skip(job),
            6 => Event::MarkSucceeded { job, output: None },
            7 => Event::CancelJob(job),
            8..=13 => Event::Claim { job, lease: Lease { token, worker: "worker".into(), expires: NOW } },
            14..=19 => Event::Report { job, token, outcome: Outcome::Succeeded { output: None } },
            20 => Event::Tick { served_since: NOW },
            _ => Event::Report { job, token, outcome: failed },
        }
    }

    #[test]
    fn after_each_event_what_follows_from_the_states_is_known() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut workflow = workflow(&mut random);
            for _ in 0..100 {
                let event = any_event(&mut random);
                let told = transition(&mut workflow, &event, RetentionDefaults::default(), NOW);
                assert!(workflow.is_counted(), "seed {seed}: {event:?} {told:?}");
            }
        }
    }
}
