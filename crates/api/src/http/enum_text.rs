//! The words of answers that come from a set: clients must expect that the set grows.

use serde::Serialize;
use tidegate_workflow::{JobState, OnFailure, Status, TriggerRule};
#[cfg(test)]
use utoipa::ToSchema;

/// What a workflow is doing.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Status, value_type = String))]
pub(crate) struct StatusWord(&'static str);

/// What a job is doing.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = JobState, value_type = String))]
pub(crate) struct StateWord(&'static str);

/// Which outcomes of the jobs before it let a job run.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = RuleShown, value_type = String))]
pub(crate) struct RuleWord(&'static str);

/// What the failure of one job means for the others.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = OnFailureShown, value_type = String))]
pub(crate) struct OnFailureWord(&'static str);

impl StatusWord {
    pub(crate) const fn text(self) -> &'static str {
        self.0
    }
}

impl StateWord {
    pub(crate) const fn text(self) -> &'static str {
        self.0
    }
}

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
