//! The limiter, and the limits, decisions and caches that it is made of.

mod acquire;
mod applied_limits;
mod cores;
mod decision;
mod hit_counts;
#[expect(
    clippy::module_inception,
    reason = "the folder has what the limiter is made of"
)]
mod limiter;
mod local_cache;
mod options;
mod overridden;
mod peek;
mod response;
mod sketch;

pub use acquire::permits::Permits;
pub use acquire::request::{
    AcquireFacts, AcquireRequest, Acquired, Exhausted, ExhaustedReason, Remaining, Units,
};
pub use limiter::Limiter;
pub use local_cache::LocalCacheStats;
pub use options::{Options, OverLimitKeys};
pub use peek::Usage;
pub use response::{Code, CurrentLimit, Error, Facts, LimitDelta, LimitHeaders, Response, Status};
pub use sketch::{Caller, KeyMinute, Refusal, Refused, Sketch, TopKey};

use applied_limits::{AppliedLimit, AppliedLimits, CountedLimit};
use cores::{CacheLookups, Core, Cores};
use decision::{Count, CounterReading, Counts, split_hits};
use local_cache::{CounterName, LocalCache};
use overridden::{AppliedOverride, NO_END};
use response::{ActiveConfig, CoreActiveConfig};
use sketch::{CoreSketch, Key};
