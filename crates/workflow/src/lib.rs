//! Workflows: graphs of jobs. A job runs when the jobs before it allow it, and its output is passed on to the jobs after it.
//!
//! A [`Definition`] says what to run; [`Graph::build`] checks it. The state machine is the pure `transition`: it takes a
//! workflow's state and an event and says what to write. A [`Store`] writes it if nobody else has written in the meantime. The [`Engine`] stands
//! between: it keeps recent states in memory, gives ready jobs to workers on lease, and takes their reports.
//!
//! **Invariant:** no Envoy, HTTP, environment or clocks here. Redis is reached only through `tidegate-pipeline`.

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
pub use engine::attempts::{AttemptEnd, AttemptOutcome, Attempts};
pub use engine::claim::Claim;
pub use engine::claim::claimed::{Claimed, Input};
pub use engine::claim::leases::Leases;
pub use engine::claim::report::{Extension, Report, Reported, given_back};
pub use engine::context::tally::{CLASSES, Durations, HandlerTimes, Tally};
pub use engine::context::watchers::{Notice, Watching};
pub use engine::create::{Created, NewWorkflow};
pub use engine::desk::request::{Acted, Action, Begin, Condition};
pub use engine::error::EngineError;
pub use engine::home::{AboutServer, Asks, LivingServer};
pub use engine::limits::look::{Full, Holding, Holdings, Look};
pub use engine::limits::units::{Granted, Later, NoRoom, Receipt, Units, Wanted};
pub use engine::list::count::CountPage;
pub use engine::list::query::{Cursor, Filter, Query};
pub use engine::list::queue_states::{QueuePage, QueueState};
pub use engine::list::running::{RunningCursor, RunningJobs};
pub use engine::list::waiting_keys::{WaitingKey, WaitingKeyPage};
pub use engine::list::{Listed, Page};
pub use engine::notes::Note;
pub use engine::partial::{Missing, Partial};
pub use engine::post::thread::Thread;
pub use engine::queues::{Patience, Paused};
pub use engine::snapshot::{JobResult, Outline, Reason, Snapshot};
pub use engine::trouble::{Trouble, Unserved};
pub use engine::{Engine, EngineOptions};
pub use graph::definition::{
    DEFAULT_MAX_LOST, DEFAULT_QUEUE, Definition, JobDefinition, LimitDefinition, OnFailure,
    Retention, Retry, Scope, TriggerRule,
};
pub use graph::error::{
    GraphError, MAX_CONCURRENCY, MAX_DEPTH, MAX_HITS, MAX_JOBS, MAX_LIMIT_ENTRIES, MAX_LIMIT_KEY,
    MAX_LIMIT_TEXT, MAX_LIMITS, MAX_NAME, MAX_OUTPUT, MAX_PARAMS, MAX_RETRIES, MAX_TAGS,
    MAX_WEIGHT, MAX_WEIGHTS, WrongLimit, WrongTerms, WrongWeight,
};
pub use graph::json::{Json, json_depth};
pub use graph::limits::{Limit, Limits};
pub use graph::terms::{Subject, Terms, Weight};
pub use graph::{Graph, GraphJob};
pub use gush::{GushError, GushReport, import_gush};
pub use id::{IdPrefix, InvalidId, InvalidPrefix, JobIndex, MAX_PARTITIONS, Partition, WorkflowId};
pub use record::due::{due_row, read_due_row};
pub use record::format::{Format, RecordKind, UPGRADES, Upgrade};
pub use record::lease::LeaseRef;
pub use record::note::{LogLine, Progress};
pub use record::{change, rows};
pub use state::{
    AttemptError, Counts, Job, JobState, Label, LeaseEnd, Meta, Rerun, RetentionDefaults, Status,
    Worker,
};
pub use store::Store;
pub use store::announcement::ServerId;
pub use store::board::Sheet;
pub use store::error::{SCHEMA_VERSION, StoreError};
pub use store::holders::{Extended, Held, Hold, Holders};
pub use store::migration::{Earlier, Rewritten};
pub use store::notes::{JobNote, Log, Noted};
pub use store::probe::Probe;
pub use store::query::{Clockwork, Head, Order, Register, RowSet, Span};
pub use store::redis::durability::{Durability, NodeDurability, Persistence};
pub use store::redis::{RedisOptions, RedisOptionsError, RedisStore};
#[cfg(feature = "test-util")]
pub use store::simulated::{Call, DataLoss, Fault, InjectedFault, SimulatedStore};
pub use store::sqlite::{Space, SqliteOptions, SqliteOptionsError, SqliteStore};
pub use time::Timestamp;
pub use transition::event::{DeleteIf, Intent, RestartScope};
pub use transition::outcome::{Crash, Death, Failure, Outcome, RetryWish};
pub use transition::refusal::Refusal;
pub use workflow::imported::{Course, Imported};
