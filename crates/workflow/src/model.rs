//! Values that all layers use: ids, times, JSON texts, and the states of workflows and jobs.

pub(crate) mod id;
mod job;
pub(crate) mod json;
pub(crate) mod lease_ref;
pub(crate) mod time;
pub(crate) mod trace;
mod worker;
pub(crate) mod workflow_state;

pub(crate) use self::id::{JobIndex, WorkflowId};
pub(crate) use self::json::Json;
pub(crate) use self::lease_ref::LeaseRef;
pub(crate) use self::time::Timestamp;
pub(crate) use self::workflow_state::{
    AttemptError, Counts, Job, JobState, Label, LeaseEnd, Meta, Rerun, Retention,
    RetentionDefaults, Status, WorkerName,
};
