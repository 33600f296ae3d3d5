//! Workflows are graphs of jobs. A job runs when the jobs before it allow it. Its output is an
//! input of the jobs after it.
//!
//! A [`Definition`] describes a workflow, and [`Graph::build`] checks it. The state machine is the
//! pure `transition`: it takes a state and an event, and returns what to write. A [`Store`] writes
//! it unless another server was first. The [`Engine`] connects both: it caches recent states,
//! leases ready jobs to workers, and handles their reports.
//!
//! **Invariant:** no Envoy, HTTP, environment or clocks here. Redis is reached only through
//! `tidegate-pipeline`.

mod codec;
mod drawing;
mod engine;
mod graph;
mod gush;
mod machine;
mod model;
mod queue;
mod store;

pub use codec::format::{Format, RecordKind, UPGRADES, Upgrade};
pub use codec::job_note::{LogLine, Progress};
pub use codec::time_row::{due_row, read_due_row};
pub use codec::{change, rows};
pub use drawing::{layout, picture};
pub use engine::actor::request::{Action, ActionResult, Condition, StartMode};
pub use engine::claim::Claim;
pub use engine::claim::claimed::{Claimed, Input};
pub use engine::claim::leases::LeasedBatch;
pub use engine::claim::notes::Note;
pub use engine::claim::report::{Extension, Report, ReportAnswer, given_back};
pub use engine::context::attempt_counts::{
    AttemptCounts, CLASS_BOUNDS_MS, Durations, HandlerTimes,
};
pub use engine::context::attempts::{AttemptEnd, AttemptObserver, AttemptOutcome};
pub use engine::context::error::EngineError;
pub use engine::context::thread::EngineThread;
pub use engine::context::watchers::{VersionChange, WatchGuard};
pub use engine::create::{Created, NewWorkflow};
pub use engine::limits::status::{ExhaustedLimit, HolderList, LimitStatus, PermitHolder};
pub use engine::limits::unit_counter::{
    BoxFuture, LimitExhausted, Receipt, UnitCounter, UnitGrant, UnitRequest,
};
pub use engine::list::count::CountPage;
pub use engine::list::partial::{MissingPartitions, PartialResult};
pub use engine::list::query::{Cursor, Filter, Query};
pub use engine::list::queue_states::{QueuePage, QueueState};
pub use engine::list::running::{RunningCursor, RunningJobs};
pub use engine::list::waiting_keys::{WaitingKey, WaitingKeyPage};
pub use engine::list::{ListedWorkflow, Page};
pub use engine::membership::{Member, ServerDescription};
pub use engine::snapshot::{JobResult, Snapshot, WaitReason, WorkflowSummary};
pub use engine::store_health::{MissedWork, StoreFailure};
pub use engine::{Engine, EngineOptions};
pub use graph::definition::{
    DEFAULT_MAX_LOST, DEFAULT_QUEUE, Definition, JobDefinition, LimitDefinition, OnFailure, Retry,
    Scope, TriggerRule,
};
pub use graph::error::{
    GraphError, InvalidPolicy, LimitError, MAX_CONCURRENCY, MAX_DEPTH, MAX_HITS, MAX_JOBS,
    MAX_LIMIT_ENTRIES, MAX_LIMIT_KEY, MAX_LIMIT_TEXT, MAX_LIMITS, MAX_NAME, MAX_OUTPUT, MAX_PARAMS,
    MAX_RETRIES, MAX_TAGS, MAX_WEIGHT, MAX_WEIGHTS, WeightError,
};
pub use graph::limits::{Limit, Limits};
pub use graph::policies::{Policies, PolicyTarget, Weight};
pub use graph::{Graph, GraphJob};
pub use gush::{GushError, GushReport, import_gush};
pub use machine::adopt::{Continuation, ImportedState};
pub use machine::event::{DeleteIf, Intent, RestartScope};
pub use machine::outcome::{Crash, Death, Failure, Outcome, RetryWish};
pub use machine::refusal::Refusal;
pub use model::id::{
    IdPrefix, InvalidId, InvalidPrefix, JobIndex, MAX_PARTITIONS, Partition, WorkflowId,
};
pub use model::json::{Json, json_depth};
pub use model::lease_ref::LeaseRef;
pub use model::time::Timestamp;
pub use model::workflow_state::{
    AttemptError, Counts, Job, JobState, Label, LeaseEnd, Meta, Rerun, Retention,
    RetentionDefaults, Status, WorkerName,
};
pub use queue::cache::{ClaimMode, Paused};
pub use store::Store;
pub use store::change_notice::ServerId;
pub use store::error::{SCHEMA_VERSION, StoreError};
pub use store::migration::{OutdatedWorkflows, RewriteResult};
pub use store::notes::{JobLog, JobNote, NoteOutcome};
pub use store::permits::{PermitExtension, PermitGrant, PermitHolders, PermitRequest};
pub use store::query::probe::Probe;
pub use store::query::{
    EncodedSummary, HeartbeatQuery, Order, Register, RowRange, RowSet, TimeIndex,
};
pub use store::redis::durability::{Durability, NodeDurability, Persistence};
pub use store::redis::{RedisOptions, RedisOptionsError, RedisStore};
pub use store::shared_table::SharedTable;
#[cfg(feature = "test-util")]
pub use store::simulated::{CallKind, DataLoss, Fault, InjectedFault, SimulatedStore};
pub use store::sqlite::{FileSpace, SqliteOptions, SqliteOptionsError, SqliteStore};
