//! Graphs of jobs: a job runs when the jobs before it allow it, and what it returns reaches the jobs after it.
//!
//! A [`Definition`] says what to run; [`Graph::build`] checks it. The state machine is the pure `transition`: it takes a
//! workflow's state and an event and says what to write. A [`Store`] writes it if nobody else wrote first. The [`Engine`] stands
//! between: it keeps recent states in memory, gives ready jobs to workers on lease, and takes their reports.
//!
//! **Invariant:** knows nothing of Envoy, HTTP, the environment or clocks; reaches Redis only through `tidegate-pipeline`.

mod drawing;
mod engine;
mod graph;
mod gush;
mod id;
mod record;
mod state;
mod store;
mod time;
mod transition;
mod workflow;

pub use drawing::{layout, picture};
pub use engine::{
    Action, Begin, Claim, Claimed, Created, Cursor, Engine, EngineError, EngineOptions, Extension, Filter, HORIZON,
    Input, JobResult, LeaseRef, Listed, NewWorkflow, Notice, Page, Paused, Query, QueueState, Reason, Report, Reported,
    Snapshot,
};
pub use graph::definition::{DEFAULT_QUEUE, Definition, JobDefinition, OnFailure, Retention, Retry, TriggerRule};
pub use graph::json::Json;
pub use graph::{Graph, GraphError, GraphJob, MAX_JOBS, MAX_NAME, MAX_TAGS};
pub use gush::{GushError, GushReport, import_gush};
pub use id::{IdPrefix, InvalidId, InvalidPrefix, JobIndex, MAX_PARTITIONS, Partition, WorkflowId};
pub use record::{change, rows};
pub use state::{Counts, Job, JobState, Label, Meta, RetentionDefaults, Status};
pub use store::{
    Clockwork, Fault, Head, MemoryStore, Order, RedisOptions, RedisOptionsError, RedisStore, Register, RowSet,
    SCHEMA_VERSION, Span, SqliteOptions, SqliteOptionsError, SqliteStore, Store, StoreError, due_row, read_due_row,
};
pub use time::Timestamp;
pub use transition::{DeleteIf, Failure, Outcome, Refusal, RestartScope, RetryWish};
pub use workflow::{AttemptError, Course, Imported};
