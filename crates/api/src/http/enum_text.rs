//! Words of answers that belong to an enum. Clients must expect new words.

use serde::Serialize;
use tidegate_workflow::{JobState, OnFailure, Status, TriggerRule};
#[cfg(test)]
use utoipa::ToSchema;

/// State of a workflow.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Status, value_type = String))]
pub(crate) struct StatusWord(&'static str);

/// State of a job.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = JobState, value_type = String))]
pub(crate) struct StateWord(&'static str);

/// Which outcomes of the jobs before it let a job run.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = RuleShown, value_type = String))]
pub(crate) struct RuleWord(&'static str);

/// Effect of the failure of one job on the others.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = OnFailureShown, value_type = String))]
pub(crate) struct OnFailureWord(&'static str);

impl From<Status> for StatusWord {
    fn from(status: Status) -> Self {
        Self(status.word())
    }
}

impl From<JobState> for StateWord {
    fn from(state: JobState) -> Self {
        Self(state.word())
    }
}

impl From<TriggerRule> for RuleWord {
    fn from(rule: TriggerRule) -> Self {
        Self(match rule {
            TriggerRule::AllSuccess => "all_success",
            TriggerRule::AllDone => "all_done",
            TriggerRule::AnySuccess => "any_success",
            TriggerRule::AnyFailed => "any_failed",
            TriggerRule::NoneFailed => "none_failed",
        })
    }
}

impl From<OnFailure> for OnFailureWord {
    fn from(on_failure: OnFailure) -> Self {
        Self(match on_failure {
            OnFailure::Continue => "continue",
            OnFailure::FailFast => "fail_fast",
        })
    }
}
