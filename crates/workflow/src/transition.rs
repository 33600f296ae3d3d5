//! The state machine: what an event does to a workflow. Pure: it reads no clock and writes nothing.
//!
//! `attempt` has what workers and time do, `operate` what people do, `refusal` why not.

mod attempt;
mod operate;
mod refusal;

use crate::graph::definition::Retention;
use crate::graph::json::Json;
use crate::id::JobIndex;
use crate::state::{JobState, RetentionDefaults, Status};
use crate::time::Timestamp;
use crate::workflow::Workflow;
pub(crate) use attempt::Lease;
pub use attempt::{Failure, Outcome, RetryWish};
pub use operate::{DeleteIf, RestartScope};
pub use refusal::Refusal;

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

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It took place.
    Done,
    /// It had taken place before.
    Already,
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
        Event::Start => operate::start(workflow, defaults, now),
        Event::Claim { job, lease } => attempt::claim(workflow, *job, lease, now),
        Event::Report { job, token, outcome } => attempt::report(workflow, (*job, *token), outcome, now),
        Event::Extend { job, token, expires } => attempt::extend(workflow, *job, *token, *expires),
        Event::Tick => Ok(attempt::tick(workflow, now)),
        Event::Cancel => operate::cancel(workflow, defaults, now),
        Event::Pause => operate::swap(workflow, ("pause", Status::Running, Status::Paused), defaults, now),
        Event::Resume => operate::swap(workflow, ("resume", Status::Paused, Status::Running), defaults, now),
        Event::RetryFailed => operate::retry_failed(workflow, now),
        Event::Restart { jobs, scope } => operate::restart(workflow, jobs, *scope, now),
        Event::Skip(job) => operate::settle(workflow, "skip", *job, JobState::Skipped, now),
        Event::MarkSucceeded { job, output } => operate::mark_succeeded(workflow, *job, output.as_ref(), now),
        Event::CancelJob(job) => operate::settle(workflow, "cancel", *job, JobState::Cancelled, now),
        Event::Keep(retention) => Ok(operate::keep(workflow, *retention, now)),
        Event::Delete(condition) => operate::delete(workflow, *condition, now),
    }?;
    if effect == Effect::Done {
        workflow.conclude(defaults, now);
    }
    Ok(effect)
}
