//! The state machine of a workflow: events, what they change, and what is written.

mod adopt;
mod attempt;
mod event;
mod operate;
mod outcome;
mod pending_change;
mod reachability;
mod rebase;
mod refusal;
pub(crate) mod transition;
mod workflow;
mod write_set;

pub use adopt::{Continuation, ImportedState};
pub use event::{DeleteIf, Intent, RestartScope};
pub(crate) use event::{Effect, Event, Lease};
pub use outcome::{Crash, Death, Failure, Outcome, RetryWish};
pub(crate) use reachability::Reachability;
pub use refusal::Refusal;
pub(crate) use refusal::{job_lease_lost, wrong_status};
pub(crate) use workflow::Workflow;
pub(crate) use write_set::WriteOptions;

use attempt::cancel_rest;
use pending_change::PendingChange;
use reachability::{JobProgress, ParentOutcome, RuleResult};
use refusal::{job_name, lease_expired, lease_lost, wrong_job};
