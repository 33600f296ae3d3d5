//! The ready jobs that this server knows, by queue, and the workers that wait for them.

pub(crate) mod blocked_limits;
pub(crate) mod cache;
mod dequeue;
pub(crate) mod partitions;
mod quarantine;
mod queue;
mod ready_jobs;
mod refill;
mod scheduler;
mod waiting;

pub(crate) use blocked_limits::LimitBlock;
pub use cache::{ClaimMode, Paused};
pub(crate) use cache::{PartitionScope, QueueCache, Reach, RefillDepth, RefillTarget};
pub(crate) use dequeue::ExcludedJobs;
pub(crate) use partitions::LocalPartitions;
pub(crate) use ready_jobs::LaneKey;
pub(crate) use refill::{LanesRead, PartitionRows, RefillResult, RefillRows};
pub(crate) use waiting::{JobOffer, ReservedWorker, WaitingClaim};

use blocked_limits::{BlockedLimits, UnblockPosition};
use quarantine::Quarantine;
use queue::{Queue, Waiter};
use ready_jobs::{KeyMemory, LimitGroup, PassChange, ReadyJobs};
use refill::{ChangeLog, QueueChange};
use scheduler::{ClaimFilter, StrideScheduler};
use waiting::Delivery;
