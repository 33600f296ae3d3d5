//! Values that all layers use: ids, times, JSON texts, and the states of workflows and jobs.

pub(crate) mod id;
mod job;
mod json;
mod lease_ref;
mod time;
mod trace;
mod worker;
pub(crate) mod workflow_state;

pub use id::{IdPrefix, InvalidId, InvalidPrefix, JobIndex, MAX_PARTITIONS, Partition, WorkflowId};
pub use json::{Json, json_depth};
pub use lease_ref::LeaseRef;
pub use time::Timestamp;
pub(crate) use trace::TRACE;
pub use workflow_state::{
    AttemptError, Counts, JobState, Label, LeaseEnd, Meta, Rerun, Retention, RetentionDefaults,
    Status,
};

pub(crate) use self::workflow_state::{Job, WorkerName};
