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

pub use codec::{
    Format, LogLine, Progress, RecordKind, UPGRADES, Upgrade, change, due_row, read_due_row, rows,
};
pub use drawing::{layout, picture};
pub use engine::actor::request::{Action, ActionResult, Condition, StartMode};
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
pub use engine::limits::status::{ExhaustedLimit, HolderList, LimitStatus, PermitHolder};
pub use engine::limits::unit_counter::{
    BoxFuture, LimitExhausted, Receipt, UnitCounter, UnitGrant, UnitRequest,
};
pub use engine::list::count::CountPage;
pub use engine::list::failures::{FailurePage, FailureScan};
pub use engine::list::highlights::{Highlights, JobFailure};
pub use engine::list::match_rank::MatchRank;
pub use engine::list::partial::{MissingPartitions, PartialResult};
pub use engine::list::query::{Cursor, FailureFilter, Filter, Query};
pub use engine::list::queue_states::{QueuePage, QueueState};
pub use engine::list::running::{RunningCursor, RunningJobs};
pub use engine::list::search::{FoundNumbers, SearchCursor, SearchPage};
pub use engine::list::waiting_keys::{WaitingKey, WaitingKeyPage};
pub use engine::{
    Claim, Created, Engine, EngineOptions, JobResult, ListedWorkflow, Member, MissedWork,
    NewWorkflow, Page, ServerDescription, Snapshot, StoreFailure, WaitReason, WorkflowSummary,
};
pub use graph::{
    ConcurrencyScope, DEFAULT_MAX_LOST, DEFAULT_QUEUE, Definition, Graph, GraphError, GraphJob,
    InvalidPolicy, JobDefinition, Limit, LimitDefinition, LimitError, Limits, MAX_CONCURRENCY,
    MAX_DEPTH, MAX_HITS, MAX_JOBS, MAX_LIMIT_ENTRIES, MAX_LIMIT_KEY, MAX_LIMIT_TEXT, MAX_LIMITS,
    MAX_NAME, MAX_OUTPUT, MAX_PARAMS, MAX_RETRIES, MAX_TAGS, MAX_WEIGHT, MAX_WEIGHTS, OnFailure,
    Policies, PolicyTarget, Retry, TriggerRule, Weight, WeightError, most_similar,
};
pub use gush::{GushError, GushReport, import_gush};
pub use machine::{
    Continuation, Crash, Death, DeleteIf, Failure, ImportedState, Intent, Outcome, Refusal,
    RestartScope, RetryWish,
};
pub use model::workflow_state::{Job, WorkerName};
pub use model::{
    AttemptError, Counts, IdPrefix, InvalidId, InvalidPrefix, JobIndex, JobState, Json, Label,
    LeaseEnd, LeaseRef, MAX_PARTITIONS, Meta, Partition, Rerun, Retention, RetentionDefaults,
    Status, Timestamp, WorkflowId, json_depth,
};
pub use queue::{ClaimMode, Paused};
pub use store::query::probe::Probe;
pub use store::redis::durability::{Durability, NodeDurability, Persistence};
#[cfg(feature = "test-util")]
pub use store::{CallKind, DataLoss, Fault, InjectedFault, SimulatedStore};
pub use store::{
    EncodedSummary, HeartbeatQuery, JobLog, JobNote, NoteOutcome, Order, OutdatedWorkflows,
    PermitExtension, PermitGrant, PermitHolders, PermitRequest, RedisOptions, RedisOptionsError,
    RedisStore, Register, RewriteResult, RowRange, RowSet, SCHEMA_VERSION, ServerId, SharedTable,
    Store, StoreError, TimeIndex,
};
pub use store::{FileSpace, SqliteOptions, SqliteOptionsError, SqliteStore};
